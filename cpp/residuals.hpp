// The residual graph of one cut in arrays of its own: what is left of a flow while its solver goes on with another.
#pragma once

#include <cstdint>

#include "max_flow.hpp"

namespace perturbmap {

struct Residuals {
    // The arcs of MaxFlow with capacities from another array.
    struct Arcs {
        const Arc* graph;
        const double* capacities;
        Arc operator[](std::int32_t a) const { return {capacities[a], graph[a].head, graph[a].sister}; }
    };

    std::int32_t n;              // sites
    const Arc* graph;            // heads and sisters, which all cuts of a graph share
    const std::int32_t* first;   // the arcs of a site: [first[site], first[site + 1])
    double* capacities;          // of each arc
    double* rooms;               // of each site, from or to the terminal of its side; infinite where its label is fixed
    std::uint8_t* labels;

    std::int32_t n_sites() const { return n; }
    int label(std::int32_t site) const { return labels[site]; }
    double excess(std::int32_t site) const { return rooms[site]; }  // but for its sign, which the label tells
    Arcs arcs() const { return {graph, capacities}; }
    const std::int32_t* first_arcs() const { return first; }
};

}  // namespace perturbmap
