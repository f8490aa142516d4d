// Sums over the labellings of any graph whose tables stay small when its sites are summed out one after another.
//
// Problem.    A = log sum_y exp f(y), the marginals, and exact samples, for a graph with cycles and any number of labels.
// Method.     Site by site, in the order of elimination_order.hpp: all terms that hold the site are added up to a table
//             over it and its neighbours (psi), and the log-sum over its labels (m) is a new term over the neighbours.
//             Backwards, the derivative of A with respect to every term: a(S) exp(psi - m) is the probability of the
//             labels of the site and its neighbours. A sample is drawn backwards, too.
// Layout.     A table over a site and its neighbours has the site's label as its slowest axis, then the neighbours in the
//             order in which they are summed out: so that m of a site has the next site to be summed out as its slowest.
// Cost.       Time and memory O(sum over sites of K^(width + 1)).
// Memory.     Two numbers for each entry of a table.
// References. Bertele and Brioschi, Nonserial Dynamic Programming, 1972; Darwiche, A differential approach to inference
//             in Bayesian networks, JACM 2003 (marginals as derivatives).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
#include "elimination_order.hpp"

namespace perturbmap {

// Sums one example of a batch after another; the batch must outlive it and must not change.
class Elimination {
   public:
    // No example may need more than `max_entries` entries of tables.
    Elimination(const Batch& batch, std::size_t max_entries) : batch_(batch), max_entries_(max_entries) {}

    // Makes this the example to be summed over; false where its tables are too large. The order is kept while the graph
    // and the sites with given labels are the same.
    bool select(std::size_t example);

    // log sum_y exp f(y) of a copy of the selected example.
    double sum(std::size_t copy);

    // After sum(): writes the marginals of all sites (n_sites, K), times a weight, and adds those of the edges.
    void marginals(double weight, double* unary, double* pairwise, std::size_t stride);

    // After sum(): an exact sample, from one uniform number in (0, 1) for each site.
    void sample(const double* uniform, std::int32_t* labels) const;

    // The number of neighbours up to which a site's table can have no more than so many entries.
    static std::size_t max_width(std::size_t n_labels, std::size_t max_entries);

   private:
    // A term of a table: a table of its own over the site and some of the neighbours.
    struct Term {
        std::int32_t step;                 // of which it is m, or
        std::int32_t edge;                 // the edge that it is; the other is -1
        bool is_turned;                    // the edge is stored with the neighbour's label first
        std::size_t run;                   // rows of the table in one run: see for_each_run()
        bool is_constant;                  // along a run
        std::vector<std::size_t> strides;  // of the axes that are left, the slowest first
        std::size_t size;                  // entries for one label of the site
    };

    struct Step {
        std::int32_t site;
        std::vector<std::int32_t> scope;  // its neighbours, in the order in which they are summed out
        std::size_t rows;                 // K^neighbours
        std::size_t psi, m;               // where its tables begin
        std::vector<Term> terms;
    };

    bool plan(std::size_t example);
    Term term(const Step& step, const std::vector<std::int32_t>& scope) const;
    bool is_same_graph(std::size_t example) const;
    void load(const double* unary);
    const double* values(const Term& term);
    template <class Visit>
    void for_each_run(const Term& term, std::size_t rows, Visit visit) const;

    const Batch& batch_;
    std::size_t max_entries_;
    std::size_t example_ = no_example;
    bool fits_ = false;
    std::vector<std::int32_t> planned_edges_;
    std::vector<std::uint8_t> planned_given_;
    std::vector<Step> steps_;
    std::vector<std::int32_t> step_of_;  // of each site; -1: given
    std::vector<double> unary_;          // with the terms of given neighbours
    double constant_ = 0;
    std::vector<double> psi_, m_, weight_, turned_, probability_;
    mutable std::vector<std::size_t> digits_;
};

}  // namespace perturbmap
