#include "tree_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "elementary.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The kernels of the scaled sums take rows padded to a multiple of `lanes`. Sums are taken lane by lane, so that
// they are the same whatever the length of a vector.
constexpr std::size_t lanes = 4;

std::size_t padded(std::size_t k) { return (k + lanes - 1) / lanes * lanes; }

double sum_of(const double (&x)[lanes]) { return (x[0] + x[1]) + (x[2] + x[3]); }

double highest(std::size_t k, const double* x) {
    double a = x[0], b = a, c = a, d = a;
    std::size_t i = 0;
    for (; i + 4 <= k; i += 4) {
        a = std::max(a, x[i]);
        b = std::max(b, x[i + 1]);
        c = std::max(c, x[i + 2]);
        d = std::max(d, x[i + 3]);
    }
    for (; i < k; ++i) a = std::max(a, x[i]);
    return std::max(std::max(a, b), std::max(c, d));
}

// out = exp(x - top), padded with zeros; no x is above top.
PERTURBMAP_SIMD
void exponentials(std::size_t k, const double* __restrict x, double top, double* __restrict out) {
    const std::size_t width = padded(k);
    std::copy(x, x + k, out);
    std::fill(out + k, out + width, -infinity);
    for (std::size_t i = 0; i < width; ++i) out[i] = exp_of(out[i] - top);
}

PERTURBMAP_SIMD
double total(std::size_t width, const double* __restrict x) {
    double sum[lanes] = {};
    for (std::size_t i = 0; i < width; i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) sum[l] += x[i + l];
    return sum_of(sum);
}

// out = a * b; returns its sum.
PERTURBMAP_SIMD
double multiply(std::size_t width, const double* __restrict a, const double* __restrict b, double* __restrict out) {
    double sum[lanes] = {};
    for (std::size_t i = 0; i < width; i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) {
            const double product = a[i + l] * b[i + l];
            out[i + l] = product;
            sum[l] += product;
        }
    return sum_of(sum);
}

PERTURBMAP_SIMD
void multiply_by(std::size_t width, const double* __restrict factor, double* __restrict out) {
    for (std::size_t i = 0; i < width; ++i) out[i] *= factor[i];
}

PERTURBMAP_SIMD
void scale(std::size_t width, double factor, double* out) {
    for (std::size_t i = 0; i < width; ++i) out[i] *= factor;
}

// out[j] += sum_i x[i * step] * rows[i][j], four rows at a time; their number is a multiple of four.
inline void combine(std::size_t n, std::size_t width, const double* x, std::size_t step, const double* __restrict rows,
                    double* __restrict out) {
    for (std::size_t i = 0; i < n; i += 4) {
        const double *r0 = rows + i * width, *r1 = r0 + width, *r2 = r1 + width, *r3 = r2 + width;
        const double x0 = x[i * step], x1 = x[(i + 1) * step], x2 = x[(i + 2) * step], x3 = x[(i + 3) * step];
        for (std::size_t j = 0; j < width; ++j) out[j] += (x0 * r0[j] + x1 * r1[j]) + (x2 * r2[j] + x3 * r3[j]);
    }
}

// out[j] = sum_i x[i] * table[i][j]
PERTURBMAP_SIMD
void product(std::size_t width, const double* table, const double* x, double* out) {
    std::fill(out, out + width, 0.0);
    combine(width, width, x, 1, table, out);
}

// out[a][b] += sum_i left[i][a] * right[i][b]
PERTURBMAP_SIMD
void add_outer_products(std::size_t n, std::size_t width, const double* left, const double* right, double* out) {
    for (std::size_t a = 0; a < width; ++a) combine(n, width, left + a, width, right, out + a * width);
}

// out += weight * a * b; `out` is not padded.
PERTURBMAP_SIMD
void add_products(std::size_t k, double weight, const double* __restrict a, const double* __restrict b,
                  double* __restrict out) {
    for (std::size_t i = 0; i < k; ++i) out[i] += weight * a[i] * b[i];
}

// out = offset + (x - top) + log(a * factor); `x` and `out` are not padded.
PERTURBMAP_SIMD
void log_products(std::size_t k, const double* __restrict x, double top, double offset, const double* __restrict a,
                  double factor, double* __restrict out) {
    for (std::size_t i = 0; i < k; ++i) out[i] = offset + ((x[i] - top) + log_of(a[i] * factor));
}

