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
// Cost.     O(n^2 L) for the maximum, O(n^3 + n^2 L) for all n L pins.
// Ties.     Unspecified, but always the same.
// Reference. Jonker and Volgenant, A shortest augmenting path algorithm for dense and sparse linear
//           assignment problems, Computing 1987.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perturbmap {

// The pinned maximisers, as the chains of label changes that each pin sets off.
struct AssignmentPins {
    std::size_t n_sites, n_labels;
    std::vector<std::int32_t> labels, owner;  // of the free maximiser; owner of an unused label: n_sites
    std::vector<std::int32_t> order;          // for every site d, the others by the length of their chain ...
    std::vector<std::int32_t> next_label;     // ... and the label each then takes; n_sites + 1 a site d
    std::vector<std::size_t> order_begin;

    // Adds sum_{d,k} weights[d,k] * indicators of the maximiser pinned at (d, k) to `moments`.
    void add_moments(const double* weights, double* moments) const;
};

class Assignment {
   public:
    // `given` (or null): a label or -1 a site; the given labels are distinct.
    void solve(const double* unary, std::size_t n_sites, std::size_t n_labels, const std::int32_t* given);

    double value() const { return value_; }
    const std::vector<std::int32_t>& labels() const { return labels_; }

    // Pinned values (n_sites, n_labels) after solve(), -inf where a given label forbids the pin; and the
    // maximisers.
    void pin(double* values, AssignmentPins& pins);

   private:
    double reduced(std::size_t row, std::size_t column) const;
    void augment(std::size_t row);
    void shortest_chains(std::size_t d);

    const double* unary_ = nullptr;
    std::size_t n_ = 0, k_ = 0;
    double value_ = 0;
    std::vector<std::int32_t> labels_, owner_;           // owner_ of a label: a site or -1
    std::vector<std::int32_t> rows_, columns_;           // the sites and labels that are not given
    std::vector<double> row_price_, column_price_;
    std::vector<double> distance_;                       // of each label (augment) or site (chains)
    std::vector<std::int32_t> previous_, order_, next_label_;
    std::vector<std::uint8_t> done_;
    std::vector<std::int32_t> best_unused_;              // for each site, the unused label it likes best
    std::vector<std::int32_t> chain_sites_;              // rows_, and n_ if there are unused labels
};

}  // namespace perturbmap
