// One example of a batch as a rooted forest: what maximisation and sums over trees have in common.
//
// Problem.    Sweeps over a tree need its sites ordered so that parents come before their children, and its tables
//             turned so that the inner loop runs along rows.
// Method.     Breadth-first search from the smallest site of each tree. Chains, which have their order already, are
//             recognised, and one order serves all chains of the same length.
// Lifetime.   A forest belongs to one batch, which must outlive it and must not change. What is kept from one example
//             to the next follows from the batch alone: the transpose of the table that all edges share is made once,
//             by the constructor.
// Cost.       O(sites + edges) for each example that is not a chain; O(edges) to recognise a chain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "batch.hpp"

namespace perturbmap {

// One site of a rooted forest, in breadth-first order from the roots.
struct TreeSite {
    std::int32_t site;
    std::int32_t parent;      // position in this order; -1 for a root
    std::int32_t edge;        // to the parent
    bool parent_is_second;    // the edge is stored as (child, parent)
    std::int32_t first_child, end_child;
};

// Probabilities of the labels of a site, up to a factor: `weights` (n_labels), not negative, and their sum.
struct Distribution {
    const double* weights;
    double sum;
};

// The selected example of a batch: its forest, with tables and given labels. There is no example before select().
class Forest {
   public:
    // What the pointers of tree_dp.hpp can hold.
    static constexpr std::size_t max_labels = 65535;

    // Throws std::invalid_argument if there are more labels than that.
    explicit Forest(const Batch& batch);

    // Makes this the forest of the example; nothing is done if it is already. Throws std::invalid_argument if the
    // example's edges contain a cycle.
    void select(std::size_t example);
    std::size_t example() const { return example_; }

    const Batch& batch() const { return batch_; }
    std::size_t n_sites() const { return order_->size(); }
    std::size_t n_labels() const { return batch_.n_labels; }
    std::size_t n_edges() const { return n_sites() - roots_.size(); }
    const Tables& tables() const { return tables_; }
    const std::vector<TreeSite>& order() const { return *order_; }
    std::shared_ptr<const std::vector<TreeSite>> shared_order() const { return order_; }
    const std::vector<std::size_t>& roots() const { return roots_; }  // positions
    const TreeSite& operator[](std::size_t position) const { return (*order_)[position]; }
    std::size_t n_children(std::size_t position) const {
        return static_cast<std::size_t>((*this)[position].end_child - (*this)[position].first_child);
    }
    // Puts other given labels (n_sites) in place of the example's, or null for those again.
    void give(const std::int32_t* given) { given_ = given ? given : batch_.given_of(example_); }
    // The label given at a position, or -1.
    std::int32_t given(std::size_t position) const { return given_ ? given_[(*this)[position].site] : -1; }

    // Unary potentials in order, -inf for labels other than a given one.
    void load(const double* unary, std::vector<double>& out) const;
    // The table of the edge above `site` with the parent's label as its row (or as its column). Valid until the
    // next call.
    const double* table(const TreeSite& site, bool parent_is_row);
    // Fills the rows of `outside` that belong to the children of `parent` with what it knows without each of
    // them: unary + downward + the messages of the other children.
    void outside_of_children(std::size_t parent, const std::vector<double>& unary, const std::vector<double>& down,
                             const std::vector<double>& message, std::vector<double>& outside);

   private:
    bool set_chain(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges);
    bool set_forest(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges);

    const Batch& batch_;
    std::size_t example_ = no_example;
    Tables tables_;
    const std::int32_t* given_ = nullptr;
    std::shared_ptr<const std::vector<TreeSite>> order_;
    std::vector<std::shared_ptr<const std::vector<TreeSite>>> chains_;  // by length; the last long one at 0
    std::vector<std::size_t> roots_;
    std::vector<double> shared_transposed_, transposed_, suffix_;
    std::vector<std::int32_t> adjacency_first_, adjacency_, position_;
};

// Only differences of a message matter; with the maximum at zero, small ones survive beside large terms.
// Returns what was the maximum; a message of -inf alone stays as it is.
double normalise(std::size_t k, double* message);

void transpose(std::size_t k, const double* table, double* out);

}  // namespace perturbmap
