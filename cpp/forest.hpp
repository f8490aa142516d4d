// One example of a batch as a rooted forest: what maximisation and sums over trees have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tables.hpp"

namespace perturbmap {

// One site of a rooted forest, in breadth-first order from the roots.
struct TreeSite {
    std::int32_t site;
    std::int32_t parent;      // position in this order; -1 for a root
    std::int32_t edge;        // to the parent
    bool parent_is_second;    // the edge is stored as (child, parent)
    std::int32_t first_child, end_child;
};

// One example: its forest, rooted at the smallest site of every tree, with tables and given labels.
class Forest {
   public:
    // Returns false if the edges contain a cycle.
    bool set(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges, std::size_t n_edges,
             std::size_t n_labels, Tables tables, const std::int32_t* given);

    std::size_t n_sites() const { return order_->size(); }
    std::size_t n_labels() const { return k_; }
    std::size_t n_edges() const { return n_sites() - roots_.size(); }
    const Tables& tables() const { return tables_; }
    const std::vector<TreeSite>& order() const { return *order_; }
    std::shared_ptr<const std::vector<TreeSite>> shared_order() const { return order_; }
    const std::vector<std::size_t>& roots() const { return roots_; }  // positions
    const TreeSite& operator[](std::size_t position) const { return (*order_)[position]; }
    std::size_t n_children(std::size_t position) const {
        return static_cast<std::size_t>((*this)[position].end_child - (*this)[position].first_child);
    }
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

    std::size_t k_ = 0;
    Tables tables_;
    const std::int32_t* given_ = nullptr;
    std::shared_ptr<const std::vector<TreeSite>> order_;
    std::vector<std::shared_ptr<const std::vector<TreeSite>>> chains_;  // by length; the last long one at 0
    std::vector<std::size_t> roots_;
    const double* shared_table_ = nullptr;  // the table that shared_transposed_ was made from
    std::vector<double> shared_transposed_, transposed_, suffix_;
    std::vector<std::int32_t> adjacency_first_, adjacency_, position_;
};

// Only differences of a message matter; with the maximum at zero, small ones survive beside large terms.
// Returns what was the maximum.
double normalise(std::size_t k, double* message);

void transpose(std::size_t k, const double* table, double* out);

}  // namespace perturbmap
