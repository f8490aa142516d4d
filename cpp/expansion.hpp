// Expansion moves where all tables are Potts (potts.hpp): most sites are left out before the cut.
//
// Problem.    For a labelling y and a label k, the best of the labellings in which some sites have taken k (fusion.hpp, of
//             which this is the common case).
// Facts.      (1) What site d gains by taking k,
//                     u[d,k] - u[d,y_d] + sum_j w_dj ([z_j == k] - [z_j == y_d]),
//             z being the labels of its neighbours, only grows with each neighbour that takes k too. So a site that
//             gains nothing, even if every site that may still take k does so, takes it in no best move: it is left out,
//             and what its neighbours can gain falls. The least maximiser of the cut is among the sites that remain.
//             (2) Whatever the labels, the sum is at most that of the weights: one comparison leaves out many sites.
// Method.     Sites are left out in sweeps until hardly any go; then a minimum cut decides among those that remain. On
//             planar graphs of 150 sites with 21 labels (benchmarks/graphs.py), a tenth of the sites do.
// Cost.       O(edges) for a sweep, without a look at the tables, and one maximum flow on the sites that remain.
// References. Boykov, Veksler and Zabih, Fast approximate energy minimization via graph cuts, PAMI 2001; Kovtun, Partial
//             optimal labeling search for a NP-hard subclass of (max,+) problems, DAGM 2003 (sites decided before a cut).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "max_flow.hpp"
#include "potts.hpp"

namespace perturbmap {

// Moves labellings of one example of a batch after another; the batch must outlive it and must not change.
class Expansion {
   public:
    explicit Expansion(const Batch& batch) : batch_(batch) {}

    // Makes this the example whose labellings are moved; its edges, no two of which join the same sites, must outlive it.
    void select(std::size_t example, const PottsEdges& edges);

    // Moves `labels` to the best labelling in which sites have taken the label, if it is better; then their score rises
    // from `score`. `unary` is the example's own.
    bool improve(const double* unary, std::size_t label, std::int32_t* labels, double& score);

   private:
    void propose(const double* unary, std::int32_t label, const std::int32_t* labels);
    void leave_out(std::int32_t label, const std::int32_t* labels);
    void load(std::int32_t label, const std::int32_t* labels);

    const Batch& batch_;
    const PottsEdges* edges_ = nullptr;
    std::size_t example_ = no_example;
    std::vector<double> total_;          // of the weights of each site's edges
    std::vector<double> gain_;           // of each site in its unary potentials
    std::vector<std::int32_t> proposal_; // the labels if all sites that remain take the label: z
    std::vector<std::int32_t> remain_;   // those sites, ascending
    std::vector<std::int32_t> number_;   // of a site among them
    MaxFlow flow_;
    std::vector<double> cut_unary_, capacities_;  // of the cut: 0 keeps the label, 1 takes the other
    std::vector<std::int32_t> cut_edges_;
};

}  // namespace perturbmap
