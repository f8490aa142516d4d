#include "cut_pins.hpp"

namespace perturbmap {

void CutPins::add_moments(std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges,
                          const double* weights, double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = free.size(), n_sets = set_begin.size() - 1;
    double total = 0;
    std::vector<double> set_weight(n_sets, 0.0);
    for (std::size_t d = 0; d < n; ++d) {
        total += weights[2 * d] + weights[2 * d + 1];
        if (set_of[d] >= 0) set_weight[set_of[d]] += weights[2 * d + 1 - free[d]];
    }
    // The weight of the pins that flip a site; and, for each site, the sets of more than one that it is in.
    std::vector<double> site_weight(n, 0.0);
    std::vector<std::size_t> first(n + 1, 0);
    for (std::size_t s = 0; s < n_sets; ++s)
        for (std::size_t i = set_begin[s]; i < set_begin[s + 1]; ++i) {
            site_weight[members[i]] += set_weight[s];
            first[members[i] + 1] += set_begin[s + 1] - set_begin[s] > 1;
        }
    for (std::size_t x = 0; x < n; ++x) first[x + 1] += first[x];
    std::vector<std::int32_t> sets(first[n]);
    std::vector<std::size_t> end(first.begin(), first.end() - 1);
    for (std::size_t s = 0; s < n_sets; ++s)
        if (set_begin[s + 1] - set_begin[s] > 1)
            for (std::size_t i = set_begin[s]; i < set_begin[s + 1]; ++i)
                sets[end[members[i]]++] = static_cast<std::int32_t>(s);
    // The weight of the pins that flip both: of the sets in both lists, which ascend.
    auto weight_of_both = [&](std::int32_t x, std::int32_t y) {
        double weight = 0;
        for (std::size_t k = first[x], l = first[y]; k < end[x] && l < end[y];) {
            if (sets[k] == sets[l]) weight += set_weight[sets[k]];
            const bool x_behind = sets[k] <= sets[l], y_behind = sets[l] <= sets[k];
            k += x_behind;
            l += y_behind;
        }
        return weight;
    };
    for (std::size_t x = 0; x < n; ++x) {
        unary[2 * x + free[x]] += total - site_weight[x];
        unary[2 * x + 1 - free[x]] += site_weight[x];
    }
    for (std::size_t e = 0; e < n_edges; ++e) {
        const std::int32_t i = edges[2 * e] - first_site, j = edges[2 * e + 1] - first_site;
        const int a = free[i], b = free[j];
        const double both = weight_of_both(i, j), only_i = site_weight[i] - both, only_j = site_weight[j] - both;
        double* out = pairwise + e * stride;
        out[2 * a + b] += total - only_i - only_j - both;
        out[2 * (1 - a) + b] += only_i;
        out[2 * a + 1 - b] += only_j;
        out[2 * (1 - a) + 1 - b] += both;
    }
}

}  // namespace perturbmap
