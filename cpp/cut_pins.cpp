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
    // The weight of the pins that flip a site, and of those that flip both ends of an edge.
    std::vector<double> site_weight(n, 0.0), edge_weight(n_edges, 0.0);
    for (std::size_t s = 0; s < n_sets; ++s) {
        if (set_weight[s] == 0) continue;
        for (std::size_t i = set_begin[s]; i < set_begin[s + 1]; ++i) site_weight[members[i]] += set_weight[s];
        for (std::size_t i = inner_begin[s]; i < inner_begin[s + 1]; ++i) edge_weight[inner_edges[i]] += set_weight[s];
    }
    for (std::size_t x = 0; x < n; ++x) {
        unary[2 * x + free[x]] += total - site_weight[x];
        unary[2 * x + 1 - free[x]] += site_weight[x];
    }
    for (std::size_t e = 0; e < n_edges; ++e) {
        const std::int32_t i = edges[2 * e] - first_site, j = edges[2 * e + 1] - first_site;
        const int a = free[i], b = free[j];
        const double both = edge_weight[e], only_i = site_weight[i] - both, only_j = site_weight[j] - both;
        double* out = pairwise + e * stride;
        out[2 * a + b] += total - only_i - only_j - both;
        out[2 * (1 - a) + b] += only_i;
        out[2 * a + 1 - b] += only_j;
        out[2 * (1 - a) + 1 - b] += both;
    }
}

}  // namespace perturbmap
