#include "gibbs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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
        std::memcpy(out + done, z, std::min(width, n - done) * sizeof(double));
    }
}

// Adds the probabilities of labels 0 and 1 of each site, and counts its label.
PERTURBMAP_SIMD
void add_probabilities(std::size_t n, const double* log_odds, const std::int32_t* labels, double* sums, double* counts) {
    for (std::size_t i = 0; i < n; ++i) {
        const double less = exp_of(-std::abs(log_odds[i])), more = 1.0 / (1.0 + less), other = less * more;
        sums[2 * i] += log_odds[i] > 0 ? other : more;
        sums[2 * i + 1] += log_odds[i] > 0 ? more : other;
        counts[2 * i] += 1 - labels[i];
        counts[2 * i + 1] += labels[i];
    }
}

}  // namespace

void Gibbs::select(std::size_t example) {
    if (example == example_) return;
    const std::size_t n = batch_.sites(example), k = batch_.n_labels;
    neighbours_.set(batch_, example);
    score_.resize(k);
    if (k == 2) {
        pulls_.clear();
        first_pull_.assign(1, 0);
        for (std::size_t i = 0; i < n; ++i) {
            for (const Neighbour& to : neighbours_.of(i))
                pulls_.push_back({{to.at(1, 0) - to.at(0, 0), to.at(1, 1) - to.at(0, 1)}, to.site});
            first_pull_.push_back(pulls_.size());
        }
        log_odds_.resize(n);
        logistic_.resize(n);
    }
    example_ = example;
}

// Draws all labels in turn; adds their probabilities to `sums` unless it is null, and counts them.
void Gibbs::sweep(std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::int32_t* labels,
                  double* sums, double* counts) {
    const std::size_t n = batch_.sites(example), k = batch_.n_labels;
    const double* const unary = batch_.unary_of(0, example);
    const std::int32_t* const given = batch_.given_of(example);
    double* const score = score_.data();
    std::uint64_t bits[width];
    for (std::size_t i = 0; i < n; ++i) {
        if (i % width == 0) philox(seed, stream, draw, static_cast<std::uint32_t>(i / 2), bits);
        if (given && given[i] >= 0) {
            if (sums) {
                const std::size_t at = i * k + static_cast<std::size_t>(given[i]);
                sums[at] += 1;
                counts[at] += 1;
            }
            continue;
        }
        std::copy_n(unary + i * k, k, score);
        for (const Neighbour& to : neighbours_.of(i)) {
            const std::size_t other = static_cast<std::size_t>(labels[to.site]);
            for (std::size_t l = 0; l < k; ++l) score[l] += to.at(l, other);
        }
        double top = score[0], total = 0;
        for (std::size_t l = 1; l < k; ++l) top = std::max(top, score[l]);
        for (std::size_t l = 0; l < k; ++l) total += score[l] = exp_of(score[l] - top);
        double left = uniform_of(bits[i % width]) * total;
        std::size_t label = 0;
        while (label + 1 < k && (left -= score[label]) >= 0) ++label;
        while (label > 0 && score[label] == 0) --label;  // rounding may leave the last a rest
        labels[i] = static_cast<std::int32_t>(label);
        if (!sums) continue;
        counts[i * k + label] += 1;
        for (std::size_t l = 0; l < k; ++l) sums[i * k + l] += score[l] / total;
    }
}

void Gibbs::draw_binary(std::size_t example, std::int32_t* labels) {
    const std::size_t n = batch_.sites(example);
    const double* const unary = batch_.unary_of(0, example);
    const std::int32_t* const given = batch_.given_of(example);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < n; ++i) {
        double log_odds = unary[2 * i + 1] - unary[2 * i];
        for (std::size_t a = first_pull_[i]; a < first_pull_[i + 1]; ++a) log_odds += pulls_[a].of[labels[pulls_[a].site]];
        if (given && given[i] >= 0) log_odds = given[i] ? infinity : -infinity;
        log_odds_[i] = log_odds;
        labels[i] = log_odds > logistic_[i];
    }
}

void Gibbs::sweep_binary(std::size_t example, std::uint64_t seed, std::uint64_t stream, std::uint32_t draw,
                         std::int32_t* labels, double* sums, double* counts) {
    const std::size_t n = batch_.sites(example);
    logistic_numbers(seed, stream, draw, n, logistic_.data());
    draw_binary(example, labels);
    if (sums) add_probabilities(n, log_odds_.data(), labels, sums, counts);
}

bool Gibbs::meet(std::size_t example, std::uint64_t seed, std::size_t n_blocks, const std::uint64_t* streams,
                 std::size_t sweeps_a_block, std::size_t chain, std::int32_t* labels) {
    select(example);
    const std::size_t n = batch_.sites(example);
    const std::int32_t* const given = batch_.given_of(example);
    high_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        labels[i] = given && given[i] >= 0 ? given[i] : 0;
        high_[i] = given && given[i] >= 0 ? given[i] : 1;
    }
    bool have_met = false;
    for (std::size_t block = n_blocks; block-- > 0;)
        for (std::size_t s = 0; s < sweeps_a_block; ++s) {
            const std::uint32_t draw = static_cast<std::uint32_t>(chain * sweeps_a_block + s);
            logistic_numbers(seed, streams[block], draw, n, logistic_.data());
            draw_binary(example, labels);
            if (have_met) continue;
            draw_binary(example, high_.data());
            have_met = std::equal(high_.begin(), high_.end(), labels);
        }
    return have_met;
}

void Gibbs::run(std::size_t example, std::uint64_t stream, const Sweeps& sweeps, std::size_t chain, std::int32_t* labels,
                double* probabilities, double* shares) {
    select(example);
    const std::size_t size = batch_.sites(example) * batch_.n_labels, all = sweeps.n_burn + sweeps.n_kept;
    std::fill_n(probabilities, size, 0.0);
    std::fill_n(shares, size, 0.0);
    for (std::size_t s = 0; s < all; ++s) {
        const std::uint32_t draw = static_cast<std::uint32_t>((sweeps.first_chain + chain) * all + s);
        double* const sums = s < sweeps.n_burn ? nullptr : probabilities;
        if (batch_.n_labels == 2)
            sweep_binary(example, sweeps.seed, stream, draw, labels, sums, shares);
        else
            sweep(example, sweeps.seed, stream, draw, labels, sums, shares);
    }
    const double n_kept = static_cast<double>(std::max<std::size_t>(1, sweeps.n_kept));
    for (std::size_t i = 0; i < size; ++i) {
        probabilities[i] /= n_kept;
        shares[i] /= n_kept;
    }
}

}  // namespace perturbmap
