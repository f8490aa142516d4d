// In which order to sum over the sites of a graph, one after another, so that tables stay small.
//
// Problem.    When a site is summed out, its neighbours among the sites that are left become neighbours of each other,
//             and a table over them is made: K to the number of neighbours. Find an order with small tables.
// Method.     Always the site that joins the fewest pairs of sites anew (least fill), then the one with the fewest
//             neighbours, then the first. A site whose table would be too large is never summed out; where only such
//             sites are left, the one with the most neighbours is cut: it will have to be given a label.
// Cost.       O(sites * width^2 log) about, `width` being the number of neighbours when summed out; besides, the number of
//             neighbours of a site for each that is taken away from it.
// References. Rose 1972 (elimination and fill); Bidyuk and Dechter, Cutset sampling for Bayesian networks, JAIR 2007
//             (sites to cut until the rest has small tables).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perturbmap {

struct EliminationStep {
    std::int32_t site;
    std::vector<std::int32_t> neighbours;  // those that are summed out later
};

struct EliminationOrder {
    std::vector<EliminationStep> steps;
    std::vector<std::int32_t> cut;  // sites to be given labels, the first to be cut first
};

// The order of the sites that are not `given` (null: none is), n of them; no step has more than `max_width` neighbours.
// Stops at the first site to be cut, if none may be.
EliminationOrder elimination_order(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges,
                                   std::size_t n_edges, const std::int32_t* given, std::size_t max_width, bool may_cut);

}  // namespace perturbmap
