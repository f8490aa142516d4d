#include "tree_reweighted.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pin_values.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {

// out[b] = max_a in[a] + table[a][b].
PERTURBMAP_SIMD
void max_plus_rows(std::size_t k, const double* table, const double* in, double* out) {
    for (std::size_t b = 0; b < k; ++b) out[b] = in[0] + table[b];
    for (std::size_t a = 1; a < k; ++a) {
        const double *t = table + a * k, x = in[a];
        for (std::size_t b = 0; b < k; ++b) {
            const double value = x + t[b];
            out[b] = value > out[b] ? value : out[b];
        }
    }
}

// out[b] = max_a in[a] + table[b][a].
PERTURBMAP_SIMD
void max_plus_columns(std::size_t k, const double* table, const double* in, double* out) {
    for (std::size_t b = 0; b < k; ++b) {
        const double* t = table + b * k;
        double best = in[0] + t[0];
        for (std::size_t a = 1; a < k; ++a) {
            const double value = in[a] + t[a];
            best = value > best ? value : best;
        }
        out[b] = best;
    }
}

}  // namespace

void TreeReweighted::select(std::size_t example, const Neighbours& neighbours) {
    neighbours_ = &neighbours;
    example_ = example;
    given_ = batch_.given_of(example);
    const std::size_t n = batch_.sites(example), k = batch_.n_labels;
    belief_.resize(k);
    share_.resize(k);
    score_.resize(k);
    labels_.resize(n);
    weight_.resize(n);
    for (std::size_t d = 0; d < n; ++d) {
        std::size_t before = 0, after = 0;
        for (const Neighbour& other : neighbours_->of(d)) {
            if (is_given(static_cast<std::size_t>(other.site))) continue;
            ++(static_cast<std::size_t>(other.site) < d ? before : after);
        }
        weight_[d] = 1.0 / static_cast<double>(std::max<std::size_t>({before, after, 1}));
    }
}

// The unary potentials of a site with all messages to it, and the tables of given neighbours, in belief_.
void TreeReweighted::gather(std::size_t d, const double* unary) {
    const std::size_t k = batch_.n_labels;
    std::copy(unary + d * k, unary + (d + 1) * k, belief_.begin());
    for (const Neighbour& other : neighbours_->of(d)) {
        if (is_given(static_cast<std::size_t>(other.site))) {
            const std::size_t label = static_cast<std::size_t>(given_[other.site]);
            for (std::size_t a = 0; a < k; ++a) belief_[a] += other.at(a, label);
        } else {
            const double* message = message_to_us(other);
            for (std::size_t a = 0; a < k; ++a) belief_[a] += message[a];
        }
    }
}

// The site's share of its belief goes to a neighbour; returns what was the maximum of the message.
double TreeReweighted::send(std::size_t d, const Neighbour& to) {
    const std::size_t k = batch_.n_labels;
    const double* back = message_to_us(to);
    for (std::size_t a = 0; a < k; ++a) share_[a] = weight_[d] * belief_[a] - back[a];
    double* out = message_from_us(to);
    if (to.is_second)
        max_plus_rows(k, to.table, share_.data(), out);
    else
        max_plus_columns(k, to.table, share_.data(), out);
    const double top = *std::max_element(out, out + k);
    for (std::size_t a = 0; a < k; ++a) out[a] -= top;
    return top;
}

// Messages to later sites; labels are read off on the way, each given those before it.
double TreeReweighted::pass_forth(const double* unary, std::int32_t* labels) {
    const std::size_t n = batch_.sites(example_), k = batch_.n_labels;
    for (std::size_t d = 0; d < n; ++d) {
        if (is_given(d)) {
            labels[d] = given_[d];
            continue;
        }
        gather(d, unary);
        std::copy(unary + d * k, unary + (d + 1) * k, score_.begin());
        for (const Neighbour& other : neighbours_->of(d)) {
            const std::size_t site = static_cast<std::size_t>(other.site);
            if (is_given(site) || site < d) {
                const std::size_t label = static_cast<std::size_t>(is_given(site) ? given_[site] : labels[site]);
                for (std::size_t a = 0; a < k; ++a) score_[a] += other.at(a, label);
            } else {
                const double* message = message_to_us(other);
                for (std::size_t a = 0; a < k; ++a) score_[a] += message[a];
            }
        }
        labels[d] = static_cast<std::int32_t>(std::max_element(score_.begin(), score_.end()) - score_.begin());
        for (const Neighbour& other : neighbours_->of(d))
            if (static_cast<std::size_t>(other.site) > d && !is_given(static_cast<std::size_t>(other.site)))
                send(d, other);
    }
    return batch_.score(unary, example_, labels);
}

// Messages to earlier sites; returns the bound.
double TreeReweighted::pass_back(const double* unary) {
    const std::size_t n = batch_.sites(example_), k = batch_.n_labels;
    double bound = 0;
    for (std::size_t d = n; d-- > 0;) {
        if (is_given(d)) {
            const std::size_t label = static_cast<std::size_t>(given_[d]);
            bound += unary[d * k + label];
            for (const Neighbour& other : neighbours_->of(d))
                if (static_cast<std::size_t>(other.site) > d && is_given(static_cast<std::size_t>(other.site)))
                    bound += other.at(label, static_cast<std::size_t>(given_[other.site]));
            continue;
        }
        gather(d, unary);
        const double top = *std::max_element(belief_.begin(), belief_.end());
        for (double& x : belief_) x -= top;
        bound += top;
        for (const Neighbour& other : neighbours_->of(d))
            if (static_cast<std::size_t>(other.site) < d && !is_given(static_cast<std::size_t>(other.site)))
                bound += send(d, other);
    }
    return bound;
}

// The size of the largest number, but for labels that are forbidden: the unit of what is small.
double TreeReweighted::largest_potential(const double* unary) const {
    const std::size_t k = batch_.n_labels, m = batch_.n_edges(example_);
    const Tables tables = batch_.tables_of(example_);
    double largest = 0;
    auto look = [&](const double* values, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
            if (values[i] != impossible) largest = std::max(largest, std::abs(values[i]));
    };
    look(unary, batch_.sites(example_) * k);
    if (m) look(tables[0], (tables.are_shared() ? 1 : m) * k * k);
    return largest;
}

double TreeReweighted::run(const double* unary, int n_passes, double tolerance, double score, std::int32_t* labels) {
    messages_.assign(2 * batch_.n_edges(example_) * batch_.n_labels, 0.0);
    const double largest = largest_potential(unary);
    double bound = std::numeric_limits<double>::infinity(), best = -std::numeric_limits<double>::infinity();
    for (int pass = 0; pass < n_passes; ++pass) {
        const double found = pass_forth(unary, labels_.data());
        if (found > best) {
            best = found;
            std::copy(labels_.begin(), labels_.end(), labels);
        }
        const double next = pass_back(unary), small = tolerance * (largest + std::abs(next)), fall = bound - next;
        bound = std::min(bound, next);
        if (fall <= small || bound - std::max(best, score) <= small) break;
    }
    return bound;
}

}  // namespace perturbmap
