// Tables that only say how well equal labels go together: T(a, b) = c + w [a == b] with w >= 0.
#pragma once

#include <cstddef>
#include <vector>

#include "tables.hpp"

namespace perturbmap {

// Whether a table of K x K entries is one of them.
inline bool is_potts(const double* table, std::size_t k) {
    if (k < 2 || table[0] < table[1]) return false;
    const double equal = table[0], differ = table[1];
    for (std::size_t a = 0; a < k; ++a) {
        const double* row = table + a * k;
        if (row[a] != equal) return false;
        bool fit = true;
        for (std::size_t b = 0; b < a; ++b) fit &= row[b] == differ;
        for (std::size_t b = a + 1; b < k; ++b) fit &= row[b] == differ;
        if (!fit) return false;
    }
    return true;
}

// The weight w of every edge; empty unless all tables are such.
inline void read_potts(Tables tables, std::size_t n_edges, std::size_t k, std::vector<double>& weights) {
    weights.clear();
    for (std::size_t e = 0; e < n_edges; ++e) {
        const double* table = tables[e];
        if ((e == 0 || !tables.are_shared()) && !is_potts(table, k)) return weights.clear();
        weights.push_back(table[0] - table[1]);
    }
}

}  // namespace perturbmap
