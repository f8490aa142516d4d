// Moves of many sites at once, over parts of a graph that are forests: any tables, any number of labels.
//
// Problem.    For a labelling y and a set of sites whose edges among themselves close no cycle: the best labelling that
//             differs from y in this set alone; and the best for each label pinned at each of its sites.
// Method.     The sites are shared out to such sets, site after site: it joins the first set in which it closes no cycle.
//             Once in ascending and once in descending order of the sites. Each set is an example of a batch of forests
//             (tree_dp.hpp), whose unary potentials have what the neighbours outside add.
// Cost.       O(edges * K^2) for all moves of one order; O(edges * K) where all tables are Potts.
// Reference.  Hamze and de Freitas, From fields to trees, UAI 2004 (the same sets, for sampling).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "batch.hpp"
#include "neighbours.hpp"
#include "tree_dp.hpp"

namespace perturbmap {

// The sets of an example, and which of its sites and edges are whose.
struct ForestSets {
    std::vector<std::int32_t> sites;         // of the example, set by set
    std::vector<std::int32_t> edges;         // (edges inside a set, 2): positions in `sites`
    std::vector<std::int32_t> edge_numbers;  // of the example, set by set
    std::vector<std::int64_t> site_offsets, edge_offsets;
    std::size_t size() const { return site_offsets.size() - 1; }
};

// Moves labellings of one example of a batch after another; the batch must outlive it and must not change.
class ForestMoves {
   public:
    explicit ForestMoves(const Batch& batch) : batch_(batch) {}

    // `weights` are those of its edges where all tables are Potts (potts.hpp), and empty elsewhere.
    void select(std::size_t example, const Neighbours& neighbours, const std::vector<double>& weights);
    // The sets of the ascending order come first; there are so many.
    std::size_t n_ascending() const { return n_ascending_; }
    std::shared_ptr<const ForestSets> sets() const { return sets_; }

    // Moves `labels` to the best labelling of the set, if it is better; then their score rises from `score`.
    bool improve(const double* unary, std::size_t set, std::int32_t* labels, double& score);

    // As in fusion.hpp, for all pins of the sites of the set; `source` gets `number`.
    void pin(const double* unary, std::size_t set, const std::int32_t* labels, double score, const std::uint8_t* wanted,
             double* values, std::int32_t* source, std::int32_t number, TreePins* pins);

   private:
    void add_sets(bool descending);
    void load(const double* unary, std::size_t set, const std::int32_t* labels);

    const Batch& batch_;
    const Neighbours* neighbours_ = nullptr;
    const std::vector<double>* weights_ = nullptr;
    std::size_t example_ = no_example;
    std::shared_ptr<ForestSets> sets_;
    std::size_t n_ascending_ = 0;
    Batch view_;
    std::unique_ptr<TreeDP> tree_;
    std::vector<double> unary_, tables_, inside_weights_, values_;
    std::vector<std::int32_t> set_of_, root_, labels_, old_, moved_;
};

}  // namespace perturbmap