// The logarithm of a product of numbers between 1e-150 and 1e150, from few logarithms.
struct LogProduct {
    double logarithm = 0, product = 1;
    void operator*=(double x) {
        product *= x;
        if (product > 1e-150 && product < 1e150) return;
        logarithm += std::log(product);
        product = 1;
    }
    double value() const { return logarithm + std::log(product); }
};

void grow(std::vector<double>& array, std::size_t size) {
    if (array.size() < size) array.resize(size);
}

// Why the scaled sums lose nothing: all factors and messages are at most one, and an entry of a table is at least
// exp(-safe_range) = 1e-130 times its largest. So is then an entry of a message, and what has vanished (below
// 1e-307) of a row whose sum was at least smallest_sum is less than 1e-30 of any message made from it. A site
// with one neighbour on either side always has such sums; one with many that disagree may not.
constexpr double safe_range = 300.0;
constexpr double smallest_sum = 1e-140;

// A product of messages from here on has lost nothing itself.
constexpr double smallest_product = 1e-290;

constexpr std::size_t most_kept = 32;

// Pushes the weights of pins through a forest: those of a subtree upwards, all others downwards. `mass` has the
// weights by site and label, in order, and is left with the weighted marginals.
//   up(p, weights, out)        makes weights of p's labels weights of its parent's, in a row of `sent`
//   down(p, weights, out)      adds weights of the labels of p's parent to those of p's
//   spread(root, weight, out)  adds a weight that lies in another tree
template <class Up, class Down, class Spread>
void push_weights(const Forest& forest, std::size_t width, double* mass, double* sent, Up up, Down down, Spread spread) {
    const std::size_t n = forest.n_sites();
    const bool several = forest.roots().size() > 1;
    const double all = several ? std::accumulate(mass, mass + n * width, 0.0) : 0.0;
    for (std::size_t p = n; p-- > 0;) {
        if (forest[p].parent < 0) continue;
        up(p, mass + p * width, sent + p * width);
        double* above = mass + static_cast<std::size_t>(forest[p].parent) * width;
        for (std::size_t k = 0; k < width; ++k) above[k] += sent[p * width + k];
    }
    for (std::size_t p = 0; p < n; ++p) {
        double* here = mass + p * width;
        if (forest[p].parent < 0) {
            if (several) spread(p, all - std::accumulate(here, here + width, 0.0), here);
            continue;
        }
        const double* above = mass + static_cast<std::size_t>(forest[p].parent) * width;
        for (std::size_t k = 0; k < width; ++k) sent[p * width + k] = above[k] - sent[p * width + k];
        down(p, sent + p * width, here);
    }
}

}  // namespace

void ScaledSums::load() {
    k_ = forest_.n_labels();
    width_ = padded(k_);
    const std::size_t size = forest_.n_sites() * width_;
    for (auto* array : {&unary_, &up_, &message_, &inside_, &down_, &outside_}) grow(*array, size);
    grow(unary_top_, forest_.n_sites());
    if (ones_.size() != width_) {
        ones_.assign(width_, 1.0);
        scratch_.assign(width_, 0.0);
        ratio_.assign(width_, 0.0);
    }
    const Tables& tables = forest_.tables();
    const bool shared = tables.stride == 0;
    if (shared && tables.data == shared_table_) return;
    shared_table_ = shared ? tables.data : nullptr;
    is_safe_ = true;
    const std::size_t n = shared ? 1 : forest_.n_edges(), table_size = width_ * width_;
    for (auto* array : {&table_, &table_transposed_}) array->resize(n * table_size);
    table_top_.resize(n);
    for (std::size_t e = 0; e < n; ++e) {
        const auto [low, high] = std::minmax_element(tables[e], tables[e] + k_ * k_);
        is_safe_ = is_safe_ && *high - *low <= safe_range;
        if (!is_safe_) return;
        table_top_[e] = *high;
        double* out = table_.data() + e * table_size;
        for (std::size_t a = 0; a < k_; ++a) exponentials(k_, tables[e] + a * k_, *high, out + a * width_);
        std::fill(out + k_ * width_, out + table_size, 0.0);
        transpose(width_, out, table_transposed_.data() + e * table_size);
    }
}

const double* ScaledSums::table(const TreeSite& site, bool parent_is_row) const {
    const std::size_t edge = shared_table_ ? 0 : static_cast<std::size_t>(site.edge);
    return (parent_is_row != site.parent_is_second ? table_ : table_transposed_).data() + edge * width_ * width_;
}

const double* ScaledSums::inside(std::size_t position) {
    const std::size_t n = forest_.n_children(position);
    return n == 0   ? ones_.data()
           : n == 1 ? row(message_, static_cast<std::size_t>(forest_[position].first_child))
                    : row(inside_, position);
}

