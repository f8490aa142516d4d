// Fusion moves: every site keeps its label or takes the one that is proposed to it, all together, by one minimum cut.
//
// Problem.    For a labelling y and a proposal p, the best of the 2^n labellings in which some sites have taken p_d; and,
//             for every site d, the best of those in which d has.
// Proposals.  The label k for all sites (an expansion): where labels attract each other. And y_d + s, modulo the number of
//             labels: where they repel each other, since labels that differ go on to differ.
// Method.     A binary problem, label 1 being the proposal (max_flow.hpp), and its pinned cuts (pinned_cuts.hpp).
// Fact.       If no proposal improves y, then y with p in S_d, the pinned cut of d, is an estimate from below of the best
//             labelling with the label p_d at d. With two labels that attract each other, both are exact.
// Truncation. The cut needs T(a, b) + T(p, q) >= T(p, b) + T(a, q) for the labels a, b of an edge and those proposed, p, q.
//             Where a table has it not, T(p, b) and T(a, q) are lowered until it has: the move is then judged too low,
//             never too high, so that what the cut finds is an improvement. Its true score is what counts.
// Forbidden.  A site does not move to a label whose unary potential is -inf; its own is never one.
// Cost.       One maximum flow a move.
// References. Boykov, Veksler and Zabih, Fast approximate energy minimization via graph cuts, PAMI 2001; Rother et al.,
//             Digital tapestry, CVPR 2005 (truncation); Lempitsky et al., Fusion moves for Markov random field
//             optimization, PAMI 2010.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "cut_pins.hpp"
#include "max_flow.hpp"
#include "neighbours.hpp"
#include "pinned_cuts.hpp"

namespace perturbmap {

// Moves labellings of one example of a batch after another; the batch must outlive it and must not change.
class Fusion {
   public:
    explicit Fusion(const Batch& batch) : batch_(batch) {}

    // Makes this the example whose labellings are moved; no two of its edges join the same sites.
    void select(std::size_t example, const Neighbours& neighbours);

    // Proposals are numbered: labels for all, of which there are K, then steps from the present label, K - 1.
    static std::size_t n_proposals(std::size_t n_labels) { return 2 * n_labels - 1; }
    static std::size_t proposed(std::size_t proposal, std::size_t label, std::size_t n_labels) {
        return proposal < n_labels ? proposal : (label + proposal - n_labels + 1) % n_labels;
    }

    // Moves `labels` to a better labelling, if one is found; then their score rises from `score`. `unary` is the
    // example's own.
    bool improve(const double* unary, std::size_t proposal, std::int32_t* labels, double& score);

    // For labels that the proposal does not improve: writes the values of the pins that it makes into `values`
    // (n_sites, K), where they are more than what is there, and the number of the proposal into `source`. Those that are
    // not wanted (a mask, or null for all) and those of sites that have the label, or another given one, are left alone.
    void pin(const double* unary, std::size_t proposal, const std::int32_t* labels, double score,
             const std::uint8_t* wanted, double* values, std::int32_t* source, CutPins* pins);

    // Whether the last move that was looked at had a table that was truncated.
    bool is_truncated() const { return is_truncated_; }

   private:
    void load(const double* unary, std::size_t proposal, const std::int32_t* labels);
    bool cut(const std::int32_t* labels);
    bool cut_keeping(const std::int32_t* labels);
    bool take(const double* unary, std::int32_t* labels, double& score);
    double gain(const double* unary, const std::int32_t* labels, const std::int32_t* first, const std::int32_t* last);
    void find_gains(const double* unary, const std::int32_t* labels, const std::uint8_t* wanted, bool is_exact);

    const Batch& batch_;
    const Neighbours* neighbours_ = nullptr;
    std::size_t example_ = no_example;
    bool is_truncated_ = false;
    MaxFlow flow_;
    PinnedCuts cuts_;
    CutPins pins_;
    std::vector<double> unary_, tables_;           // of the binary problem
    std::vector<double> gain_;                     // of each set of pins_
    std::vector<std::int32_t> proposal_, moved_;   // what each site would take; the labels with what the cut takes
    std::vector<std::int32_t> held_;               // 0: the site keeps its label; -1: it may move
    std::vector<std::uint8_t> is_member_, wanted_sites_;
};

}  // namespace perturbmap
