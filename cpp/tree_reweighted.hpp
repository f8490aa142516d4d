// An upper bound on the maximum of any pairwise function, and a labelling to begin with: sequential tree-reweighted messages.
//
// Problem.    max_y sum_d u_d(y_d) + sum_e T_e(y_i, y_j), any graph, any tables, K labels.
// Method.     The graph is covered by chains that ascend in the order of the sites; messages move potentials about so that
//             the sum of the chains' maxima, which is never less than the maximum, falls. A pass goes through the sites in
//             ascending, then in descending order. With it, labels are read off site by site, given those before.
// Bound.      It does not rise from pass to pass. A labelling whose score equals it is a maximiser.
// Cost.       O(edges * K^2) a pass.
// Reference.  Kolmogorov, Convergent tree-reweighted message passing for energy minimization, PAMI 2006.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "neighbours.hpp"

namespace perturbmap {

// Works on one example of a batch after another; the batch must outlive it and must not change.
class TreeReweighted {
   public:
    explicit TreeReweighted(const Batch& batch) : batch_(batch) {}

    void select(std::size_t example, const Neighbours& neighbours);

    // Passes messages until the bound falls by no more than `tolerance` times its size and that of the largest potential, or comes
    // as near to the best score, which is at least `score`; at most `n_passes`. Writes the best labels found, returns the bound.
    double run(const double* unary, int n_passes, double tolerance, double score, std::int32_t* labels);

   private:
    double largest_potential(const double* unary) const;
    double pass_back(const double* unary);
    double pass_forth(const double* unary, std::int32_t* labels);
    bool is_given(std::size_t d) const { return given_ && given_[d] >= 0; }
    // The messages of an edge: the first to its first site.
    double* message_to_us(const Neighbour& from) {
        return messages_.data() + (2 * static_cast<std::size_t>(from.edge) + !from.is_second) * batch_.n_labels;
    }
    double* message_from_us(const Neighbour& to) {
        return messages_.data() + (2 * static_cast<std::size_t>(to.edge) + to.is_second) * batch_.n_labels;
    }
    void gather(std::size_t d, const double* unary);
    double send(std::size_t d, const Neighbour& to);

    const Batch& batch_;
    const Neighbours* neighbours_ = nullptr;
    std::size_t example_ = no_example;
    const std::int32_t* given_ = nullptr;
    std::vector<double> messages_, belief_, share_, weight_, out_, score_;
    std::vector<std::int32_t> labels_;
};

}  // namespace perturbmap
