#include "log_sums.hpp"

#include <algorithm>
#include <cmath>

#include "padded_rows.hpp"
#include "pin_values.hpp"
#include "push_weights.hpp"

namespace perturbmap {

double LogSums::distribution(const double* a, const double* b) {
    const std::size_t width = forest_.n_labels();
    argument_.resize(width);
    probability_.resize(padded(width));
    for (std::size_t k = 0; k < width; ++k) argument_[k] = a[k] + b[k];
    const double top = highest(width, argument_.data());
    if (top == impossible) {
        std::fill(probability_.begin(), probability_.end(), 0.0);
        return impossible;
    }
    exponentials(width, argument_.data(), top, probability_.data());
    const double sum = total(probability_.size(), probability_.data());
    scale(probability_.size(), 1 / sum, probability_.data());
    return top + std::log(sum);
}

double LogSums::message(const TreeSite& site, bool upward, const double* in, double* out) {
    const std::size_t width = forest_.n_labels();
    const double* table = forest_.table(site, upward);
    for (std::size_t k = 0; k < width; ++k) out[k] = distribution(in, table + k * width);
    return normalise(width, out);
}

void LogSums::upward(const double* unary) {
    const std::size_t n = forest_.n_sites(), width = forest_.n_labels();
    forest_.load(unary, unary_);
    up_ = unary_;
    for (auto* array : {&message_, &outside_}) array->resize(n * width);
    down_.assign(n * width, 0.0);
    total_ = 0;
    for (std::size_t p = n; p-- > 0;) {
        const TreeSite& site = forest_[p];
        if (site.parent < 0) {
            total_ += distribution(row(up_, p), row(down_, p));
            continue;
        }
        total_ += message(site, true, row(up_, p), row(message_, p));
        double *up = row(up_, static_cast<std::size_t>(site.parent)), *message = row(message_, p);
        for (std::size_t k = 0; k < width; ++k) up[k] += message[k];
    }
}

void LogSums::sweep(const double* unary) {
    upward(unary);
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        if (forest_[p].parent >= 0) message(forest_[p], false, row(outside_, p), row(down_, p));
        forest_.outside_of_children(p, unary_, down_, message_, outside_);
    }
}

Distribution LogSums::given_parent(std::size_t position, std::size_t above) {
    const TreeSite& site = forest_[position];
    // Nothing comes down to a root: zeros.
    distribution(row(up_, position),
                 site.parent < 0 ? row(down_, position) : forest_.table(site, true) + above * forest_.n_labels());
    return {probability_.data(), 1.0};
}

Distribution LogSums::marginal(std::size_t position) {
    distribution(row(up_, position), row(down_, position));
    return {probability_.data(), 1.0};
}

void LogSums::push(std::size_t position, bool upward, const double* weights, double* out, double* pairwise,
                   std::size_t stride) {
    const std::size_t width = forest_.n_labels();
    const TreeSite& site = forest_[position];
    const double* table = forest_.table(site, !upward);
    const double* other_end = upward ? row(outside_, position) : row(up_, position);
    double* to = pairwise + static_cast<std::size_t>(site.edge) * stride;
    const bool is_row = upward == site.parent_is_second;
    for (std::size_t i = 0; i < width; ++i) {
        if (weights[i] == 0) continue;
        distribution(other_end, table + i * width);
        for (std::size_t j = 0; j < width; ++j) {
            const double amount = weights[i] * probability_[j];
            out[j] += amount;
            to[is_row ? i * width + j : j * width + i] += amount;
        }
    }
}

void LogSums::marginals(double weight, double* unary, double* pairwise, std::size_t stride) {
    const std::size_t width = forest_.n_labels();
    sent_.resize(width);
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        double* out = unary + static_cast<std::size_t>(forest_[p].site) * width;
        distribution(row(up_, p), row(down_, p));
        for (std::size_t k = 0; k < width; ++k) out[k] = weight * probability_[k];
        if (forest_[p].parent >= 0) push(p, true, out, sent_.data(), pairwise, stride);
    }
}

void LogSums::pinned_values(double* values) {
    const std::size_t width = forest_.n_labels();
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        const double norm = distribution(row(up_, p), row(down_, p));
        double* out = values + static_cast<std::size_t>(forest_[p].site) * width;
        for (std::size_t k = 0; k < width; ++k) out[k] = total_ + (argument_[k] - norm);
    }
}

void LogSums::pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) {
    const std::size_t n = forest_.n_sites(), width = forest_.n_labels();
    mass_.resize(n * width);
    sent_.assign(n * width, 0.0);
    for (std::size_t p = 0; p < n; ++p)
        std::copy_n(weights + static_cast<std::size_t>(forest_[p].site) * width, width, row(mass_, p));
    auto up = [&](std::size_t p, const double* in, double* out) { push(p, true, in, out, pairwise, stride); };
    auto down = [&](std::size_t p, const double* in, double* out) { push(p, false, in, out, pairwise, stride); };
    auto spread = [&](std::size_t root, double weight, double* out) {
        distribution(row(up_, root), row(down_, root));
        for (std::size_t k = 0; k < width; ++k) out[k] += weight * probability_[k];
    };
    push_weights(forest_, width, mass_.data(), sent_.data(), up, down, spread);
    for (std::size_t p = 0; p < n; ++p)
        std::copy_n(row(mass_, p), width, unary + static_cast<std::size_t>(forest_[p].site) * width);
}

}  // namespace perturbmap
