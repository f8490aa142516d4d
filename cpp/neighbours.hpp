// The neighbours of every site of an example, each with its side of the table of the edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"

namespace perturbmap {

struct Neighbour {
    const double* table;  // of the edge
    std::int32_t site;
    std::uint32_t edge : 31, is_second : 1;  // the site itself is the first of the edge's two
    std::uint32_t label_stride, own_stride;  // of the neighbour's label and of the site's own

    // What the edge adds where the site has one label and the neighbour another.
    double at(std::size_t own, std::size_t other) const { return table[own * own_stride + other * label_stride]; }
};

class Neighbours {
   public:
    void set(const Batch& batch, std::size_t example) {
        const std::size_t n = batch.sites(example), m = batch.n_edges(example);
        const std::uint32_t k = static_cast<std::uint32_t>(batch.n_labels);
        const std::int32_t* edges = batch.edges_of(example);
        const std::int32_t first_site = static_cast<std::int32_t>(batch.first_site(example));
        const Tables tables = batch.tables_of(example);
        first_.assign(n + 1, 0);
        for (std::size_t e = 0; e < 2 * m; ++e) ++first_[static_cast<std::size_t>(edges[e] - first_site) + 1];
        for (std::size_t i = 0; i < n; ++i) first_[i + 1] += first_[i];
        all_.resize(2 * m);
        std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
        for (std::size_t e = 0; e < m; ++e) {
            const std::int32_t i = edges[2 * e] - first_site, j = edges[2 * e + 1] - first_site;
            const std::uint32_t number = static_cast<std::uint32_t>(e);
            all_[next[static_cast<std::size_t>(i)]++] = {tables[e], j, number, 1, 1, k};
            all_[next[static_cast<std::size_t>(j)]++] = {tables[e], i, number, 0, k, 1};
        }
    }

    struct Range {
        const Neighbour *first, *last;
        const Neighbour* begin() const { return first; }
        const Neighbour* end() const { return last; }
    };
    Range of(std::size_t site) const { return {all_.data() + first_[site], all_.data() + first_[site + 1]}; }

   private:
    std::vector<std::size_t> first_;
    std::vector<Neighbour> all_;
};

}  // namespace perturbmap
