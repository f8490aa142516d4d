// The moments of pinned sums: weights of pins, pushed through a forest.
//
// Problem.    sum_{d,k} weights[d,k] * (marginals given y_d = k), for all pins together.
// Fact.       What lies beyond an edge depends on a pin only through the label at the edge's near end. So the weights
//             of all pins on one side of an edge can be added up by that label before they go across.
// Method.     Upwards, each site hands the weights of its subtree to its parent, along P(parent | child); then
//             downwards, each gets those of all other pins, along P(child | parent).
// Cost.       One call of up() and one of down() for each edge, besides O(sites * width).
#pragma once

#include <cstddef>
#include <numeric>

#include "forest.hpp"

namespace perturbmap {

// `mass` has the weights by site and label, in order, and is left with the weighted marginals. `sent`, of the same
// size, is work space.
//   up(p, weights, out)        makes weights of p's labels weights of its parent's, in a row of `sent`
//   down(p, weights, out)      adds weights of the labels of p's parent to those of p's
//   spread(root, weight, out)  adds a weight that lies in another tree
template <class Up, class Down, class Spread>
void push_weights(const Forest& forest, std::size_t width, double* mass, double* sent, Up up, Down down, Spread spread) {
    const std::size_t n = forest.n_sites();
    const bool several = forest.roots().size() > 1;
    const double all = several ? std::accumulate(mass, mass + n * width, 0.0) : 0.0;
    for (std::size_t p = n; p-- > 0;) {
        if (forest[p].parent < 0) continue;
        up(p, mass + p * width, sent + p * width);
        double* above = mass + static_cast<std::size_t>(forest[p].parent) * width;
        for (std::size_t k = 0; k < width; ++k) above[k] += sent[p * width + k];
    }
    for (std::size_t p = 0; p < n; ++p) {
        double* here = mass + p * width;
        if (forest[p].parent < 0) {
            if (several) spread(p, all - std::accumulate(here, here + width, 0.0), here);
            continue;
        }
        const double* above = mass + static_cast<std::size_t>(forest[p].parent) * width;
        for (std::size_t k = 0; k < width; ++k) sent[p * width + k] = above[k] - sent[p * width + k];
        down(p, sent + p * width, here);
    }
}

}  // namespace perturbmap
