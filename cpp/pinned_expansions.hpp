// The pins of expansion moves where all tables are Potts (potts.hpp): few sites take a label because another one does.
//
// Problem.    For a labelling y that no expansion improves (expansion.hpp), every site d and every label k: the best of the
//             labellings in which d and some other sites, together S_d, have taken k.
// Facts.      (1) What it costs that the sites S take k is
//                     F(S) = sum of the losses of S - sum of b_ij over edges inside S,
//             the loss of a site being what it costs that it alone does, and b_ij = w_ij (1 + [y_i == y_j]). No F(S) is
//             below zero.
//             (2) A site of S_d other than d gains by being in it: its loss is less than the sum of its b to the sites
//             of S_d. So a site whose loss is not less than the sum of its b to all sites that may follow others, and to
//             one more, which is d, follows no other site: it may be left out of those, and then others may be.
//             (3) So S_d is d and sites that follow. Their minimum cut, and its pins, are those of a graph without the
//             rest; the pin of any other site is a flow into that graph, which no other pin meets (pinned_cuts.hpp).
// Method.     Losses, and sweeps that leave sites out, for all labels at once, until hardly any go; then label by label a
//             cut of the sites that remain, and flows. On planar graphs of 150 sites with 21 labels (benchmarks/graphs.py),
//             half of the sites remain; the weaker the coupling, the fewer.
// Cost.       O(edges * K) for a sweep; for each label one maximum flow on the sites that remain, and one for each pin.
// Rounding.   Where rounding has the cut say that sites should move, losses are raised, by as little as will do beside the
//             largest number of the cut: gaps are too large by no more than that for each site that flips.
// Memory.     24 bytes for each site and label.
// Reference.  As in expansion.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "cut_pins.hpp"
#include "max_flow.hpp"
#include "pinned_cuts.hpp"
#include "potts.hpp"

namespace perturbmap {

// Works on one labelling of one example of a batch after another; the batch must outlive it and must not change.
class PinnedExpansions {
   public:
    explicit PinnedExpansions(const Batch& batch) : batch_(batch) {}

    // Makes this the example; its edges, no two of which join the same sites, must outlive it.
    void select(std::size_t example, const PottsEdges& edges);

    // Makes these the labels, which no expansion improves; they must outlive it too. `unary` is the example's own.
    void set_labels(const double* unary, const std::int32_t* labels);

    // The pins of one label, as those of a proposal in fusion.hpp.
    void pin(std::size_t label, double score, const std::uint8_t* wanted, double* values, std::int32_t* source, CutPins* pins);

   private:
    void find_losses(const double* unary);
    void find_followers();
    void number_followers(std::size_t label);
    void load(std::size_t label);
    void solve();
    double settle_outside(std::size_t site, double loss);
    void keep(CutPins& pins, std::size_t n_followers) const;

    // The edges of a site, with b for their weights.
    PottsEdges::Range together_of(std::size_t d) const {
        const PottsEdges::Range own = edges_->of(d), all = edges_->of(0);
        return {together_.data() + (own.first - all.first), together_.data() + (own.last - all.first)};
    }

    const Batch& batch_;
    const PottsEdges* edges_ = nullptr;
    const std::int32_t* labels_ = nullptr;
    std::size_t example_ = no_example;
    std::vector<PottsEdges::Edge> together_;  // the edges of all sites, with b for their weights
    // By site and label: the loss, infinite where the site cannot take the label, or has it; whether it can (1, else 0);
    // whether it may follow others.
    std::vector<double> loss_, may_take_, follows_;
    std::vector<double> sums_;                // of one site, by label

    // Of one label:
    std::vector<std::int32_t> sites_;         // those that may follow, ascending, then the others that have pins
    std::vector<std::int32_t> number_;        // of a site among those that may follow; -1 elsewhere
    std::vector<double> slack_;               // what such a site still loses if all its neighbours among them take the
                                              // label; infinite elsewhere
    std::vector<std::uint8_t> takes_along_;   // whether a neighbour of the site may follow it
    std::vector<std::uint8_t> wanted_, wanted_followers_;
    std::vector<double> cut_unary_, capacities_;  // 0 keeps the label, 1 takes the other
    std::vector<std::int32_t> cut_edges_;
    std::size_t n_cut_edges_ = 0;
    std::vector<PinnedCuts::Link> links_;
    MaxFlow flow_;
    PinnedCuts cuts_;
};

}  // namespace perturbmap
