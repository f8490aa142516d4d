// Sums over the labellings of a rooted forest, on exponentials: fast, for potentials of a moderate range.
//
// Sum.      The sweeps of tree_dp.hpp with sum for max and product for sum. Each factor and each message is scaled to
//           be at most one, and the logarithms of the scales are added up.
// Range.    sweep() says where that could lose something: tables of a wide range, or hundreds of children that
//           disagree. log_sums.hpp then has the same sums for any potentials.
// Forbidden labels and pairs have the potential -inf, and are zeros. Where pairs are, a zero must mean that something is
//           impossible, never that it was lost: then sweep() is also false where another number of a row becomes small.
// Pinned    sums, log sum { exp f(y) : y_d = k }, are read off the messages; for their moments, the marginals given
// sums.     y_d = k, push_weights.hpp has the method.
// Cost.     O(edges * K^2).
// Memory.   Six rows of K numbers for each site; two tables for each edge, or two in all where the edges share one.
#pragma once

#include <cstddef>
#include <vector>

#include "forest.hpp"

namespace perturbmap {

// The sums of the example that the forest has selected. All rows are padded, as padded_rows.hpp says.
class ScaledSums {
   public:
    // The forest must outlive the sums.
    explicit ScaledSums(const Forest& forest);

    // Both sweeps; false where numbers may be lost. What follows is for the example and potentials of the last sweep, and
    // only if it was true; after the first of both alone, from the leaves to the roots, the next two.
    bool sweep(const double* unary) { return upward(unary) && downward(); }
    bool upward(const double* unary);

    double log_partition() const { return total_; }
    // The probabilities of the labels at a position given that of its parent, or of those of a root; and of those at any
    // position. They are valid until the next call.
    Distribution given_parent(std::size_t position, std::size_t above);
    Distribution marginal(std::size_t position);
    // Times a weight: writes `unary`, adds to `pairwise`; if all edges share their table, only add_shared() adds to it.
    void marginals(double weight, double* unary, double* pairwise, std::size_t stride);
    // Writes the pinned sums; false where one is so small that it may be lost.
    bool pinned_values(const double* unary, double* values);
    // As marginals(), for the weighted sum of the distributions pinned at (d, k).
    void pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride);

    // Adds to `table` what marginals() and pinned_moments() have kept back since the last call, for any number of
    // examples.
    void add_shared(double* table);

   private:
    double* row(std::vector<double>& array, std::size_t position) { return array.data() + position * width_; }
    // Tables and work space of the selected example, if it is another than the last.
    void follow_forest();
    void load_tables(const Tables& tables, std::size_t n);
    const double* table(const TreeSite& site, bool parent_is_row) const;
    // The product of the messages of the children.
    const double* inside(std::size_t position);
    bool downward();
    // Whether no number of a row is so small that it may be lost, where a zero must mean that something is impossible.
    bool keeps(const double* numbers) const;
    bool downward_from(std::size_t position);
    void add_pair(const TreeSite& site, const double* parent, const double* child, double weight, double* pairwise,
                  std::size_t stride);
    void add_kept();

    const Forest& forest_;
    const std::size_t k_, width_;
    const bool is_shared_;
    std::size_t example_ = no_example;
    bool is_safe_ = false;        // whether no table has too wide a range
    bool has_forbidden_ = false;  // whether a table forbids pairs
    double total_ = 0;
    std::vector<double> ones_, scratch_, ratio_, suffix_, mass_, sent_;
    std::vector<double> unary_, unary_top_, up_, message_, inside_, down_, outside_;
    // exp(table - its maximum) as stored and transposed: for each edge of the example, or once for the whole batch.
    std::vector<double> table_, table_transposed_, table_top_;
    // Pairs of rows whose outer products are still to be added up, and the sum so far.
    std::size_t n_kept_ = 0;
    std::vector<double> kept_left_, kept_right_, shared_sum_;
};

}  // namespace perturbmap
