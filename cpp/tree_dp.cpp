#include "tree_dp.hpp"

#include <algorithm>

#include "simd.hpp"

namespace perturbmap {

namespace {

// out[j] = max_i in[i] + table[i][j], and the first i that attains it.
PERTURBMAP_SIMD
void max_plus(std::size_t k, const double* table, const double* in, double* out, std::int64_t* argument) {
    for (std::size_t j = 0; j < k; ++j) {
        out[j] = in[0] + table[j];
        argument[j] = 0;
    }
    for (std::size_t i = 1; i < k; ++i) {
        const double* t = table + i * k;
        const double x = in[i];
        const std::int64_t index = static_cast<std::int64_t>(i);
        for (std::size_t j = 0; j < k; ++j) {
            const double value = x + t[j];
            const bool better = value > out[j];
            out[j] = better ? value : out[j];
            argument[j] = better ? index : argument[j];
        }
    }
}

void keep(const std::vector<std::int64_t>& argument, Pointer* out) {
    std::transform(argument.begin(), argument.end(), out, [](std::int64_t k) { return static_cast<Pointer>(k); });
}

std::size_t first_maximum(std::size_t k, const double* x) {
    return static_cast<std::size_t>(std::max_element(x, x + k) - x);
}

}  // namespace

void TreeDP::upward_max() {
    const std::size_t k_ = forest.n_labels();
    up_ = unary_;
    message_.resize(unary_.size());
    up_pointer_.resize(unary_.size());
    argument_.resize(k_);
    for (std::size_t p = forest.n_sites(); p-- > 0;) {
        const TreeSite& site = forest[p];
        if (site.parent < 0) continue;
        double* message = message_.data() + p * k_;
        max_plus(k_, forest.table(site, false), up_.data() + p * k_, message, argument_.data());
        keep(argument_, up_pointer_.data() + p * k_);
        normalise(k_, message);
        double* up = up_.data() + static_cast<std::size_t>(site.parent) * k_;
        for (std::size_t k = 0; k < k_; ++k) up[k] += message[k];
    }
}

void TreeDP::backtrack(std::int32_t* labels) const {
    const std::size_t k_ = forest.n_labels();
    for (std::size_t p = 0; p < forest.n_sites(); ++p) {
        const TreeSite& site = forest[p];
        labels[site.site] =
            site.parent < 0
                ? static_cast<std::int32_t>(first_maximum(k_, up_.data() + p * k_))
                : up_pointer_[p * k_ + static_cast<std::size_t>(labels[forest[static_cast<std::size_t>(site.parent)].site])];
    }
}

void TreeDP::maximise(const double* unary, std::int32_t* labels) {
    forest.load(unary, unary_);
    upward_max();
    backtrack(labels);
}

void TreeDP::pin(const std::int32_t* labels, double top, double* values) {
    const std::size_t k_ = forest.n_labels();
    down_.assign(unary_.size(), 0.0);
    outside_.resize(unary_.size());
    down_pointer_.resize(unary_.size());
    free_.resize(forest.n_sites());
    for (std::size_t p = 0; p < forest.n_sites(); ++p) {
        const TreeSite& site = forest[p];
        double *up = up_.data() + p * k_, *down = down_.data() + p * k_;
        if (site.parent >= 0) {
            max_plus(k_, forest.table(site, true), outside_.data() + p * k_, down, argument_.data());
            keep(argument_, down_pointer_.data() + p * k_);
            normalise(k_, down);
        }
        forest.outside_of_children(p, unary_, down_, message_, outside_);
        // A pin that the free maximiser satisfies has its value exactly; no other has more.
        const std::size_t label = static_cast<std::size_t>(free_[p] = labels[site.site]);
        const double best = up[label] + down[label];
        double* out = values + static_cast<std::size_t>(site.site) * k_;
        for (std::size_t k = 0; k < k_; ++k) out[k] = top - std::max(0.0, best - (up[k] + down[k]));
        out[label] = top;
    }
}

void TreePins::add_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = order->size(), k_ = n_labels;
    if (n == 0) return;
    std::vector<double> mass(n * k_), from_child(n * k_, 0.0);
    // Pins that the free maximiser satisfies are moved to the first root: from there the pointers lead to
    // that very maximiser, ties or not.
    double satisfied = 0, total = 0;
    std::size_t n_roots = 0;
    for (std::size_t p = 0; p < n; ++p) {
        const double* w = weights + static_cast<std::size_t>((*order)[p].site) * k_;
        std::copy(w, w + k_, mass.begin() + static_cast<std::ptrdiff_t>(p * k_));
        satisfied += w[free[p]];
        for (std::size_t k = 0; k < k_; ++k) total += w[k];
        mass[p * k_ + static_cast<std::size_t>(free[p])] = 0;
        n_roots += (*order)[p].parent < 0;
    }
    mass[static_cast<std::size_t>(free[0])] = satisfied;

    auto add_to_table = [&](const TreeSite& site, std::size_t parent_label, std::size_t label, double amount) {
        const std::size_t a = site.parent_is_second ? label : parent_label;
        const std::size_t b = site.parent_is_second ? parent_label : label;
        pairwise[static_cast<std::size_t>(site.edge) * stride + a * k_ + b] += amount;
    };
    // Upwards: the weight of the pins in the subtree of each site, by the site's label.
    for (std::size_t p = n; p-- > 0;) {
        const TreeSite& site = (*order)[p];
        if (site.parent < 0) continue;
        const double* here = mass.data() + p * k_;
        double *sent = from_child.data() + p * k_, *above = mass.data() + static_cast<std::size_t>(site.parent) * k_;
        const Pointer* pointer = down_pointer.data() + p * k_;
        for (std::size_t k = 0; k < k_; ++k) {
            if (here[k] == 0) continue;
            sent[pointer[k]] += here[k];
            add_to_table(site, static_cast<std::size_t>(pointer[k]), k, here[k]);
        }
        for (std::size_t k = 0; k < k_; ++k) above[k] += sent[k];
    }
    // Downwards: the weight of all other pins. Those of other trees leave this one at its free maximiser.
    for (std::size_t p = 0; p < n; ++p) {
        const TreeSite& site = (*order)[p];
        double* here = mass.data() + p * k_;
        if (site.parent < 0) {
            double own = 0;
            for (std::size_t k = 0; k < k_; ++k) own += here[k];
            here[free[p]] += n_roots > 1 ? total - own : 0.0;
        } else {
            const double *above = mass.data() + static_cast<std::size_t>(site.parent) * k_, *sent = from_child.data() + p * k_;
            const Pointer* pointer = up_pointer.data() + p * k_;
            for (std::size_t k = 0; k < k_; ++k) {
                const double other = above[k] - sent[k];
                if (other == 0) continue;
                here[pointer[k]] += other;
                add_to_table(site, k, static_cast<std::size_t>(pointer[k]), other);
            }
        }
        double* out = unary + static_cast<std::size_t>(site.site) * k_;
        for (std::size_t k = 0; k < k_; ++k) out[k] += here[k];
    }
}

}  // namespace perturbmap
