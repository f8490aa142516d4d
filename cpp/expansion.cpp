#include "expansion.hpp"

#include <algorithm>

namespace perturbmap {

namespace {
// A sweep that leaves out no more than one site in so many is the last.
constexpr std::size_t few_of = 8;
// Where one comparison leaves out hardly any sites, weights are large, and sweeps leave out no more.
constexpr bool is_promising(std::size_t n_remain, std::size_t n_sites) { return 4 * n_remain < 3 * n_sites; }
}  // namespace

void Expansion::select(std::size_t example, const PottsEdges& edges) {
    example_ = example;
    edges_ = &edges;
    const std::size_t n = edges.n_sites(), m = edges.n_edges();
    total_.assign(n, 0.0);
    for (std::size_t d = 0; d < n; ++d)
        for (const auto& [weight, j] : edges.of(d)) total_[d] += weight;
    number_.resize(n);
    gain_.resize(n);
    proposal_.resize(n);
    cut_unary_.resize(2 * n);
    cut_edges_.resize(2 * (m + 1));  // one more: edges that are left out are written, and then written over
    capacities_.resize(m + 1);
}

// Fact (2): the sites that may take the label, whatever the others do.
void Expansion::propose(const double* unary, std::int32_t label, const std::int32_t* labels) {
    const std::size_t n = proposal_.size(), k = batch_.n_labels;
    const std::int32_t* given = batch_.given_of(example_);
    std::size_t n_remain = 0;
    remain_.resize(n);
    for (std::size_t d = 0; d < n; ++d) {
        const std::int32_t own = labels[d];
        const double gain = unary[d * k + static_cast<std::size_t>(label)] - unary[d * k + static_cast<std::size_t>(own)];
        const bool may = (own != label) & (gain + total_[d] > 0) & !(given && given[d] >= 0);
        gain_[d] = gain;
        proposal_[d] = may ? label : own;
        remain_[n_remain] = static_cast<std::int32_t>(d);
        n_remain += may;
    }
    remain_.resize(n_remain);
}

// Fact (1): leaves sites out, sweep after sweep, until hardly any go: the cut may have the rest. Without branches on gains,
// which no processor could predict.
void Expansion::leave_out(std::int32_t label, const std::int32_t* labels) {
    const PottsEdges& edges = *edges_;
    std::int32_t *remain = remain_.data(), *proposal = proposal_.data();
    for (bool is_over = false; !is_over;) {
        std::size_t n_remain = 0;
        for (const std::int32_t d : remain_) {
            const std::int32_t own = labels[d];
            double gain = gain_[d];
            for (const auto& [weight, j] : edges.of(static_cast<std::size_t>(d))) {
                const std::int32_t other = proposal[j];
                gain += weight * static_cast<double>((other == label) - (other == own));
            }
            proposal[d] = gain > 0 ? label : own;
            remain[n_remain] = d;
            n_remain += gain > 0;
        }
        is_over = remain_.size() - n_remain <= remain_.size() / few_of;
        remain_.resize(n_remain);
    }
}

// The cut among the sites that remain, the others keeping their labels. An edge of two that remain is worth w [y_i == y_j] if
// both keep their labels, w if both take the other, and nothing else: a capacity of w (1 + [y_i == y_j]) / 2.
void Expansion::load(std::int32_t label, const std::int32_t* labels) {
    for (std::size_t i = 0; i < remain_.size(); ++i) number_[remain_[i]] = static_cast<std::int32_t>(i);
    std::size_t n_edges = 0;
    for (std::size_t i = 0; i < remain_.size(); ++i) {
        const std::int32_t d = remain_[i];
        double gain = gain_[d];
        for (const auto& [weight, j] : edges_->of(static_cast<std::size_t>(d))) {
            const bool remains = proposal_[j] != labels[j];
            const int same = labels[j] == labels[d], taken = labels[j] == label;
            gain += 0.5 * weight * static_cast<double>(remains ? 1 - same : 2 * (taken - same));
            cut_edges_[2 * n_edges] = static_cast<std::int32_t>(i);
            cut_edges_[2 * n_edges + 1] = number_[j];
            capacities_[n_edges] = 0.5 * weight * static_cast<double>(1 + same);
            n_edges += remains & (j > d);
        }
        cut_unary_[2 * i] = 0;
        cut_unary_[2 * i + 1] = gain;
    }
    flow_.set_capacities(static_cast<int>(remain_.size()), cut_edges_.data(), capacities_.data(), static_cast<int>(n_edges));
}

bool Expansion::improve(const double* unary, std::size_t label, std::int32_t* labels, double& score) {
    const std::int32_t taken = static_cast<std::int32_t>(label);
    propose(unary, taken, labels);
    if (is_promising(remain_.size(), proposal_.size())) leave_out(taken, labels);
    if (remain_.empty()) return false;
    load(taken, labels);
    flow_.solve(cut_unary_.data());
    bool has_moved = false;
    for (std::size_t i = 0; i < remain_.size(); ++i) {
        const bool takes = flow_.label(static_cast<int>(i));
        has_moved |= takes;
        if (!takes) proposal_[remain_[i]] = labels[remain_[i]];
    }
    if (!has_moved) return false;
    const double other = batch_.score(unary, example_, proposal_.data());
    if (!(other > score)) return false;
    std::copy(proposal_.begin(), proposal_.end(), labels);
    score = other;
    return true;
}

}  // namespace perturbmap
