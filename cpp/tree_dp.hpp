// Dynamic programming on a rooted forest: maximisers, free and for all pins.
//
// Problem.  f(y) = sum_d u_d(y_d) + sum_{edges} T_e(y_i, y_j) over a forest; K labels a site.
// Max.      Upward messages m_c(a) = max_b T(a, b) + up_c(b), with up_c = u_c + the messages of c's
//           children, give the maximum. With the downward messages, from a parent without the child's own
//           part, up_d(k) + down_d(k) is every pinned value B[d, k], up to a constant: messages are shifted
//           to have their maximum at zero.
// Moments.  The maximiser of pin (d, k) is read off the arg-max pointers, outwards from d. The weighted sum
//           over all pins needs no maximiser listed: their weights are pushed along the pointers, upwards
//           and then downwards, and meet at each site and edge.
// Cost.     O(edges * K^2) for values, O(sites * K) for moments.
// Ties.     The smallest label, from the root down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "forest.hpp"

namespace perturbmap {

// A label as the arg-max of a message; small, since all pins of a batch may be kept.
using Pointer = std::uint16_t;

// The maximisers of all pins, as pointers.
struct TreePins {
    std::size_t n_labels;
    std::shared_ptr<const std::vector<TreeSite>> order;
    std::vector<std::int32_t> free;                  // labels of the free maximiser, in order
    std::vector<Pointer> up_pointer;                 // best label of the site for each label of its parent
    std::vector<Pointer> down_pointer;               // best label of the parent for each label of the site

    // Adds sum_{d,k} weights[d,k] * indicators of the maximiser pinned at (d, k) to `unary` (n_sites, K) and to
    // the tables of `pairwise` (row = label of edges[e][0]).
    void add_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) const;
};

class TreeDP {
   public:
    // The example to solve; to be set first. At most max_labels labels.
    static constexpr std::size_t max_labels = 65535;
    Forest forest;

    // Writes the labels (n_sites) of the maximum.
    void maximise(const double* unary, std::int32_t* labels);

    // After maximise(), whose labels have the score `top`: writes the pinned values (n_sites, K); -inf where a
    // given label forbids the pin.
    void pin(const std::int32_t* labels, double top, double* values);

    // After pin(): the maximisers.
    TreePins pins() const { return {forest.n_labels(), forest.shared_order(), free_, up_pointer_, down_pointer_}; }

   private:
    void upward_max();
    void backtrack(std::int32_t* labels) const;

    std::vector<double> unary_, up_, message_, down_, outside_;
    std::vector<Pointer> up_pointer_, down_pointer_;
    std::vector<std::int64_t> argument_;
    std::vector<std::int32_t> free_;  // free labels in order
};

}  // namespace perturbmap
