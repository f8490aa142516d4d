#include "tree_gibbs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pin_values.hpp"
#include "uniform.hpp"

namespace perturbmap {

namespace {

constexpr double no_answer = std::numeric_limits<double>::quiet_NaN();

// The label at which the running sum of the weights exceeds u times all of them; never one without weight.
std::int32_t draw_from(std::size_t k, const Distribution& distribution, double u) {
    const double threshold = u * distribution.sum;
    std::size_t last = 0;
    double sum = 0;
    for (std::size_t i = 0; i < k; ++i) {
        if (distribution.weights[i] == 0) continue;
        sum += distribution.weights[i];
        last = i;
        if (sum > threshold) break;
    }
    return static_cast<std::int32_t>(last);
}

// sum_i p[i] x[i]; what has no probability does not count, whatever it is.
double expected(std::size_t n, const double* p, const double* x) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += p[i] == 0 ? 0.0 : p[i] * x[i];
    return sum;
}

}  // namespace

void TreeGibbs::sweep(std::size_t copy, std::size_t example, Swept wanted) {
    if (copy == copy_ && example == example_ && swept_ >= wanted) return;
    swept_ = Swept::nothing;
    forest_.select(example);
    forest_.give(nullptr);
    const double* unary = forest_.batch().unary_of(copy, example);
    is_scaled_ = wanted == Swept::upwards ? scaled_.upward(unary) : scaled_.sweep(unary);
    if (!is_scaled_) {
        if (wanted == Swept::upwards)
            log_.upward(unary);
        else
            log_.sweep(unary);
    }
    total_ = is_scaled_ ? scaled_.log_partition() : log_.log_partition();
    copy_ = copy;
    example_ = example;
    swept_ = wanted;
}

Distribution TreeGibbs::given_parent(std::size_t position, std::size_t above) {
    return is_scaled_ ? scaled_.given_parent(position, above) : log_.given_parent(position, above);
}

Distribution TreeGibbs::marginal(std::size_t position) {
    return is_scaled_ ? scaled_.marginal(position) : log_.marginal(position);
}

void TreeGibbs::sample(std::size_t copy, std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw,
                       std::int32_t* labels) {
    sweep(copy, example, Swept::upwards);
    const std::size_t n = forest_.n_sites();
    if (total_ == impossible) {
        std::fill_n(labels, n, -1);
        return;
    }
    uniform_.resize(n);
    uniform_numbers(seed, stream, draw, n, uniform_.data());
    for (std::size_t p = 0; p < n; ++p) {
        const TreeSite& site = forest_[p];
        const std::size_t above =
            site.parent < 0 ? 0 : static_cast<std::size_t>(labels[forest_[static_cast<std::size_t>(site.parent)].site]);
        labels[site.site] =
            draw_from(forest_.n_labels(), given_parent(p, above), uniform_[static_cast<std::size_t>(site.site)]);
    }
}

double TreeGibbs::entropy(std::size_t copy, std::size_t example) {
    sweep(copy, example, Swept::both);
    if (total_ == impossible) return no_answer;
    const Batch& batch = forest_.batch();
    const std::size_t k = forest_.n_labels(), n = forest_.n_sites();
    const bool is_shared = batch.tables.are_shared();
    const std::size_t n_tables = is_shared ? 1 : batch.n_edges(example);
    unary_.resize(n * k);
    tables_.assign(n_tables * k * k, 0.0);
    if (is_scaled_) {
        scaled_.marginals(1.0, unary_.data(), tables_.data(), is_shared ? 0 : k * k);
        if (is_shared) scaled_.add_shared(tables_.data());
    } else {
        log_.marginals(1.0, unary_.data(), tables_.data(), is_shared ? 0 : k * k);
    }
    const double mean = expected(n * k, unary_.data(), batch.unary_of(copy, example)) +
                        (n_tables ? expected(n_tables * k * k, tables_.data(), batch.tables_of(example)[0]) : 0.0);
    return std::max(0.0, total_ - mean);
}

double TreeGibbs::log_partition_given(const double* unary, const std::int32_t* given) {
    swept_ = Swept::nothing;
    forest_.give(given);
    const bool is_scaled = scaled_.upward(unary);
    if (!is_scaled) log_.upward(unary);
    return is_scaled ? scaled_.log_partition() : log_.log_partition();
}

double TreeGibbs::probability(std::size_t copy, std::size_t example, std::size_t n, const std::int32_t* sites,
                              const std::int32_t* labels) {
    sweep(copy, example, Swept::both);
    if (total_ == impossible) return no_answer;
    const Batch& batch = forest_.batch();
    if (placed_ != example) {
        positions_.resize(forest_.n_sites());
        for (std::size_t p = 0; p < forest_.n_sites(); ++p) positions_[static_cast<std::size_t>(forest_[p].site)] = p;
        known_.assign(forest_.n_sites(), -1);
        placed_ = example;
    }
    for (std::size_t i = 0; i < n; ++i) known_[static_cast<std::size_t>(sites[i])] = labels[i];
    double product = 1;
    std::size_t n_tops = 0;
    for (std::size_t i = 0; i < n && n_tops <= 1; ++i) {
        const std::size_t p = positions_[static_cast<std::size_t>(sites[i])];
        const std::int32_t parent = forest_[p].parent;
        const std::int32_t above = parent < 0 ? -1 : known_[static_cast<std::size_t>(forest_[static_cast<std::size_t>(parent)].site)];
        n_tops += above < 0;
        const Distribution own = above < 0 ? marginal(p) : given_parent(p, static_cast<std::size_t>(above));
        product *= own.sum > 0 ? own.weights[labels[i]] / own.sum : 0.0;
    }
    if (n_tops > 1) {
        const double log_z = total_;
        const std::int32_t* given = batch.given_of(example);
        bool fit = true;
        for (std::size_t d = 0; given && d < known_.size(); ++d) {
            if (given[d] < 0) continue;
            fit &= known_[d] < 0 || known_[d] == given[d];
            known_[d] = given[d];
        }
        product = fit ? std::exp(log_partition_given(batch.unary_of(copy, example), known_.data()) - log_z) : 0.0;
        std::fill(known_.begin(), known_.end(), -1);
    }
    for (std::size_t i = 0; i < n; ++i) known_[static_cast<std::size_t>(sites[i])] = -1;
    return std::min(1.0, product);
}

}  // namespace perturbmap
