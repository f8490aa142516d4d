// The n best labellings of a rooted forest, best first.
//
// Problem.    The n labellings of the highest scores f(y), f being that of tree_dp.hpp; all of them where there are fewer.
// Fact.       Let m_p(a) be the best that the subtree of p and the edge above it add where the parent has label a. Then
//             max f - f(y) = sum_p d_p(a, b) with d_p(a, b) = m_p(a) - T_p(a, b) - up_p(b) >= 0, a and b being the labels
//             of p's parent and of p: each site adds what its label costs beside the best one under its parent's. It is a
//             deviation where it is not that one.
// Method.     Every labelling but the best comes from exactly one other, by one deviation at a position after those of its
//             deviations; all positions after that follow the pointers of the maximum again. So one search finds all, the
//             least cost first: a labelling that is found brings forth its cheapest deviation at each later position, and
//             the next cheapest at the position of its own last one. Of the candidates, no more are kept than labellings
//             are still to be found.
// Cost.       O(edges * K^2) for the pointers; O(sites) for each labelling, and O(K) for each label of each site that one
//             of them has.
// Order.      By the sum of the costs, so that scores may descend but for rounding; the first is that of tree_dp.hpp.
// Reference.  Lawler, A procedure for computing the K best solutions to discrete optimization problems, Management Science
//             1972; Eppstein, Finding the k shortest paths, SIAM Journal on Computing 1998 (the costs of deviations);
//             Nilsson, An efficient algorithm for finding the M most probable configurations, Statistics and Computing 1998.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "tree_dp.hpp"

namespace perturbmap {

// Solves one example of a batch after another; the batch must outlive it and must not change.
class TreeBest {
   public:
    explicit TreeBest(const Batch& batch) : dp_(batch) {}

    // Writes n rows of labels and n scores, row r at r times its stride; -1 and -inf after the last labelling.
    void run(std::size_t copy, std::size_t example, std::size_t n, std::int32_t* labels, std::size_t label_stride,
             double* values, std::size_t value_stride);

    // Nanoseconds for n labellings of all examples, one copy, as in solvers.hpp. Measured for chains of 50 sites: for each
    // site and labelling 25 to 40 ns, besides the maximum.
    static double work(const Batch& batch, std::size_t n);

   private:
    struct Deviation {
        double cost;
        std::int32_t label;  // -1 where there is none
    };
    struct Candidate {
        double cost;        // of the whole labelling
        std::size_t from;   // the labelling that it deviates from
        std::size_t position;
        Deviation deviation;
        bool operator<(const Candidate& other) const;
    };

    // The label of p's parent in a labelling that was found; zero for a root.
    std::size_t label_above(std::size_t found, std::size_t position) const;
    // The cheapest deviation at a position, under a label of its parent, that comes after another.
    Deviation next(std::size_t position, std::size_t above, Deviation after) const;
    // The same after none; computed once.
    const Deviation& first(std::size_t position, std::size_t above);
    void propose(const Candidate& candidate, std::size_t n_wanted);
    void propose_deviations(std::size_t found, std::size_t n_wanted);
    void find(const Candidate& candidate);
    const std::int32_t* labels_of(std::size_t found) const { return labels_.data() + found * dp_.forest().n_sites(); }

    TreeDP dp_;
    std::vector<std::int32_t> labels_;    // those that were found, by position
    std::vector<double> costs_;           // of each
    std::vector<std::size_t> positions_;  // after the last deviation of each
    std::vector<Candidate> heap_;
    double limit_ = 0;                    // what a candidate may cost
    std::vector<Deviation> first_;
};

}  // namespace perturbmap
