// Tables that only say how well equal labels go together: T(a, b) = c + w [a == b] with w >= 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"
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

// The edges of every site of an example, by their weights alone.
class PottsEdges {
   public:
    struct Edge {  // as a site sees it
        double weight;
        std::int32_t site;
    };

    void set(const Batch& batch, std::size_t example, const std::vector<double>& weights) {
        const std::size_t n = batch.sites(example), m = weights.size();
        const std::int32_t* ends = batch.edges_of(example);
        const std::int32_t first_site = static_cast<std::int32_t>(batch.first_site(example));
        first_.assign(n + 1, 0);
        for (std::size_t i = 0; i < 2 * m; ++i) ++first_[static_cast<std::size_t>(ends[i] - first_site) + 1];
        for (std::size_t d = 0; d < n; ++d) first_[d + 1] += first_[d];
        all_.resize(2 * m);
        std::vector<std::int32_t> next(first_.begin(), first_.end() - 1);
        for (std::size_t e = 0; e < m; ++e) {
            const std::int32_t i = ends[2 * e] - first_site, j = ends[2 * e + 1] - first_site;
            all_[static_cast<std::size_t>(next[static_cast<std::size_t>(i)]++)] = {weights[e], j};
            all_[static_cast<std::size_t>(next[static_cast<std::size_t>(j)]++)] = {weights[e], i};
        }
    }

    std::size_t n_sites() const { return first_.size() - 1; }
    std::size_t n_edges() const { return all_.size() / 2; }

    struct Range {
        const Edge *first, *last;
        const Edge* begin() const { return first; }
        const Edge* end() const { return last; }
    };
    Range of(std::size_t site) const { return {all_.data() + first_[site], all_.data() + first_[site + 1]}; }

   private:
    std::vector<std::int32_t> first_;
    std::vector<Edge> all_;
};

}  // namespace perturbmap
