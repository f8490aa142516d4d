#include "swaps.hpp"

#include <algorithm>
#include <cmath>

#include "elementary.hpp"
#include "philox.hpp"

namespace perturbmap {
namespace {

constexpr std::size_t width = 2 * lanes;

}  // namespace

void Swaps::lay_out(std::size_t n_sites, const std::int32_t* labels, std::uint64_t seed, std::uint64_t stream,
                    std::uint32_t draw) {
    const std::size_t k = batch_.n_labels;
    is_used_.assign(k, 0);
    label_.clear();
    for (std::size_t d = 0; d < n_sites; ++d) {
        label_.push_back(static_cast<std::size_t>(labels[d]));
        is_used_[label_[d]] = 1;
    }
    for (std::size_t l = 0; l < k; ++l)
        if (!is_used_[l]) label_.push_back(l);
    std::uint64_t bits[width];
    for (std::size_t r = label_.size(); r > n_sites + 1; --r) {
        philox(seed, stream, draw, static_cast<std::uint32_t>(n_sites * k + r), bits);
        const std::size_t other = static_cast<std::size_t>(uniform_of(bits[0]) * static_cast<double>(r - n_sites));
        std::swap(label_[r - 1], label_[n_sites + other]);
    }
}

void Swaps::run(std::size_t example, std::uint64_t stream, const Sweeps& sweeps, std::size_t chain, std::int32_t* labels,
                double* probabilities, double* shares) {
    const std::size_t n = batch_.sites(example), k = batch_.n_labels, all = sweeps.n_burn + sweeps.n_kept;
    const double* const unary = batch_.unary_of(0, example);
    const std::int32_t* const given = batch_.given_of(example);
    const double share = 1.0 / static_cast<double>((k - 1) * std::max<std::size_t>(1, sweeps.n_kept));
    const std::size_t first_draw = (sweeps.first_chain + chain) * all;
    std::fill_n(probabilities, n * k, 0.0);
    std::fill_n(shares, n * k, 0.0);
    lay_out(n, labels, sweeps.seed, stream, static_cast<std::uint32_t>(first_draw));
    std::uint64_t bits[width];
    for (std::size_t s = 0; s < all; ++s) {
        for (std::size_t d = 0; d < n; ++d) {
            const bool is_free = !given || given[d] < 0;
            for (std::size_t r = 0; r < k; ++r) {
                const std::size_t number = d * k + r;
                if (number % width == 0)
                    philox(sweeps.seed, stream, static_cast<std::uint32_t>(first_draw + s),
                           static_cast<std::uint32_t>(number / 2), bits);
                if (!is_free || r == d) continue;
                const std::size_t own = label_[d], other = label_[r];
                double p = 0.0;  // that of the exchange
                if (r >= n || !given || given[r] < 0) {
                    double gain = unary[d * k + other] - unary[d * k + own];
                    if (r < n) gain += unary[r * k + own] - unary[r * k + other];
                    const double e = exp_of(-std::abs(gain));
                    p = (gain < 0 ? e : 1.0) / (1.0 + e);
                    if (uniform_of(bits[number % width]) < p) std::swap(label_[d], label_[r]);
                }
                if (s < sweeps.n_burn) continue;
                probabilities[d * k + other] += p * share;
                probabilities[d * k + own] += (1.0 - p) * share;
            }
        }
        if (s < sweeps.n_burn) continue;
        for (std::size_t d = 0; d < n; ++d) shares[d * k + label_[d]] += 1.0 / static_cast<double>(sweeps.n_kept);
    }
    for (std::size_t d = 0; d < n; ++d) {
        labels[d] = static_cast<std::int32_t>(label_[d]);
        const bool is_certain = k == 1 || (given && given[d] >= 0);
        if (is_certain) probabilities[d * k + label_[d]] = 1.0;
    }
}

}  // namespace perturbmap
