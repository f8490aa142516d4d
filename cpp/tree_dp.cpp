#include "tree_dp.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "simd.hpp"

namespace perturbmap {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Below this range the exponentials of a table neither overflow nor vanish.
constexpr double safe_range = 600.0;

// out[j] = max_i in[i] + table[i][j], and the first i that attains it.
PERTURBMAP_SIMD
void max_plus(std::size_t k, const double* table, const double* in, double* out, std::int64_t* argument) {
    for (std::size_t j = 0; j < k; ++j) {
        out[j] = in[0] + table[j];
        argument[j] = 0;
    }
    for (std::size_t i = 1; i < k; ++i) {
        const double* t = table + i * k;
        const double x = in[i];
        const std::int64_t index = static_cast<std::int64_t>(i);
        for (std::size_t j = 0; j < k; ++j) {
            const double value = x + t[j];
            const bool better = value > out[j];
            out[j] = better ? value : out[j];
            argument[j] = better ? index : argument[j];
        }
    }
}

// out[j] = sum_i in[i] * table[i][j]
PERTURBMAP_SIMD
void sum_product(std::size_t k, const double* table, const double* in, double* out) {
    std::fill(out, out + k, 0.0);
    for (std::size_t i = 0; i < k; ++i) {
        const double* t = table + i * k;
        const double x = in[i];
        for (std::size_t j = 0; j < k; ++j) out[j] += x * t[j];
    }
}

void transpose(std::size_t k, const double* table, double* out) {
    for (std::size_t i = 0; i < k; ++i)
        for (std::size_t j = 0; j < k; ++j) out[j * k + i] = table[i * k + j];
}

// Only differences of a message matter; with the maximum at zero, small ones survive beside large terms.
void normalise(std::size_t k, double* message) {
    const double top = *std::max_element(message, message + k);
    for (std::size_t i = 0; i < k; ++i) message[i] -= top;
}

void keep(const std::vector<std::int64_t>& argument, Pointer* out) {
    std::transform(argument.begin(), argument.end(), out, [](std::int64_t k) { return static_cast<Pointer>(k); });
}

std::size_t first_maximum(std::size_t k, const double* x) {
    return static_cast<std::size_t>(std::max_element(x, x + k) - x);
}

double log_sum_exp(std::size_t k, const double* x) {
    const double top = *std::max_element(x, x + k);
    double total = 0;
    for (std::size_t i = 0; i < k; ++i) total += std::exp(x[i] - top);
    return top + std::log(total);
}

}  // namespace

bool TreeDP::set_forest(std::size_t n_sites, std::int32_t first_site, const std::int32_t* edges,
                        std::size_t n_edges, std::size_t n_labels, Tables tables, const std::int32_t* given) {
    n_ = n_sites;
    k_ = n_labels;
    tables_ = tables;
    given_ = given;
    if (n_edges >= std::max<std::size_t>(1, n_sites)) return false;
    adjacency_first_.assign(n_ + 1, 0);
    adjacency_.resize(2 * n_edges);  // edge number * 2 + (1 if the neighbour is the edge's first site)
    for (std::size_t h = 0; h < 2 * n_edges; ++h) ++adjacency_first_[static_cast<std::size_t>(edges[h] - first_site) + 1];
    for (std::size_t i = 0; i < n_; ++i) adjacency_first_[i + 1] += adjacency_first_[i];
    position_.assign(adjacency_first_.begin(), adjacency_first_.end() - 1);
    for (std::size_t e = 0; e < n_edges; ++e)
        for (std::size_t side = 0; side < 2; ++side)
            adjacency_[position_[edges[2 * e + side] - first_site]++] = static_cast<std::int32_t>(2 * e + side);

    // A new one each time: pins of the forest before may still hold theirs.
    order_ = std::make_shared<std::vector<Site>>();
    std::vector<Site>& order = *order_;
    order.reserve(n_);
    roots_.clear();
    position_.assign(n_, -1);
    for (std::size_t root = 0; root < n_; ++root) {
        if (position_[root] >= 0) continue;
        roots_.push_back(order.size());
        position_[root] = static_cast<std::int32_t>(order.size());
        order.push_back({static_cast<std::int32_t>(root), -1, -1, false, 0, 0});
        for (std::size_t p = order.size() - 1; p < order.size(); ++p) {
            const std::int32_t site = order[p].site;
            order[p].first_child = static_cast<std::int32_t>(order.size());
            for (std::int32_t h = adjacency_first_[site]; h < adjacency_first_[site + 1]; ++h) {
                const std::int32_t edge = adjacency_[h] / 2, side = adjacency_[h] % 2;
                if (edge == order[p].edge) continue;
                const std::int32_t other = edges[2 * edge + 1 - side] - first_site;
                if (position_[other] >= 0) return false;
                position_[other] = static_cast<std::int32_t>(order.size());
                order.push_back({other, static_cast<std::int32_t>(p), edge, side == 1, 0, 0});
            }
            order[p].end_child = static_cast<std::int32_t>(order.size());
        }
    }

    for (auto* array : {&unary_, &up_, &message_, &down_, &outside_}) array->resize(n_ * k_);
    for (auto* array : {&up_pointer_, &down_pointer_}) array->resize(n_ * k_);
    argument_.resize(k_);
    scaled_.resize(2 * k_);
    free_.resize(n_);
    transposed_.resize(k_ * k_);
    if (tables_.stride == 0 && tables_.data && shared_table_ != tables_.data) {
        shared_transposed_.resize(k_ * k_);
        transpose(k_, tables_.data, shared_transposed_.data());
        shared_table_ = tables_.data;
        shared_exponentials_.clear();
        shared_exponentials_transposed_.clear();
    }
    return true;
}

