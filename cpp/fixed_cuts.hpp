// Pinned maxima of binary supermodular functions, along labels that are fixed one after another.
//
// Problem.    Several copies of one graph, each with unary potentials of its own. Rows of labels are fixed site by
//             site, the same for all copies; rows branch, and some are given up. What is the maximum of every copy given
//             the labels of each row, with either label of the next site?
// Facts.      A pin of d pushes a flow from d that changes no F(S) (pinned_cuts.hpp, fact 3). So the residual graph
//             that it leaves is that of both answers: if d keeps its label, it becomes a terminal of its own side, with
//             infinite room; if it is flipped, so is S_d, which no open arc leaves, and d becomes a terminal of the
//             other side. To fix a label therefore takes no flow but that of the pin that told its value.
// Cost.       For each row and copy, a step copies the residual graph and its sides and pushes the flow of one pin: no
//             cut is begun again.
// Memory.     8 bytes for each arc and 9 for each site of every row and copy, twice: rows branch from one array into another.
// References. Kohli and Torr 2007 re-use a flow when potentials change; here it is only ever labels that are fixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "residuals.hpp"

namespace perturbmap {

class FixedCuts {
   public:
    // One row, in which nothing is fixed but what is given, of all copies of the one example of a batch.
    FixedCuts(const Batch& batch, int n_threads);

    std::size_t n_rows() const { return n_rows_; }
    std::size_t n_copies() const { return n_copies_; }
    std::size_t n_sites() const { return n_sites_; }

    // Writes the maxima with either label of the site, (n_rows, n_copies, 2); -inf where the label is not possible.
    void pin(std::size_t site, double* values, int n_threads);

    // Replaces the rows by n others: row r is what row parents[r] was, and labels[r] is fixed at the site that was pinned
    // last. Throws std::invalid_argument where there is no such row, label or pin, or the label is not possible.
    void branch(const std::int64_t* parents, const std::int32_t* labels, std::size_t n, int n_threads);

   private:
    // Of each cut, which is a copy of a row.
    struct Cuts {
        std::vector<double, Unfilled<double>> numbers;  // capacities, then rooms
        std::vector<std::uint8_t, Unfilled<std::uint8_t>> labels;
        std::vector<double> values;  // the maximum

        void resize(std::size_t n, std::size_t n_numbers, std::size_t n_sites);
    };

    struct Flip {  // of the site that was pinned last
        double gap;
        std::vector<std::int32_t> sites;
    };

    std::size_t n_numbers() const { return graph_.size() + n_sites_; }
    double work(std::size_t n_cuts) const;  // in nanoseconds, roughly
    Residuals residuals(Cuts& cuts, std::size_t cut) const;
    void check_branches(const std::int64_t* parents, const std::int32_t* labels, std::size_t n) const;

    std::size_t n_sites_, n_copies_, n_rows_ = 1;
    std::vector<Arc> graph_;
    std::vector<std::int32_t> first_;
    Cuts cuts_, next_;
    std::vector<Flip> flips_;
    std::size_t pinned_ = no_site;

    static constexpr std::size_t no_site = static_cast<std::size_t>(-1);
};

}  // namespace perturbmap
