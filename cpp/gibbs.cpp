#include "gibbs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "elementary.hpp"
#include "philox.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {

constexpr std::size_t width = 2 * lanes;

// log(u / (1 - u)) of uniform numbers.
PERTURBMAP_SIMD
void logistic_numbers(std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::size_t n, double* out) {
    std::uint64_t bits[width];
    double z[width];
    for (std::size_t done = 0; done < n; done += width) {
        philox(seed, stream, draw, static_cast<std::uint32_t>(done / 2), bits);
        for (std::size_t i = 0; i < width; ++i) {
            const double u = uniform_of(bits[i]);
            z[i] = log_of(u / (1.0 - u));
        }
        std::copy_n(z, std::min(width, n - done), out + done);
    }
}

// Adds the probabilities of labels 0 and 1 of each site.
PERTURBMAP_SIMD
void add_probabilities(std::size_t n, const double* log_odds, double* sums) {
    for (std::size_t i = 0; i < n; ++i) {
        const double less = exp_of(-std::abs(log_odds[i])), more = 1.0 / (1.0 + less), other = less * more;
        sums[2 * i] += log_odds[i] > 0 ? other : more;
        sums[2 * i + 1] += log_odds[i] > 0 ? more : other;
    }
}

}  // namespace

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
    if (k == 2) {
        pulls_.resize(2 * m);
        for (std::size_t a = 0; a < 2 * m; ++a) {
            const auto [table, site, other, own] = neighbours_[a];
            pulls_[a] = {{table[own] - table[0], table[other + own] - table[other]}, site};
        }
        log_odds_.resize(n);
        logistic_.resize(n);
    }
    example_ = example;
}

// Draws all labels in turn; adds their probabilities to `sums` unless it is null.
void Gibbs::sweep(std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::int32_t* labels,
                  double* sums) {
    const std::size_t n = batch_.sites(example), k = batch_.n_labels;
    const double* const unary = batch_.unary_of(0, example);
    const std::int32_t* const given = batch_.given_of(example);
    double* const score = score_.data();
    std::uint64_t bits[width];
    for (std::size_t i = 0; i < n; ++i) {
        if (i % width == 0) philox(seed, stream, draw, static_cast<std::uint32_t>(i / 2), bits);
        if (given && given[i] >= 0) {
            if (sums) sums[i * k + static_cast<std::size_t>(given[i])] += 1;
            continue;
        }
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
        if (!sums) continue;
        for (std::size_t l = 0; l < k; ++l) sums[i * k + l] += score[l] / total;
    }
}

void Gibbs::sweep_binary(std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw,
                         std::int32_t* labels, double* sums) {
    const std::size_t n = batch_.sites(example);
    const double* const unary = batch_.unary_of(0, example);
    const std::int32_t* const given = batch_.given_of(example);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    logistic_numbers(seed, stream, draw, n, logistic_.data());
    for (std::size_t i = 0; i < n; ++i) {
        double log_odds = unary[2 * i + 1] - unary[2 * i];
        for (std::size_t a = first_[i]; a < first_[i + 1]; ++a) log_odds += pulls_[a].of[labels[pulls_[a].site]];
        if (given && given[i] >= 0) log_odds = given[i] ? infinity : -infinity;
        log_odds_[i] = log_odds;
        labels[i] = log_odds > logistic_[i];
    }
    if (sums) add_probabilities(n, log_odds_.data(), sums);
}

void Gibbs::run(std::size_t example, std::uint64_t stream, const Sweeps& sweeps, std::size_t chain, std::int32_t* labels,
                double* probabilities) {
    select(example);
    const std::size_t size = batch_.sites(example) * batch_.n_labels, all = sweeps.n_burn + sweeps.n_kept;
    std::fill_n(probabilities, size, 0.0);
    for (std::size_t s = 0; s < all; ++s) {
        const std::uint32_t draw = static_cast<std::uint32_t>((sweeps.first_chain + chain) * all + s);
        double* const sums = s < sweeps.n_burn ? nullptr : probabilities;
        if (batch_.n_labels == 2)
            sweep_binary(example, sweeps.seed, stream, draw, labels, sums);
        else
            sweep(example, sweeps.seed, stream, draw, labels, sums);
    }
    for (std::size_t i = 0; i < size; ++i) probabilities[i] /= static_cast<double>(std::max<std::size_t>(1, sweeps.n_kept));
}

}  // namespace perturbmap