bool ScaledSums::sweep(const double* unary) {
    if (!is_safe_) return false;
    const std::size_t n = forest_.n_sites();
    LogProduct scales;
    total_ = 0;
    for (std::size_t p = 0; p < n; ++p) {
        const double* u = unary + static_cast<std::size_t>(forest_[p].site) * k_;
        double* factor = row(unary_, p);
        if (const std::int32_t label = forest_.given(p); label >= 0) {
            std::fill(factor, factor + width_, 0.0);
            factor[label] = 1;
            unary_top_[p] = u[label];
        } else {
            unary_top_[p] = highest(k_, u);
            exponentials(k_, u, unary_top_[p], factor);
        }
        total_ += unary_top_[p];
    }
    for (std::size_t p = n; p-- > 0;) {
        const TreeSite& site = forest_[p];
        double *up = row(up_, p), *message = row(message_, p);
        const double sum = multiply(width_, row(unary_, p), inside(p), up);
        if (!(sum >= smallest_sum)) return false;
        scales *= sum;
        scale(width_, 1 / sum, up);
        if (site.parent < 0) continue;

        total_ += table_top_[shared_table_ ? 0 : static_cast<std::size_t>(site.edge)];
        product(width_, table(site, false), up, message);
        const std::size_t parent = static_cast<std::size_t>(site.parent);
        if (forest_.n_children(parent) == 1) continue;
        // Of many messages, each has its maximum at one, lest their product vanish for nothing.
        const double top = highest(k_, message);
        scales *= top;
        scale(width_, 1 / top, up);
        scale(width_, 1 / top, message);
        if (static_cast<std::int32_t>(p) + 1 == forest_[parent].end_child)
            std::copy(message, message + width_, row(inside_, parent));
        else
            multiply_by(width_, message, row(inside_, parent));
    }
    total_ += scales.value();
    for (const std::size_t root : forest_.roots()) std::copy(ones_.begin(), ones_.end(), row(down_, root));
    for (std::size_t p = 0; p < n; ++p)
        if (!downward_from(p)) return false;
    return true;
}

bool ScaledSums::downward_from(std::size_t position) {
    const std::size_t first = static_cast<std::size_t>(forest_[position].first_child), n = forest_.n_children(position);
    if (n == 0) return true;
    multiply(width_, row(unary_, position), row(down_, position), row(outside_, first));
    if (n > 1) {
        // The messages of the children before and after each, as sums in Forest::outside_of_children.
        grow(suffix_, n * width_);
        std::copy(ones_.begin(), ones_.end(), row(suffix_, n - 1));
        for (std::size_t c = n - 1; c-- > 0;)
            multiply(width_, row(suffix_, c + 1), row(message_, first + c + 1), row(suffix_, c));
        for (std::size_t c = 1; c < n; ++c)
            multiply(width_, row(outside_, first + c - 1), row(message_, first + c - 1), row(outside_, first + c));
        for (std::size_t c = 0; c < n; ++c) multiply_by(width_, row(suffix_, c), row(outside_, first + c));
    }
    for (std::size_t p = first; p < first + n; ++p) {
        double* outside = row(outside_, p);
        const double sum = total(width_, outside);
        if (!(sum >= smallest_sum)) return false;
        scale(width_, 1 / sum, outside);
        product(width_, table(forest_[p], true), outside, row(down_, p));
    }
    return true;
}

void ScaledSums::add_pair(const TreeSite& site, const double* parent, const double* child, double weight, double* pairwise,
                          std::size_t stride) {
    const double* left = site.parent_is_second ? child : parent;
    const double* right = site.parent_is_second ? parent : child;
    grow(kept_left_, most_kept * width_);
    grow(kept_right_, most_kept * width_);
    double *weighted = row(kept_left_, n_kept_), *beside = row(kept_right_, n_kept_);
    for (std::size_t k = 0; k < width_; ++k) weighted[k] = left[k] * weight;
    std::copy(right, right + width_, beside);
    if (shared_table_) {
        if (++n_kept_ == most_kept) add_kept();
        return;
    }
    const std::size_t edge = static_cast<std::size_t>(site.edge);
    const double* t = table_.data() + edge * width_ * width_;
    double* out = pairwise + edge * stride;
    for (std::size_t a = 0; a < k_; ++a) add_products(k_, weighted[a], beside, t + a * width_, out + a * k_);
}

