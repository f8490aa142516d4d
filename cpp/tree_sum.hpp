// Sums over the labellings of a rooted forest: log-partition, marginals, and both for all pins.
//
// Sum.      The sweeps of tree_dp.hpp with sum for max, on exponentials: each factor, and each message, is scaled to be
//           at most one, and the scales are kept. Where that could lose something - tables of a wide range,
//           hundreds of children that disagree - the sweeps are repeated with logarithms.
// Pinned    sums, log sum { exp f(y) : y_d = k }, are read off the messages. For the moments, the marginals given
// sums.     y_d = k, weights are pushed outwards from their pins, along P(parent | child) and P(child | parent): what
//           lies beyond an edge depends on a pin only through the label at its end.
// Cost.     O(edges * K^2).
#pragma once

#include <cstddef>
#include <vector>

#include "forest.hpp"

namespace perturbmap {

// Sums on exponentials. All rows are padded with zeros to a multiple of a vector's length.
class ScaledSums {
   public:
    explicit ScaledSums(const Forest& forest) : forest_(forest) {}

    // After a change of the forest.
    void load();
    // Both sweeps; false where numbers may be lost, and nothing below may be called.
    bool sweep(const double* unary);

    double log_partition() const { return total_; }
    // Times a weight: writes `unary`, adds to `pairwise`, at once or if all edges share their table, with the next add_shared().
    void marginals(double weight, double* unary, double* pairwise, std::size_t stride);
    // Writes the pinned sums; false where one is so small that it may be lost.
    bool pinned_values(const double* unary, double* values);
    // As marginals(), for the weighted sum of the distributions pinned at (d, k).
    void pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride);
    // Adds to `table` what marginals() and pinned_moments() have kept back, of any number of examples.
    void add_shared(double* table);

   private:
    double* row(std::vector<double>& array, std::size_t position) { return array.data() + position * width_; }
    const double* table(const TreeSite& site, bool parent_is_row) const;
    // The product of the messages of the children.
    const double* inside(std::size_t position);
    bool downward_from(std::size_t position);
    void add_pair(const TreeSite& site, const double* parent, const double* child, double weight, double* pairwise,
                  std::size_t stride);
    void add_kept();

    const Forest& forest_;
    std::size_t k_ = 0, width_ = 0;
    bool is_safe_ = false;
    double total_ = 0;
    std::vector<double> ones_, scratch_, suffix_, ratio_, mass_, sent_;
    std::vector<double> unary_, unary_top_, up_, message_, inside_, down_, outside_;
    // exp(table - its maximum) as stored and transposed; of each edge, or of all.
    const double* shared_table_ = nullptr;
    std::vector<double> table_, table_transposed_, table_top_;
    // Pairs of rows whose outer products are still to be added up, and the sum so far.
    std::size_t n_kept_ = 0;
    std::vector<double> kept_left_, kept_right_, shared_sum_;
};

// The same sums on logarithms: for any finite potentials, and slower.
class LogSums {
   public:
    explicit LogSums(Forest& forest) : forest_(forest) {}

    void sweep(const double* unary);

    double log_partition() const { return total_; }
    void marginals(double weight, double* unary, double* pairwise, std::size_t stride);
    void pinned_values(double* values);
    void pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride);

   private:
    double* row(std::vector<double>& array, std::size_t position) { return array.data() + position * forest_.n_labels(); }
    // Writes the distribution proportional to exp(a + b) to probability_; returns the logarithm of its sum.
    double distribution(const double* a, const double* b);
    // Writes a message with its maximum at zero; returns what was its maximum.
    double message(const TreeSite& site, bool upward, const double* in, double* out);
    // Adds weights of labels of the lower (or upper) end of an edge, times the distribution of the other end given
    // them, to `out` and to the edge's table.
    void push(std::size_t position, bool upward, const double* weights, double* out, double* pairwise, std::size_t stride);

    Forest& forest_;
    double total_ = 0;
    std::vector<double> unary_, up_, message_, down_, outside_;
    std::vector<double> argument_, probability_, mass_, sent_;
};

// Sums of one example after another: scaled where that is safe, else with logarithms.
class TreeSum {
   public:
    Forest forest;  // the example; load() after each change

    TreeSum() = default;
    TreeSum(const TreeSum&) = delete;
    TreeSum& operator=(const TreeSum&) = delete;

    void load() { scaled_.load(); }
    // log sum_y exp f(y). The marginals, times a weight, are written to `unary_marginals` and added to `pairwise`.
    double sum(const double* unary, double weight, double* unary_marginals, double* pairwise, std::size_t stride);
    // log sum { exp f(y) : y_d = k } for all (d, k); -inf where a given label forbids it.
    void pinned_values(const double* unary, double* values);
    // sum_{d,k} weights[d,k] * marginals given y_d = k.
    void pinned_moments(const double* unary, const double* weights, double* unary_moments, double* pairwise,
                        std::size_t stride);
    // Of examples that share one table, part of what belongs to it is added only here.
    void add_shared(double* table) { scaled_.add_shared(table); }

   private:
    ScaledSums scaled_{forest};
    LogSums log_{forest};
};

}  // namespace perturbmap
