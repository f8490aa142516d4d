// Dynamic programming on a rooted forest: maximisers, free and for all pins.
//
// Problem.  f(y) = sum_d u_d(y_d) + sum_{edges} T_e(y_i, y_j) over a forest; K labels for each site.
// Max.      Upward messages m_c(a) = max_b T(a, b) + up_c(b), with up_c = u_c + the messages of c's
//           children, give the maximum. With the downward messages, from a parent without the child's own
//           part, up_d(k) + down_d(k) is every pinned value B[d, k], up to a constant: messages are shifted
//           to have their maximum at zero.
// Masks.    A downward message is made only where it leads to a wanted pin: to sites that have one in their
//           subtree. A pin that the free maximiser satisfies has its value without any.
// Moments.  The maximiser of pin (d, k) is read off the arg-max pointers, outwards from d. The weighted sum
//           over all pins needs no maximiser listed: their weights are pushed along the pointers, upwards
//           and then downwards, and meet at each site and edge.
// Forbidden labels and pairs have the potential -inf, as labels other than a given one do. Where no labelling is left, the
//           maximum is -inf, and the labels are any.
// Cost.     O(edges * K^2) for values, O(edges * K) where all tables are Potts, O(sites * K) for moments.
// Ties.     The smallest label, from the root down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "batch.hpp"
#include "forest.hpp"

namespace perturbmap {

// A label as the arg-max of a message; small, since all pins of a batch may be kept.
using Pointer = std::uint16_t;

// The maximisers of all wanted pins, as pointers.
struct TreePins {
    std::size_t n_labels;
    std::shared_ptr<const std::vector<TreeSite>> order;
    std::vector<std::int32_t> free;                  // labels of the free maximiser, in order
    std::vector<Pointer> up_pointer;                 // best label of the site for each label of its parent
    std::vector<Pointer> down_pointer;               // best label of the parent for each label of the site; up to
                                                     // the last site that has a wanted pin in its subtree

    // Adds sum_{d,k} weights[d,k] * indicators of the maximiser pinned at (d, k) to `unary` (n_sites, K) and to
    // the tables of `pairwise` (row = label of edges[e][0]). The weights of pins that were not wanted are zero.
    void add_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) const;
};

// Solves one example of a batch after another; the batch must outlive it and must not change.
class TreeDP {
   public:
    // Where all tables are Potts (potts.hpp), the weights of the batch's edges may be given: messages are then O(K).
    explicit TreeDP(const Batch& batch, const double* weights = nullptr) : forest_(batch), weights_(weights) {}

    // Writes the labels (n_sites) of the maximum; returns their score, or -inf where there is none.
    double maximise(std::size_t copy, std::size_t example, std::int32_t* labels);

    // Writes also the pinned values (n_sites, K) that pin_values.hpp defines, for the mask `wanted` of the same shape or
    // for all where it is null; and the maximisers to `pins`, unless that is null.
    void pin(std::size_t copy, std::size_t example, const std::uint8_t* wanted, std::int32_t* labels, double* values,
             TreePins* pins);

    // What the last maximum was found by: the forest; the best score of the subtree of a position for each of its labels,
    // up to a constant; and its best label for a label of its parent.
    const Forest& forest() const { return forest_; }
    const double* up(std::size_t position) const { return up_.data() + position * forest_.n_labels(); }
    Pointer pointer(std::size_t position, std::size_t above) const {
        return up_pointer_[position * forest_.n_labels() + above];
    }

   private:
    void send(const TreeSite& site, bool downwards, const double* in, double* out);
    void upward_max();
    // Whether there is a labelling.
    bool backtrack(std::int32_t* labels) const;
    std::size_t find_needed(const std::uint8_t* wanted, const std::int32_t* labels);

    Forest forest_;
    const double* weights_;
    std::vector<double> unary_, up_, message_, down_, outside_;
    std::vector<Pointer> up_pointer_, down_pointer_;
    std::vector<std::int64_t> argument_;
    std::vector<std::uint8_t> needed_;  // whether a wanted pin of the site's subtree is still without a value
};

}  // namespace perturbmap