void ScaledSums::add_kept() {
    const std::size_t n = padded(n_kept_);
    std::fill(row(kept_left_, n_kept_), row(kept_left_, n), 0.0);
    std::fill(row(kept_right_, n_kept_), row(kept_right_, n), 0.0);
    grow(shared_sum_, width_ * width_);
    add_outer_products(n, width_, kept_left_.data(), kept_right_.data(), shared_sum_.data());
    n_kept_ = 0;
}

void ScaledSums::add_shared(double* out) {
    if (!is_safe_) return;
    add_kept();
    for (std::size_t a = 0; a < k_; ++a) add_products(k_, 1.0, row(shared_sum_, a), row(table_, a), out + a * k_);
    std::fill(shared_sum_.begin(), shared_sum_.end(), 0.0);
}

void ScaledSums::marginals(double weight, double* unary, double* pairwise, std::size_t stride) {
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        const TreeSite& site = forest_[p];
        const double factor = weight / multiply(width_, row(up_, p), row(down_, p), scratch_.data());
        double* out = unary + static_cast<std::size_t>(site.site) * k_;
        for (std::size_t k = 0; k < k_; ++k) out[k] = scratch_[k] * factor;
        if (site.parent >= 0) add_pair(site, row(outside_, p), row(up_, p), factor, pairwise, stride);
    }
}

bool ScaledSums::pinned_values(const double* unary, double* values) {
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        const std::size_t first = static_cast<std::size_t>(forest_[p].site) * k_;
        if (const std::int32_t label = forest_.given(p); label >= 0) {
            std::fill(values + first, values + first + k_, -infinity);
            values[first + static_cast<std::size_t>(label)] = total_;
            continue;
        }
        // Not from up_, which has the unary factor: that may vanish without harm to anything but its logarithm.
        multiply(width_, inside(p), row(down_, p), scratch_.data());
        if (*std::min_element(scratch_.data(), scratch_.data() + k_) < smallest_product) return false;
        const double factor = 1 / multiply(width_, row(unary_, p), scratch_.data(), ratio_.data());
        log_products(k_, unary + first, unary_top_[p], total_, scratch_.data(), factor, values + first);
    }
    return true;
}

void ScaledSums::pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) {
    const std::size_t n = forest_.n_sites();
    mass_.assign(n * width_, 0.0);
    grow(sent_, n * width_);
    for (std::size_t p = 0; p < n; ++p) {
        const double* w = weights + static_cast<std::size_t>(forest_[p].site) * k_;
        std::copy(w, w + k_, row(mass_, p));
    }
    std::fill(ratio_.begin(), ratio_.end(), 0.0);
    // P(parent = a | child = k) = outside(a) * table(a, k) / down(k), and the same with up and message.
    auto up = [&](std::size_t p, const double* in, double* out) {
        const double* down = row(down_, p);
        for (std::size_t k = 0; k < k_; ++k) ratio_[k] = in[k] / down[k];
        product(width_, table(forest_[p], false), ratio_.data(), out);
        multiply_by(width_, row(outside_, p), out);
        add_pair(forest_[p], row(outside_, p), ratio_.data(), 1.0, pairwise, stride);
    };
    auto down = [&](std::size_t p, const double* in, double* out) {
        const double* message = row(message_, p);
        for (std::size_t k = 0; k < k_; ++k) ratio_[k] = in[k] / message[k];
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

double LogSums::distribution(const double* a, const double* b) {
    const std::size_t k_ = forest_.n_labels();
    argument_.resize(k_);
    probability_.resize(padded(k_));
    for (std::size_t k = 0; k < k_; ++k) argument_[k] = a[k] + b[k];
    const double top = highest(k_, argument_.data());
    exponentials(k_, argument_.data(), top, probability_.data());
    const double sum = total(probability_.size(), probability_.data());
    scale(probability_.size(), 1 / sum, probability_.data());
    return top + std::log(sum);
}

double LogSums::message(const TreeSite& site, bool upward, const double* in, double* out) {
    const std::size_t k_ = forest_.n_labels();
    const double* table = forest_.table(site, upward);
    for (std::size_t k = 0; k < k_; ++k) out[k] = distribution(in, table + k * k_);
    return normalise(k_, out);
}

void LogSums::sweep(const double* unary) {
    const std::size_t n = forest_.n_sites(), k_ = forest_.n_labels();
    forest_.load(unary, unary_);
    up_ = unary_;
    for (auto* array : {&message_, &outside_}) array->resize(n * k_);
    down_.assign(n * k_, 0.0);
    total_ = 0;
    for (std::size_t p = n; p-- > 0;) {
        const TreeSite& site = forest_[p];
        if (site.parent < 0) {
            total_ += distribution(row(up_, p), row(down_, p));
            continue;
        }
        total_ += message(site, true, row(up_, p), row(message_, p));
        double *up = row(up_, static_cast<std::size_t>(site.parent)), *message = row(message_, p);
        for (std::size_t k = 0; k < k_; ++k) up[k] += message[k];
    }
    for (std::size_t p = 0; p < n; ++p) {
        if (forest_[p].parent >= 0) message(forest_[p], false, row(outside_, p), row(down_, p));
        forest_.outside_of_children(p, unary_, down_, message_, outside_);
    }
}

void LogSums::push(std::size_t position, bool upward, const double* weights, double* out, double* pairwise,
                   std::size_t stride) {
    const std::size_t k_ = forest_.n_labels();
    const TreeSite& site = forest_[position];
    const double* table = forest_.table(site, !upward);
    const double* other_end = upward ? row(outside_, position) : row(up_, position);
    double* to = pairwise + static_cast<std::size_t>(site.edge) * stride;
    const bool is_row = upward == site.parent_is_second;
    for (std::size_t i = 0; i < k_; ++i) {
        if (weights[i] == 0) continue;
        distribution(other_end, table + i * k_);
        for (std::size_t j = 0; j < k_; ++j) {
            const double amount = weights[i] * probability_[j];
            out[j] += amount;
            to[is_row ? i * k_ + j : j * k_ + i] += amount;
        }
    }
}

void LogSums::marginals(double weight, double* unary, double* pairwise, std::size_t stride) {
    const std::size_t k_ = forest_.n_labels();
    sent_.resize(k_);
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        double* out = unary + static_cast<std::size_t>(forest_[p].site) * k_;
        distribution(row(up_, p), row(down_, p));
        for (std::size_t k = 0; k < k_; ++k) out[k] = weight * probability_[k];
        if (forest_[p].parent >= 0) push(p, true, out, sent_.data(), pairwise, stride);
    }
}

void LogSums::pinned_values(double* values) {
    const std::size_t k_ = forest_.n_labels();
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        const double norm = distribution(row(up_, p), row(down_, p));
        double* out = values + static_cast<std::size_t>(forest_[p].site) * k_;
        for (std::size_t k = 0; k < k_; ++k) out[k] = total_ + (argument_[k] - norm);
    }
}

