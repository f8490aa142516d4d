// High scores on any graph with any tables: fusion moves and forest moves, until none of them improves.
//
// Problem.    max_y f(y), and for all sites and labels max { f(y) : y_d = k }, where both are hard. What is found are
//             labellings with their scores, from below; tree_reweighted.hpp bounds them from above.
// Method.     From the best label of each site alone, forests are solved once, set after set. Then come expansions, label
//             after label, and forests again, until a whole round improves nothing. Where an expansion has to be truncated,
//             the other proposals and sets take part, and labels read off tree-reweighted messages are a second start, of
//             which the better end is taken.
// Potts.      Where all tables are (potts.hpp), expansions are those of expansion.hpp, their pins those of
//             pinned_expansions.hpp, and no table is truncated.
// Pins.       At the labelling found, every pin is estimated by the proposals of its label and by the forests of its
//             site; the best is taken. None is higher than the free labelling, which all of them failed to improve.
// Effort.     Where it is not exact, what was found can be shaken: a random part of the graph gets random labels, and if
//             the climb from there ends higher, that is taken. The score never falls with the effort.
// Exact.      For two labels that attract each other (fusion.hpp), and for forests.
// Ties.       The first labelling that was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "batch.hpp"
#include "cut_pins.hpp"
#include "expansion.hpp"
#include "fusion.hpp"
#include "forest_moves.hpp"
#include "neighbours.hpp"
#include "pinned_expansions.hpp"
#include "potts.hpp"
#include "tree_reweighted.hpp"

namespace perturbmap {

// The maximisers of the wanted pins, by where they come from.
struct SearchPins {
    std::vector<std::int32_t> free;
    std::vector<std::int32_t> source;  // (n_sites, K): the number of a proposal or, after all of them, of a set
    std::vector<CutPins> fusions;      // of each proposal
    std::vector<TreePins> forests;     // of each set
    std::shared_ptr<const ForestSets> sets;

    static constexpr std::int32_t nowhere = -1;  // the source of a pin that has no maximiser, or the free one

    // Adds sum_{d,k} weights[d,k] * indicators of the maximiser pinned at (d, k) to `unary` (n_sites, K) and to the
    // tables of `pairwise`.
    void add_moments(const Batch& batch, std::size_t example, const double* weights, double* unary, double* pairwise,
                     std::size_t stride) const;

   private:
    // Of the pins of one proposal, and of one set: what they take from the free labels and give to others.
    void add_fusion(const Batch& batch, std::size_t example, std::size_t proposal, const double* weights, double* unary,
                    double* pairwise, std::size_t stride) const;
    void add_forest(const Batch& batch, std::size_t example, std::size_t set, const double* weights, double* unary,
                    double* pairwise, std::size_t stride) const;
    std::size_t label_of(std::size_t d) const { return static_cast<std::size_t>(free[d]); }
};

// The work space of one thread: see solvers.hpp.
class GraphSearch {
   public:
    using Pins = SearchPins;

    // `effort` is how often it climbs, at most: from the starts, then from what was found, shaken.
    GraphSearch(const Batch& batch, int effort)
        : batch_(batch), effort_(effort), fusion_(batch), expansion_(batch), pinned_expansions_(batch), forests_(batch),
          messages_(batch) {}

    double maximise(std::size_t copy, std::size_t example, std::int32_t* labels);
    void pin(std::size_t copy, std::size_t example, const std::uint8_t* wanted, std::int32_t* labels, double* values,
             Pins* pins);
    // An upper bound on the maximum, whose score is at least `score`.
    double bound(std::size_t copy, std::size_t example, double score);

    static void add_moments(const Pins& pins, const Batch& batch, std::size_t example, const double* weights, double* out,
                            double* tables, std::size_t stride) {
        pins.add_moments(batch, example, weights, out, tables, stride);
    }
    static double work(const Batch& batch, int effort);

   private:
    void select(std::size_t example);
    double climb(const double* unary, std::int32_t* labels);
    bool fuse(const double* unary, std::size_t proposal, std::int32_t* labels, double& score);
    void use_everything();
    void shake(const double* unary, std::uint32_t number, std::int32_t* labels);

    const Batch& batch_;
    int effort_;
    std::size_t example_ = no_example;
    std::size_t n_proposals_ = 0, n_sets_ = 0;  // in use; all, where tables have been truncated
    Neighbours neighbours_;
    std::vector<double> weights_;  // of the edges, where all tables are Potts; empty elsewhere
    Fusion fusion_;
    PottsEdges potts_;
    Expansion expansion_;
    PinnedExpansions pinned_expansions_;
    ForestMoves forests_;
    TreeReweighted messages_;
    std::vector<std::int32_t> other_, source_, part_;
    std::vector<std::uint8_t> is_in_part_;
};

}  // namespace perturbmap
