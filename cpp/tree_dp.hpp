// Dynamic programming on a rooted forest: maximisers, all pinned maximisers, log-partition, marginals.
//
// Problem.  f(y) = sum_d u_d(y_d) + sum_{edges} T_e(y_i, y_j) over a forest; K labels a site.
// Max.      Upward messages m_c(a) = max_b T(a, b) + up_c(b), with up_c = u_c + the messages of c's
//           children, give the maximum. With the downward messages, from a parent without the child's own
//           part, up_d(k) + down_d(k) is every pinned value B[d, k], up to a constant: messages are shifted
//           to have their maximum at zero.
// Moments.  The maximiser of pin (d, k) is read off the arg-max pointers, outwards from d. The weighted sum
//           over all pins needs no maximiser listed: their weights are pushed along the pointers, upwards
//           and then downwards, and meet at each site and edge.
// Sum.      The same sweeps with log-sum-exp for max.
// Cost.     O(edges * K^2) for values, O(sites * K) for moments.
// Ties.     The smallest label, from the root down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tables.hpp"

namespace perturbmap {

// A label as the arg-max of a message; small, since all pins of a batch may be kept.
using Pointer = std::uint16_t;

// One site of a rooted forest, in breadth-first order from the roots.
struct TreeSite {
    std::int32_t site;
    std::int32_t parent;      // position in this order; -1 for a root
    std::int32_t edge;        // to the parent
    bool parent_is_second;    // the edge is stored as (child, parent)
    std::int32_t first_child, end_child;
};

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
    // Roots the forest. Returns false if the edges contain a cycle. At most max_labels labels.
    static constexpr std::size_t max_labels = 65535;
    bool set_forest(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges,
                    std::size_t n_edges, std::size_t n_labels, Tables tables, const std::int32_t* given);

    // Writes the labels (n_sites) of the maximum.
    void maximise(const double* unary, std::int32_t* labels);

    // After maximise(), whose labels have the score `top`: writes the pinned values (n_sites, K); -inf where a
    // given label forbids the pin.
    void pin(const std::int32_t* labels, double top, double* values);

    // After pin(): the maximisers.
    TreePins pins() const { return {k_, order_, free_, up_pointer_, down_pointer_}; }

    // log sum_y exp f(y); the marginals are added to `unary` and `pairwise`.
    double sum(const double* unary, double* unary_marginals, double* pairwise_marginals, std::size_t stride);

   private:
    using Site = TreeSite;

    void load(const double* unary);
    // The table of the edge above `site` with the parent's label as its row (or as its column).
    const double* table(const Site& site, bool parent_is_row);
    void upward_max();
    void backtrack(std::int32_t* labels) const;
    // Fills `outside_` with what the parent of child `c` knows without c: unary + downward + other children.
    void outside_of_children(std::size_t parent);
    const double* exponentials(const Site& site, bool parent_is_row, double& shift);
    void log_sum_message(const Site& site, bool upward, const double* in, double* out);

    double* row(std::vector<double>& array, std::size_t position) { return array.data() + position * k_; }
    Pointer* row(std::vector<Pointer>& array, std::size_t position) { return array.data() + position * k_; }

    std::size_t n_ = 0, k_ = 0;
    Tables tables_;
    const std::int32_t* given_ = nullptr;
    const double* shared_table_ = nullptr;              // the table that shared_transposed_ was made from
    std::shared_ptr<std::vector<Site>> order_;
    std::vector<std::size_t> roots_;                    // positions
    std::vector<double> unary_, up_, message_, down_, outside_, suffix_;
    std::vector<Pointer> up_pointer_, down_pointer_;
    std::vector<double> shared_transposed_, transposed_, scaled_;
    std::vector<double> exponentials_, shared_exponentials_, shared_exponentials_transposed_;
    double exponentials_range_ = 0, exponentials_shift_ = 0;
    std::vector<std::int64_t> argument_;
    std::vector<std::int32_t> free_;                    // free labels in order
    std::vector<std::int32_t> adjacency_first_, adjacency_, position_;
};

}  // namespace perturbmap
