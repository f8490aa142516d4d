// Sums over the labellings of a rooted forest, on logarithms: for any potentials that are finite or -inf, and slower.
//
// Sum.      The sweeps of tree_dp.hpp with log-sum-exp for max; messages are shifted to have their maximum at zero.
// Pinned    sums, log sum { exp f(y) : y_d = k }, are read off the messages; for their moments, the marginals given
// sums.     y_d = k, push_weights.hpp has the method.
// Forbidden labels and pairs have the potential -inf. Where no labelling is left, log Z is -inf, and nothing else counts.
// Cost.     O(edges * K^2), with an exponential for each entry of each table.
#pragma once

#include <cstddef>
#include <vector>

#include "forest.hpp"

namespace perturbmap {

// The sums of the example that the forest has selected.
class LogSums {
   public:
    // The forest must outlive the sums.
    explicit LogSums(Forest& forest) : forest_(forest) {}

    // Both sweeps. The rest is for the example of the last sweep; after the first of both alone, from the leaves to the
    // roots, the next two.
    void sweep(const double* unary);
    void upward(const double* unary);

    double log_partition() const { return total_; }
    // The probabilities of the labels at a position given that of its parent, or of those of a root; and of those at any
    // position. They are valid until the next call.
    Distribution given_parent(std::size_t position, std::size_t above);
    Distribution marginal(std::size_t position);
    // Times a weight: writes `unary`, adds to `pairwise`.
    void marginals(double weight, double* unary, double* pairwise, std::size_t stride);
    void pinned_values(double* values);
    // As marginals(), for the weighted sum of the distributions pinned at (d, k).
    void pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride);

   private:
    double* row(std::vector<double>& array, std::size_t position) { return array.data() + position * forest_.n_labels(); }
    // Writes the distribution proportional to exp(a + b) to probability_; returns the logarithm of its sum. Where all is
    // -inf, so is that, and the probabilities are zeros.
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

}  // namespace perturbmap
