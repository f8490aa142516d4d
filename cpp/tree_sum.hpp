// Sums over the labellings of a rooted forest: log-partition, marginals, and both for all pins.
//
// Problem.  A = log sum_y exp f(y), its gradient, the marginals; the same sums over the labellings with y_d = k, for all
//           (d, k); and weighted sums of the marginals of those. f is that of tree_dp.hpp.
// Method.   On exponentials (scaled_sums.hpp) where that is safe, else on logarithms (log_sums.hpp).
// Cost.     O(edges * K^2) for each call.
// Reference. Pearl, Probabilistic Reasoning in Intelligent Systems, 1988, chapter 4 (the sweeps); Rabiner, A tutorial
//           on hidden Markov models, Proceedings of the IEEE 1989, section V (the scaling).
#pragma once

#include <cstddef>

#include "batch.hpp"
#include "forest.hpp"
#include "log_sums.hpp"
#include "scaled_sums.hpp"

namespace perturbmap {

// Sums one example of a batch after another; the batch must outlive it and must not change.
class TreeSum {
   public:
    explicit TreeSum(const Batch& batch) : forest_(batch), scaled_(forest_), log_(forest_) {}
    TreeSum(const TreeSum&) = delete;
    TreeSum& operator=(const TreeSum&) = delete;

    // log sum_y exp f(y). The marginals, times a weight, are written to `unary_marginals` and added to `pairwise`.
    double sum(std::size_t copy, std::size_t example, double weight, double* unary_marginals, double* pairwise,
               std::size_t stride);
    // log sum { exp f(y) : y_d = k } for all (d, k); -inf where a given label forbids it.
    void pinned_values(std::size_t copy, std::size_t example, double* values);
    // sum_{d,k} weights[d,k] * marginals given y_d = k.
    void pinned_moments(std::size_t copy, std::size_t example, const double* weights, double* unary_moments,
                        double* pairwise, std::size_t stride);
    // Where all edges share one table, part of what belongs to it is kept back, and added only here.
    void add_shared(double* table) { scaled_.add_shared(table); }

    // Nanoseconds for one call for all examples, one copy, as in solvers.hpp. Measured for chains with a shared table: for
    // each site 100 to 160 ns with K = 2, 340 to 670 with K = 26, 4,400 to 16,000 with K = 120. Where each edge has a
    // table of its own, the exponentials of the tables are most of the work: 170 to 230, 3,600 to 4,600, 55,000 to
    // 290,000. The fit is within a factor of 4 of all.
    static double work(const Batch& batch) {
        const double k = static_cast<double>(batch.n_labels);
        return static_cast<double>(batch.n_sites) * (100 + (batch.tables.are_shared() ? 0.5 : 5.5) * k * k);
    }

   private:
    // Selects the example; returns the unary potentials of its copy.
    const double* select(std::size_t copy, std::size_t example);

    Forest forest_;
    ScaledSums scaled_;
    LogSums log_;
};

}  // namespace perturbmap
