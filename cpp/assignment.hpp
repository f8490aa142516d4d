// Assignment of n sites to n of L >= n labels, each label used at most once; and all its pinned versions.
//
// Problem.  maximise sum_d u[d, y_d] over injective y.
// Method.   Shortest augmenting paths with prices: costs c = -u, reduced costs c[d,k] - row_d - column_k
//           are >= 0, and = 0 where y_d = k; column prices are <= 0, and = 0 where the label is unused.
// Pins.     To give d the label k of another site r, r must take another label, whose owner must take
//           another, and so on, until one takes the label that d left. (The unused labels count as those of
//           one more site, which has no preferences.) The cheapest such chain is a shortest path in reduced
//           costs: one Dijkstra run for each d, over the sites, gives the pinned values for all k, and its
//           tree the pinned maximisers.
// Masks.    A site without a wanted pin, or with none but the free maximiser's, needs no run. A run ends as
//           soon as it has reached the owners of all labels that are wanted at d.
// Cost.     O(n^2 L) for the maximum, O(n^3 + n^2 L) for all n L pins.
// Ties.     Unspecified, but always the same.
// Reference. Jonker and Volgenant, A shortest augmenting path algorithm for dense and sparse linear
//           assignment problems, Computing 1987.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perturbmap {

// One example. `given` (or null) has for each site its label or -1; the given labels are distinct.
struct AssignmentProblem {
    const double* unary;  // (n_sites, n_labels)
    std::size_t n_sites, n_labels;
    const std::int32_t* given;
};

// The maximisers of all wanted pins, as the chains of label changes that each pin sets off.
struct AssignmentPins {
    std::size_t n_sites, n_labels;
    std::vector<std::int32_t> labels, owner;  // of the free maximiser; owner of an unused label: n_sites
    std::vector<std::size_t> order_begin;     // for every site d, where its part of the next two begins:
    std::vector<std::int32_t> order;          // the other sites by the length of their chain, as far as wanted ...
    std::vector<std::int32_t> next_label;     // ... and the label that each then takes

    // Adds sum_{d,k} weights[d,k] * indicators of the maximiser pinned at (d, k) to `moments`. The weights of pins
    // that were not wanted are zero.
    void add_moments(const double* weights, double* moments) const;
};

// Solves one problem after another; nothing but memory is kept from one to the next.
class Assignment {
   public:
    // Writes the labels of the maximum; returns their score. Where the labels that are not forbidden (-inf) leave no
    // matching, the score is -inf, and nothing is written; then pins have no maximisers either.
    double maximise(const AssignmentProblem& problem, std::int32_t* labels);

    // Writes also the pinned values (n_sites, n_labels) that pin_values.hpp defines, for the mask `wanted` of the same
    // shape or for all where it is null; and the maximisers to `pins`, unless that is null.
    void pin(const AssignmentProblem& problem, const std::uint8_t* wanted, std::int32_t* labels, double* values,
             AssignmentPins* pins);

   private:
    double reduced(std::size_t row, std::size_t column) const;
    // The site that has a label; n_ for an unused one.
    std::size_t owner(std::size_t label) const {
        return owner_[label] < 0 ? n_ : static_cast<std::size_t>(owner_[label]);
    }
    bool augment(std::size_t row);
    void find_unused();
    std::size_t find_targets(std::size_t d, const std::uint8_t* wanted);
    void shortest_chains(std::size_t d, std::size_t n_targets);

    const double* unary_ = nullptr;
    std::size_t n_ = 0, k_ = 0;
    std::vector<std::int32_t> labels_, owner_;           // owner_ of a label: a site or -1
    std::vector<std::int32_t> rows_, columns_;           // the sites and labels that are not given
    std::vector<double> row_price_, column_price_;
    std::vector<double> distance_;                       // of each label (augment) or site (chains)
    std::vector<std::int32_t> previous_, order_, next_label_;
    std::vector<std::uint8_t> done_, is_target_;
    std::vector<std::int32_t> best_unused_;              // for each site, the unused label it likes best
    std::vector<std::int32_t> chain_sites_;              // rows_, and n_ if there are unused labels
};

}  // namespace perturbmap
