#include "gibbs.hpp"

#include <algorithm>

#include "elementary.hpp"
#include "philox.hpp"

namespace perturbmap {

void Gibbs::select(std::size_t example) {
    if (example == example_) return;
    const std::size_t n = batch_.sites(example), m = batch_.n_edges(example), k = batch_.n_labels;
    const std::int32_t* edges = batch_.edges_of(example);
    const std::int32_t first = static_cast<std::int32_t>(batch_.first_site(example));
    const Tables tables = batch_.tables_of(example);
    first_.assign(n + 1, 0);
    for (std::size_t h = 0; h < 2 * m; ++h) ++first_[static_cast<std::size_t>(edges[h] - first) + 1];
    for (std::size_t i = 0; i < n; ++i) first_[i + 1] += first_[i];
    neighbours_.resize(2 * m);
    std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
    for (std::size_t e = 0; e < m; ++e) {
        const std::int32_t i = edges[2 * e] - first, j = edges[2 * e + 1] - first;
        neighbours_[next[i]++] = {tables[e], j, 1, k};
        neighbours_[next[j]++] = {tables[e], i, k, 1};
    }
    score_.resize(k);
    example_ = example;
}

void Gibbs::run(std::size_t example, std::uint64_t stream, const Sweeps& sweeps, std::size_t chain, std::int32_t* labels,
                double* probabilities) {
    select(example);
    const std::size_t n = batch_.sites(example), k = batch_.n_labels, all = sweeps.n_burn + sweeps.n_kept;
    const double* const unary = batch_.unary_of(0, example);
    const std::int32_t* const given = batch_.given_of(example);
    double* const score = score_.data();
    std::fill_n(probabilities, n * k, 0.0);
    constexpr std::size_t width = 2 * lanes;
    std::uint64_t bits[width];
    for (std::size_t s = 0; s < all; ++s) {
        const std::uint32_t draw = static_cast<std::uint32_t>((sweeps.first_chain + chain) * all + s);
        for (std::size_t i = 0; i < n; ++i) {
            if (i % width == 0) philox(sweeps.seed, stream, draw, static_cast<std::uint32_t>(i / 2), bits);
            if (given && given[i] >= 0) continue;
            std::copy_n(unary + i * k, k, score);
            for (std::size_t a = first_[i]; a < first_[i + 1]; ++a) {
                const Neighbour& neighbour = neighbours_[a];
                const double* const row = neighbour.table + static_cast<std::size_t>(labels[neighbour.site]) * neighbour.label_stride;
                for (std::size_t l = 0; l < k; ++l) score[l] += row[l * neighbour.own_stride];
            }
            double top = score[0], total = 0;
            for (std::size_t l = 1; l < k; ++l) top = std::max(top, score[l]);
            for (std::size_t l = 0; l < k; ++l) total += score[l] = exp_of(score[l] - top);
            double left = uniform_of(bits[i % width]) * total;
            std::size_t label = 0;
            while (label + 1 < k && (left -= score[label]) >= 0) ++label;
            labels[i] = static_cast<std::int32_t>(label);
            if (s < sweeps.n_burn) continue;
            for (std::size_t l = 0; l < k; ++l) probabilities[i * k + l] += score[l] / total;
        }
    }
    for (std::size_t i = 0; i < n * k; ++i) probabilities[i] /= static_cast<double>(std::max<std::size_t>(1, sweeps.n_kept));
    if (!given) return;
    for (std::size_t i = 0; i < n; ++i)
        if (given[i] >= 0) probabilities[i * k + static_cast<std::size_t>(given[i])] = 1.0;
}

}  // namespace perturbmap