void LogSums::pinned_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) {
    const std::size_t n = forest_.n_sites(), k_ = forest_.n_labels();
    mass_.resize(n * k_);
    sent_.assign(n * k_, 0.0);
    for (std::size_t p = 0; p < n; ++p)
        std::copy_n(weights + static_cast<std::size_t>(forest_[p].site) * k_, k_, row(mass_, p));
    auto up = [&](std::size_t p, const double* in, double* out) { push(p, true, in, out, pairwise, stride); };
    auto down = [&](std::size_t p, const double* in, double* out) { push(p, false, in, out, pairwise, stride); };
    auto spread = [&](std::size_t root, double weight, double* out) {
        distribution(row(up_, root), row(down_, root));
        for (std::size_t k = 0; k < k_; ++k) out[k] += weight * probability_[k];
    };
    push_weights(forest_, k_, mass_.data(), sent_.data(), up, down, spread);
    for (std::size_t p = 0; p < n; ++p)
        std::copy_n(row(mass_, p), k_, unary + static_cast<std::size_t>(forest_[p].site) * k_);
}

double TreeSum::sum(const double* unary, double weight, double* unary_marginals, double* pairwise, std::size_t stride) {
    if (scaled_.sweep(unary)) {
        scaled_.marginals(weight, unary_marginals, pairwise, stride);
        return scaled_.log_partition();
    }
    log_.sweep(unary);
    log_.marginals(weight, unary_marginals, pairwise, stride);
    return log_.log_partition();
}

void TreeSum::pinned_values(const double* unary, double* values) {
    if (scaled_.sweep(unary) && scaled_.pinned_values(unary, values)) return;
    log_.sweep(unary);
    log_.pinned_values(values);
}

void TreeSum::pinned_moments(const double* unary, const double* weights, double* unary_moments, double* pairwise,
                             std::size_t stride) {
    if (scaled_.sweep(unary)) {
        scaled_.pinned_moments(weights, unary_moments, pairwise, stride);
        return;
    }
    log_.sweep(unary);
    log_.pinned_moments(weights, unary_moments, pairwise, stride);
}

}  // namespace perturbmap
