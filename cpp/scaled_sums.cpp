#include "scaled_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "padded_rows.hpp"
#include "pin_values.hpp"

namespace perturbmap {

namespace {

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

// Where pairs are forbidden, an entry of a message may come from one small entry of a row alone. So all entries of all rows
// are to be zero, or at least this: the product of two is then far from vanishing, and that of one with a table too.
constexpr double smallest_entry = 1e-140;

// Outer products are added up this many at a time, a multiple of `lanes`. Any number from 8 to 256 takes the same time,
// as far as could be measured.
constexpr std::size_t most_kept = 32;

}  // namespace

ScaledSums::ScaledSums(const Forest& forest)
    : forest_(forest), k_(forest.n_labels()), width_(padded(k_)), is_shared_(forest.batch().tables.are_shared()),
      ones_(width_, 1.0), scratch_(width_, 0.0), ratio_(width_, 0.0) {
    if (is_shared_) load_tables(forest.batch().tables, 1);
}

void ScaledSums::follow_forest() {
    if (example_ == forest_.example()) return;
    example_ = forest_.example();
    const std::size_t size = forest_.n_sites() * width_;
    for (auto* array : {&unary_, &up_, &message_, &inside_, &down_, &outside_}) grow(*array, size);
    grow(unary_top_, forest_.n_sites());
    if (!is_shared_) load_tables(forest_.tables(), forest_.n_edges());
}

void ScaledSums::load_tables(const Tables& tables, std::size_t n) {
    is_safe_ = true;
    has_forbidden_ = false;
    const std::size_t table_size = width_ * width_;
    for (auto* array : {&table_, &table_transposed_}) array->resize(n * table_size);
    table_top_.resize(n);
    for (std::size_t e = 0; e < n; ++e) {
        const double high = highest(k_ * k_, tables[e]);
        double low = high;
        for (const double *t = tables[e], *end = t + k_ * k_; t != end; ++t) {
            if (*t == impossible)
                has_forbidden_ = true;
            else
                low = std::min(low, *t);
        }
        is_safe_ = high != impossible && high - low <= safe_range;
        if (!is_safe_) return;
        table_top_[e] = high;
        double* out = table_.data() + e * table_size;
        for (std::size_t a = 0; a < k_; ++a) exponentials(k_, tables[e] + a * k_, high, out + a * width_);
        std::fill(out + k_ * width_, out + table_size, 0.0);
        transpose(width_, out, table_transposed_.data() + e * table_size);
    }
}

const double* ScaledSums::table(const TreeSite& site, bool parent_is_row) const {
    const std::size_t edge = is_shared_ ? 0 : static_cast<std::size_t>(site.edge);
    return (parent_is_row != site.parent_is_second ? table_ : table_transposed_).data() + edge * width_ * width_;
}

const double* ScaledSums::inside(std::size_t position) {
    const std::size_t n = forest_.n_children(position);
    return n == 0   ? ones_.data()
           : n == 1 ? row(message_, static_cast<std::size_t>(forest_[position].first_child))
                    : row(inside_, position);
}

bool ScaledSums::keeps(const double* numbers) const {
    return !has_forbidden_ || are_zero_or_at_least(width_, numbers, smallest_entry);
}

bool ScaledSums::upward(const double* unary) {
    follow_forest();
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
            if (has_forbidden_)
                for (std::size_t k = 0; k < k_; ++k)
                    if (factor[k] < smallest_entry && u[k] != impossible) return false;
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
        if (!keeps(up)) return false;
        if (site.parent < 0) continue;

        total_ += table_top_[is_shared_ ? 0 : static_cast<std::size_t>(site.edge)];
        product(width_, table(site, false), up, message);
        if (!keeps(message)) return false;
        const std::size_t parent = static_cast<std::size_t>(site.parent);
        if (forest_.n_children(parent) == 1) continue;
        // Where there are several messages, each is scaled to a maximum of one, so that their product does not
        // vanish needlessly.
        const double top = highest(k_, message);
        scales *= top;
        scale(width_, 1 / top, up);
        scale(width_, 1 / top, message);
        if (static_cast<std::int32_t>(p) + 1 == forest_[parent].end_child)
            std::copy(message, message + width_, row(inside_, parent));
        else
            multiply_by(width_, message, row(inside_, parent));
        if (!keeps(row(inside_, parent))) return false;
    }
    total_ += scales.value();
    return true;
}

bool ScaledSums::downward() {
    for (const std::size_t root : forest_.roots()) std::copy(ones_.begin(), ones_.end(), row(down_, root));
    for (std::size_t p = 0; p < forest_.n_sites(); ++p)
        if (!downward_from(p)) return false;
    return true;
}

bool ScaledSums::downward_from(std::size_t position) {
    const std::size_t first = static_cast<std::size_t>(forest_[position].first_child), n = forest_.n_children(position);
    if (n == 0) return true;
    multiply(width_, row(unary_, position), row(down_, position), row(outside_, first));
    if (!keeps(row(outside_, first))) return false;
    if (n > 1) {
        // The messages of the children before and after each, as sums in Forest::outside_of_children.
        grow(suffix_, n * width_);
        std::copy(ones_.begin(), ones_.end(), row(suffix_, n - 1));
        bool fit = true;
        for (std::size_t c = n - 1; c-- > 0;) {
            multiply(width_, row(suffix_, c + 1), row(message_, first + c + 1), row(suffix_, c));
            fit = fit && keeps(row(suffix_, c));
        }
        for (std::size_t c = 1; c < n; ++c) {
            multiply(width_, row(outside_, first + c - 1), row(message_, first + c - 1), row(outside_, first + c));
            fit = fit && keeps(row(outside_, first + c));
        }
        if (!fit) return false;
        for (std::size_t c = 0; c < n; ++c) multiply_by(width_, row(suffix_, c), row(outside_, first + c));
    }
    for (std::size_t p = first; p < first + n; ++p) {
        double* outside = row(outside_, p);
        const double sum = total(width_, outside);
        if (!(sum >= smallest_sum)) return false;
        scale(width_, 1 / sum, outside);
        product(width_, table(forest_[p], true), outside, row(down_, p));
        if (!keeps(outside) || !keeps(row(down_, p))) return false;
    }
    return true;
}

Distribution ScaledSums::given_parent(std::size_t position, std::size_t above) {
    const TreeSite& site = forest_[position];
    const double* factor = site.parent < 0 ? ones_.data() : table(site, true) + above * width_;
    return {scratch_.data(), multiply(width_, factor, row(up_, position), scratch_.data())};
}

Distribution ScaledSums::marginal(std::size_t position) {
    return {scratch_.data(), multiply(width_, row(up_, position), row(down_, position), scratch_.data())};
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
    if (is_shared_) {
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

}  // namespace perturbmap