const double* TreeDP::table(const Site& site, bool parent_is_row) {
    const double* stored = tables_[static_cast<std::size_t>(site.edge)];
    if (parent_is_row != site.parent_is_second) return stored;
    if (tables_.stride == 0) return shared_transposed_.data();
    transpose(k_, stored, transposed_.data());
    return transposed_.data();
}

void TreeDP::load(const double* unary) {
    for (std::size_t p = 0; p < n_; ++p) {
        const std::size_t site = static_cast<std::size_t>((*order_)[p].site);
        double* u = row(unary_, p);
        std::copy(unary + site * k_, unary + (site + 1) * k_, u);
        if (given_ && given_[site] >= 0)
            for (std::size_t k = 0; k < k_; ++k)
                if (static_cast<std::int32_t>(k) != given_[site]) u[k] = -infinity;
    }
}

void TreeDP::upward_max() {
    std::copy(unary_.begin(), unary_.end(), up_.begin());
    for (std::size_t p = n_; p-- > 0;) {
        const Site& site = (*order_)[p];
        if (site.parent < 0) continue;
        double* message = row(message_, p);
        max_plus(k_, table(site, false), row(up_, p), message, argument_.data());
        keep(argument_, row(up_pointer_, p));
        normalise(k_, message);
        double* up = row(up_, static_cast<std::size_t>(site.parent));
        for (std::size_t k = 0; k < k_; ++k) up[k] += message[k];
    }
}

void TreeDP::backtrack(std::int32_t* labels) const {
    for (std::size_t p = 0; p < n_; ++p) {
        const Site& site = (*order_)[p];
        labels[site.site] =
            site.parent < 0
                ? static_cast<std::int32_t>(first_maximum(k_, up_.data() + p * k_))
                : up_pointer_[p * k_ + static_cast<std::size_t>(labels[(*order_)[static_cast<std::size_t>(site.parent)].site])];
    }
}

void TreeDP::maximise(const double* unary, std::int32_t* labels) {
    load(unary);
    upward_max();
    backtrack(labels);
}

void TreeDP::outside_of_children(std::size_t parent) {
    const Site& site = (*order_)[parent];
    const std::size_t first = static_cast<std::size_t>(site.first_child), n = static_cast<std::size_t>(site.end_child) - first;
    if (n == 0) return;
    const double *u = row(unary_, parent), *down = row(down_, parent);
    double* out = row(outside_, first);
    for (std::size_t k = 0; k < k_; ++k) out[k] = u[k] + down[k];
    if (n == 1) return;
    // Sums before and after each child, rather than a difference, which would lose small terms.
    suffix_.assign(n * k_, 0.0);
    for (std::size_t c = n - 1; c-- > 0;)
        for (std::size_t k = 0; k < k_; ++k)
            suffix_[c * k_ + k] = suffix_[(c + 1) * k_ + k] + message_[(first + c + 1) * k_ + k];
    for (std::size_t c = 1; c < n; ++c)
        for (std::size_t k = 0; k < k_; ++k)
            outside_[(first + c) * k_ + k] = outside_[(first + c - 1) * k_ + k] + message_[(first + c - 1) * k_ + k];
    for (std::size_t i = 0; i < n * k_; ++i) out[i] += suffix_[i];
}

