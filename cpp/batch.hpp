// A ragged batch of examples as arrays: what crosses from Python into the kernels.
//
// Sites and edges of all examples lie one after another; the offsets say where each example begins.
// `unary` holds `n_copies` arrays (n_sites, n_labels) that share everything else: perturbed copies of
// the same potentials.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "tables.hpp"

namespace perturbmap {

// An example that no batch has: of a workspace that has not seen one yet.
constexpr std::size_t no_example = static_cast<std::size_t>(-1);

// Throws std::invalid_argument unless the offsets of n parts begin at zero, do not descend, and end at `end`.
inline void check_offsets(const std::int64_t* offsets, std::size_t n, std::size_t end) {
    bool fit = offsets[0] == 0 && offsets[n] == static_cast<std::int64_t>(end);
    for (std::size_t part = 0; part < n; ++part) fit &= offsets[part] <= offsets[part + 1];
    if (!fit) throw std::invalid_argument("offsets must begin at zero, not descend, and end at the number of sites or edges");
}

struct Batch {
    const double* unary;
    std::size_t n_copies, n_sites, n_labels;
    const std::int32_t* edges;          // (n_edges, 2), site numbers in the batch
    Tables tables;
    const std::int64_t* site_offsets;   // (n_examples + 1)
    const std::int64_t* edge_offsets;   // (n_examples + 1)
    std::size_t n_examples;
    const std::int32_t* given;          // (n_sites) labels or -1; may be null

    std::size_t first_site(std::size_t example) const { return static_cast<std::size_t>(site_offsets[example]); }
    std::size_t first_edge(std::size_t example) const { return static_cast<std::size_t>(edge_offsets[example]); }
    std::size_t sites(std::size_t example) const { return first_site(example + 1) - first_site(example); }
    std::size_t n_edges(std::size_t example) const { return first_edge(example + 1) - first_edge(example); }
    const double* unary_of(std::size_t copy, std::size_t example) const {
        return unary + (copy * n_sites + first_site(example)) * n_labels;
    }
    const std::int32_t* edges_of(std::size_t example) const { return edges + 2 * first_edge(example); }
    Tables tables_of(std::size_t example) const { return {tables[first_edge(example)], tables.stride}; }
    const std::int32_t* given_of(std::size_t example) const {
        return given ? given + first_site(example) : nullptr;
    }

    // Throws std::invalid_argument where an offset, an edge or a given label is out of range: no kernel looks again.
    // Measured: 1 ns for each edge, beside 30 at least to maximise over it.
    void check_ranges(std::size_t length_of_edges) const {
        check_offsets(site_offsets, n_examples, n_sites);
        check_offsets(edge_offsets, n_examples, length_of_edges);
        for (std::size_t example = 0; example < n_examples; ++example) {
            const std::uint32_t first = static_cast<std::uint32_t>(first_site(example));
            const std::uint32_t n = static_cast<std::uint32_t>(sites(example));
            const std::int32_t* e = edges_of(example);
            const std::size_t m = n_edges(example);
            std::uint32_t n_fit = 0;  // as wide as what it counts, of which several fit into a register
            for (std::size_t k = 0; k < m; ++k) {
                const std::uint32_t i = static_cast<std::uint32_t>(e[2 * k]), j = static_cast<std::uint32_t>(e[2 * k + 1]);
                n_fit += (i - first < n) & (j - first < n) & (i != j);
            }
            if (n_fit < m) throw std::invalid_argument("an edge does not join two different sites of its example");
        }
        if (!given) return;
        bool fit = true;
        for (std::size_t i = 0; i < n_sites; ++i) fit &= given[i] >= -1 && given[i] < static_cast<std::int64_t>(n_labels);
        if (!fit) throw std::invalid_argument("a given label is neither -1 nor one of the labels");
    }

    // f(y) of an example, `unary` and `labels` being its own.
    double score(const double* u, std::size_t example, const std::int32_t* labels) const {
        const std::size_t n = sites(example), m = n_edges(example), first = first_site(example);
        double total = 0.0;
        for (std::size_t i = 0; i < n; ++i) total += u[i * n_labels + static_cast<std::size_t>(labels[i])];
        const std::int32_t* e = edges_of(example);
        const Tables t = tables_of(example);
        for (std::size_t k = 0; k < m; ++k) {
            const std::size_t a = static_cast<std::size_t>(labels[static_cast<std::size_t>(e[2 * k]) - first]);
            const std::size_t b = static_cast<std::size_t>(labels[static_cast<std::size_t>(e[2 * k + 1]) - first]);
            total += t[k][a * n_labels + b];
        }
        return total;
    }
};

}  // namespace perturbmap
