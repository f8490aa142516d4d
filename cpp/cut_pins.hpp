// The pinned maximisers of a binary graph in compact form: what flips with each site, and what that sums up to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perturbmap {

// The pinned maximisers as the sets of sites that flip with each site; equal sets are stored once.
struct CutPins {
    std::vector<std::uint8_t> free;          // labels of the free maximiser
    std::vector<std::int32_t> set_of;        // the set of each settled site; -1 for the others
    std::vector<std::size_t> set_begin;      // set s is members[set_begin[s]], ... up to the next
    std::vector<std::int32_t> members;

    // Adds sum_{d,k} weights[d,k] * indicators of the maximiser pinned at (d, k) to `unary` (n_sites, 2) and to
    // the tables of `pairwise` (row = label of edges[e][0]).
    void add_moments(std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges, const double* weights,
                     double* unary, double* pairwise, std::size_t stride) const;
};

// With a weight for the pin of each settled site: the weight of the pins that flip a site, and two sites together.
class FlipWeights {
   public:
    FlipWeights(const CutPins& pins, const double* weights);

    double of(std::size_t site) const { return site_weight_[site]; }
    double of_both(std::size_t x, std::size_t y) const;

   private:
    std::vector<double> set_weight_, site_weight_;
    // For each site, the sets of more than one that it is in, ascending.
    std::vector<std::size_t> first_;
    std::vector<std::int32_t> sets_;
};

}  // namespace perturbmap
