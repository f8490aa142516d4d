#include "cut_pins.hpp"

namespace perturbmap {

FlipWeights::FlipWeights(const CutPins& pins, const double* weights)
    : set_weight_(pins.set_begin.size() - 1, 0.0), site_weight_(pins.free.size(), 0.0), first_(pins.free.size() + 1, 0) {
    const std::size_t n = pins.free.size(), n_sets = set_weight_.size();
    const std::vector<std::size_t>& begin = pins.set_begin;
    for (std::size_t d = 0; d < n; ++d)
        if (pins.set_of[d] >= 0) set_weight_[pins.set_of[d]] += weights[d];
    for (std::size_t s = 0; s < n_sets; ++s)
        for (std::size_t i = begin[s]; i < begin[s + 1]; ++i) {
            site_weight_[pins.members[i]] += set_weight_[s];
            first_[pins.members[i] + 1] += begin[s + 1] - begin[s] > 1;
        }
    for (std::size_t x = 0; x < n; ++x) first_[x + 1] += first_[x];
    sets_.resize(first_[n]);
    std::vector<std::size_t> end(first_.begin(), first_.end() - 1);
    for (std::size_t s = 0; s < n_sets; ++s)
        if (begin[s + 1] - begin[s] > 1)
            for (std::size_t i = begin[s]; i < begin[s + 1]; ++i)
                sets_[end[pins.members[i]]++] = static_cast<std::int32_t>(s);
}

// The weight of the sets in both lists, which ascend.
double FlipWeights::of_both(std::size_t x, std::size_t y) const {
    double weight = 0;
    for (std::size_t k = first_[x], l = first_[y]; k < first_[x + 1] && l < first_[y + 1];) {
        if (sets_[k] == sets_[l]) weight += set_weight_[sets_[k]];
        const bool x_behind = sets_[k] <= sets_[l], y_behind = sets_[l] <= sets_[k];
        k += x_behind;
        l += y_behind;
    }
    return weight;
}

void CutPins::add_moments(std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges,
                          const double* weights, double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = free.size();
    double total = 0;
    std::vector<double> of_flip(n);
    for (std::size_t d = 0; d < n; ++d) {
        total += weights[2 * d] + weights[2 * d + 1];
        of_flip[d] = weights[2 * d + 1 - free[d]];
    }
    const FlipWeights flips(*this, of_flip.data());
    for (std::size_t x = 0; x < n; ++x) {
        unary[2 * x + free[x]] += total - flips.of(x);
        unary[2 * x + 1 - free[x]] += flips.of(x);
    }
    for (std::size_t e = 0; e < n_edges; ++e) {
        const std::size_t i = static_cast<std::size_t>(edges[2 * e] - first_site);
        const std::size_t j = static_cast<std::size_t>(edges[2 * e + 1] - first_site);
        const int a = free[i], b = free[j];
        const double both = flips.of_both(i, j), only_i = flips.of(i) - both, only_j = flips.of(j) - both;
        double* out = pairwise + e * stride;
        out[2 * a + b] += total - only_i - only_j - both;
        out[2 * (1 - a) + b] += only_i;
        out[2 * a + 1 - b] += only_j;
        out[2 * (1 - a) + 1 - b] += both;
    }
}

}  // namespace perturbmap