void TreeDP::pin(const std::int32_t* labels, double top, double* values) {
    std::fill(down_.begin(), down_.end(), 0.0);
    for (std::size_t p = 0; p < n_; ++p) {
        const Site& site = (*order_)[p];
        double *up = row(up_, p), *down = row(down_, p);
        if (site.parent >= 0) {
            max_plus(k_, table(site, true), row(outside_, p), down, argument_.data());
            keep(argument_, row(down_pointer_, p));
            normalise(k_, down);
        }
        outside_of_children(p);
        // A pin that the free maximiser satisfies has its value exactly; no other has more.
        const std::size_t label = static_cast<std::size_t>(free_[p] = labels[site.site]);
        const double best = up[label] + down[label];
        double* out = values + static_cast<std::size_t>(site.site) * k_;
        for (std::size_t k = 0; k < k_; ++k) out[k] = top - std::max(0.0, best - (up[k] + down[k]));
        out[label] = top;
    }
}

void TreePins::add_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = order->size(), k_ = n_labels;
    if (n == 0) return;
    std::vector<double> mass(n * k_), from_child(n * k_, 0.0);
    // Pins that the free maximiser satisfies are moved to the first root: from there the pointers lead to
    // that very maximiser, ties or not.
    double satisfied = 0, total = 0;
    std::size_t n_roots = 0;
    for (std::size_t p = 0; p < n; ++p) {
        const double* w = weights + static_cast<std::size_t>((*order)[p].site) * k_;
        std::copy(w, w + k_, mass.begin() + static_cast<std::ptrdiff_t>(p * k_));
        satisfied += w[free[p]];
        for (std::size_t k = 0; k < k_; ++k) total += w[k];
        mass[p * k_ + static_cast<std::size_t>(free[p])] = 0;
        n_roots += (*order)[p].parent < 0;
    }
    mass[static_cast<std::size_t>(free[0])] = satisfied;

    auto add_to_table = [&](const TreeSite& site, std::size_t parent_label, std::size_t label, double amount) {
        const std::size_t a = site.parent_is_second ? label : parent_label;
        const std::size_t b = site.parent_is_second ? parent_label : label;
        pairwise[static_cast<std::size_t>(site.edge) * stride + a * k_ + b] += amount;
    };
    // Upwards: the weight of the pins in the subtree of each site, by the site's label.
    for (std::size_t p = n; p-- > 0;) {
        const TreeSite& site = (*order)[p];
        if (site.parent < 0) continue;
        const double* here = mass.data() + p * k_;
        double *sent = from_child.data() + p * k_, *above = mass.data() + static_cast<std::size_t>(site.parent) * k_;
        const Pointer* pointer = down_pointer.data() + p * k_;
        for (std::size_t k = 0; k < k_; ++k) {
            if (here[k] == 0) continue;
            sent[pointer[k]] += here[k];
            add_to_table(site, static_cast<std::size_t>(pointer[k]), k, here[k]);
        }
        for (std::size_t k = 0; k < k_; ++k) above[k] += sent[k];
    }
    // Downwards: the weight of all other pins. Those of other trees leave this one at its free maximiser.
    for (std::size_t p = 0; p < n; ++p) {
        const TreeSite& site = (*order)[p];
        double* here = mass.data() + p * k_;
        if (site.parent < 0) {
            double own = 0;
            for (std::size_t k = 0; k < k_; ++k) own += here[k];
            here[free[p]] += n_roots > 1 ? total - own : 0.0;
        } else {
            const double *above = mass.data() + static_cast<std::size_t>(site.parent) * k_, *sent = from_child.data() + p * k_;
            const Pointer* pointer = up_pointer.data() + p * k_;
            for (std::size_t k = 0; k < k_; ++k) {
                const double other = above[k] - sent[k];
                if (other == 0) continue;
                here[pointer[k]] += other;
                add_to_table(site, k, static_cast<std::size_t>(pointer[k]), other);
            }
        }
        double* out = unary + static_cast<std::size_t>(site.site) * k_;
        for (std::size_t k = 0; k < k_; ++k) out[k] += here[k];
    }
}

