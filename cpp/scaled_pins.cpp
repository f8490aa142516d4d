// The pinned sums of scaled_sums.hpp; scaled_sums.cpp has the sweeps that they are read off.
#include <algorithm>

#include "padded_rows.hpp"
#include "pin_values.hpp"
#include "push_weights.hpp"
#include "scaled_sums.hpp"

namespace perturbmap {

namespace {

// A product of messages from here on has lost nothing itself.
constexpr double smallest_product = 1e-290;

}  // namespace

bool ScaledSums::pinned_values(const double* unary, double* values) {
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        const std::size_t first = static_cast<std::size_t>(forest_[p].site) * k_;
        if (const std::int32_t label = forest_.given(p); label >= 0) {
            std::fill(values + first, values + first + k_, impossible);
            values[first + static_cast<std::size_t>(label)] = total_;
            continue;
        }
        // Not from up_, which has the unary factor: that may vanish without harm to anything but its logarithm.
        multiply(width_, inside(p), row(down_, p), scratch_.data());
        bool fit = true;
        for (std::size_t k = 0; k < k_; ++k) fit &= scratch_[k] >= smallest_product || (has_forbidden_ && scratch_[k] == 0);
        if (!fit) return false;
        const double factor = 1 / multiply(width_, row(unary_, p), scratch_.data(), ratio_.data());
        log_products(k_, unary + first, unary_top_[p], total_, scratch_.data(), factor, values + first);
        if (has_forbidden_)
            for (std::size_t k = 0; k < k_; ++k)
                if (scratch_[k] == 0) values[first + k] = impossible;
    }
    return true;
}

void ScaledSums::pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) {
    const std::size_t n = forest_.n_sites();
    mass_.assign(n * width_, 0.0);
    sent_.resize(std::max(sent_.size(), n * width_));
    for (std::size_t p = 0; p < n; ++p) {
        const double* w = weights + static_cast<std::size_t>(forest_[p].site) * k_;
        std::copy(w, w + k_, row(mass_, p));
    }
    std::fill(ratio_.begin(), ratio_.end(), 0.0);
    // A weight of zero stays zero, also where the label is impossible: then there is nothing to divide by.
    auto divide = [&](const double* in, const double* by) {
        if (has_forbidden_)
            for (std::size_t k = 0; k < k_; ++k) ratio_[k] = in[k] == 0 ? 0.0 : in[k] / by[k];
        else
            for (std::size_t k = 0; k < k_; ++k) ratio_[k] = in[k] / by[k];
    };
    // P(parent = a | child = k) = outside(a) * table(a, k) / down(k), and the same with up and message.
    auto up = [&](std::size_t p, const double* in, double* out) {
        divide(in, row(down_, p));
        product(width_, table(forest_[p], false), ratio_.data(), out);
        multiply_by(width_, row(outside_, p), out);
        add_pair(forest_[p], row(outside_, p), ratio_.data(), 1.0, pairwise, stride);
    };
    auto down = [&](std::size_t p, const double* in, double* out) {
        divide(in, row(message_, p));
        product(width_, table(forest_[p], true), ratio_.data(), scratch_.data());
        add_products(k_, 1.0, scratch_.data(), row(up_, p), out);
        add_pair(forest_[p], ratio_.data(), row(up_, p), 1.0, pairwise, stride);
    };
    auto spread = [&](std::size_t root, double weight, double* out) {
        add_products(k_, weight, ones_.data(), row(up_, root), out);
    };
    push_weights(forest_, width_, mass_.data(), sent_.data(), up, down, spread);
    for (std::size_t p = 0; p < n; ++p)
        std::copy(row(mass_, p), row(mass_, p) + k_, unary + static_cast<std::size_t>(forest_[p].site) * k_);
}

}  // namespace perturbmap