// exp(table - shift), or null where its range is too wide for that.
const double* TreeDP::exponentials(const Site& site, bool parent_is_row, double& shift) {
    const bool shared = tables_.stride == 0;
    std::vector<double>& out = !shared                                      ? exponentials_
                               : (parent_is_row != site.parent_is_second) ? shared_exponentials_
                                                                          : shared_exponentials_transposed_;
    if (!shared || out.empty()) {
        const double* t = table(site, parent_is_row);
        const auto [low, high] = std::minmax_element(t, t + k_ * k_);
        exponentials_range_ = *high - *low;
        exponentials_shift_ = *high;
        out.resize(k_ * k_);
        for (std::size_t i = 0; i < k_ * k_; ++i) out[i] = std::exp(t[i] - *high);
    }
    shift = exponentials_shift_;
    return exponentials_range_ > safe_range ? nullptr : out.data();
}

void TreeDP::log_sum_message(const Site& site, bool upward, const double* in, double* out) {
    double shift = 0;
    const double top = *std::max_element(in, in + k_);
    if (const double* table = exponentials(site, !upward, shift)) {
        for (std::size_t k = 0; k < k_; ++k) scaled_[k] = std::exp(in[k] - top);
        sum_product(k_, table, scaled_.data(), out);
        for (std::size_t k = 0; k < k_; ++k) out[k] = top + shift + std::log(out[k]);
        return;
    }
    const double* t = table(site, !upward);
    for (std::size_t j = 0; j < k_; ++j) {
        for (std::size_t i = 0; i < k_; ++i) scaled_[i] = in[i] + t[i * k_ + j];
        out[j] = log_sum_exp(k_, scaled_.data());
    }
}

double TreeDP::sum(const double* unary, double* unary_marginals, double* pairwise_marginals, std::size_t stride) {
    load(unary);
    std::copy(unary_.begin(), unary_.end(), up_.begin());
    for (std::size_t p = n_; p-- > 0;) {
        const Site& site = (*order_)[p];
        if (site.parent < 0) continue;
        log_sum_message(site, true, row(up_, p), row(message_, p));
        double *up = row(up_, static_cast<std::size_t>(site.parent)), *message = row(message_, p);
        for (std::size_t k = 0; k < k_; ++k) up[k] += message[k];
    }
    double total = 0;
    for (const std::size_t root : roots_) total += log_sum_exp(k_, row(up_, root));

    std::fill(down_.begin(), down_.end(), 0.0);
    for (std::size_t p = 0; p < n_; ++p) {
        const Site& site = (*order_)[p];
        double *up = row(up_, p), *down = row(down_, p);
        if (site.parent >= 0) {
            const double* outside = row(outside_, p);
            log_sum_message(site, false, outside, down);

            // P(a, b) ~ exp(outside(a) + T(a, b) + up(b))
            double shift = 0;
            const double* e = exponentials(site, true, shift);
            const double* t = e ? e : table(site, true);
            const double top_a = *std::max_element(outside, outside + k_), top_b = *std::max_element(up, up + k_);
            double* left = scaled_.data();
            double* right = scaled_.data() + k_;
            for (std::size_t k = 0; k < k_; ++k) {
                left[k] = std::exp(outside[k] - top_a);
                right[k] = std::exp(up[k] - top_b);
            }
            double log_norm = 0, norm = 0;
            if (e) {
                for (std::size_t a = 0; a < k_; ++a)
                    for (std::size_t b = 0; b < k_; ++b) norm += left[a] * t[a * k_ + b] * right[b];
            } else {
                suffix_.resize(k_);
                for (std::size_t k = 0; k < k_; ++k) suffix_[k] = up[k] + down[k];
                log_norm = log_sum_exp(k_, suffix_.data());
            }
            double* out = pairwise_marginals + static_cast<std::size_t>(site.edge) * stride;
            for (std::size_t a = 0; a < k_; ++a)
                for (std::size_t b = 0; b < k_; ++b) {
                    const double p_ab = e ? left[a] * t[a * k_ + b] * right[b] / norm
                                          : std::exp(outside[a] + t[a * k_ + b] + up[b] - log_norm);
                    out[site.parent_is_second ? b * k_ + a : a * k_ + b] += p_ab;
                }
        }
        outside_of_children(p);
        double* both = scaled_.data();
        for (std::size_t k = 0; k < k_; ++k) both[k] = up[k] + down[k];
        const double norm = log_sum_exp(k_, both);
        double* out = unary_marginals + static_cast<std::size_t>(site.site) * k_;
        for (std::size_t k = 0; k < k_; ++k) out[k] += std::exp(both[k] - norm);
    }
    return total;
}

}  // namespace perturbmap
