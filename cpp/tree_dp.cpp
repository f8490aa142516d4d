#include "tree_dp.hpp"

#include <algorithm>
#include <limits>

#include "pin_values.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {

static_assert(Forest::max_labels <= std::numeric_limits<Pointer>::max());

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

// The same for the table w [i == j] with w >= 0, but that of several i of one value the first largest in[i] is taken.
PERTURBMAP_SIMD
void max_plus_potts(std::size_t k, double weight, const double* in, double* out, std::int64_t* argument) {
    double best = in[0];
    std::int64_t first = 0;
    for (std::size_t i = 1; i < k; ++i) {
        const bool better = in[i] > best;
        best = better ? in[i] : best;
        first = better ? static_cast<std::int64_t>(i) : first;
    }
    for (std::size_t j = 0; j < k; ++j) {
        const double same = in[j] + weight;
        out[j] = same > best ? same : best;
        argument[j] = same > best ? static_cast<std::int64_t>(j) : first;
    }
}

void keep(const std::vector<std::int64_t>& argument, Pointer* out) {
    std::transform(argument.begin(), argument.end(), out, [](std::int64_t k) { return static_cast<Pointer>(k); });
}

std::size_t first_maximum(std::size_t k, const double* x) {
    return static_cast<std::size_t>(std::max_element(x, x + k) - x);
}

}  // namespace

// The message from the site to its parent, or from the parent to it.
void TreeDP::send(const TreeSite& site, bool downwards, const double* in, double* out) {
    const std::size_t width = forest_.n_labels();
    if (weights_)
        max_plus_potts(width, weights_[forest_.batch().first_edge(forest_.example()) + static_cast<std::size_t>(site.edge)],
                       in, out, argument_.data());
    else
        max_plus(width, forest_.table(site, downwards), in, out, argument_.data());
}

void TreeDP::upward_max() {
    const std::size_t width = forest_.n_labels();
    up_ = unary_;
    message_.resize(unary_.size());
    up_pointer_.resize(unary_.size());
    argument_.resize(width);
    for (std::size_t p = forest_.n_sites(); p-- > 0;) {
        const TreeSite& site = forest_[p];
        if (site.parent < 0) continue;
        double* message = message_.data() + p * width;
        send(site, false, up_.data() + p * width, message);
        keep(argument_, up_pointer_.data() + p * width);
        normalise(width, message);
        double* up = up_.data() + static_cast<std::size_t>(site.parent) * width;
        for (std::size_t k = 0; k < width; ++k) up[k] += message[k];
    }
}

bool TreeDP::backtrack(std::int32_t* labels) const {
    const std::size_t width = forest_.n_labels();
    bool is_possible = true;
    for (std::size_t p = 0; p < forest_.n_sites(); ++p) {
        const TreeSite& site = forest_[p];
        if (site.parent < 0) {
            const double* up = up_.data() + p * width;
            const std::size_t best = first_maximum(width, up);
            labels[site.site] = static_cast<std::int32_t>(best);
            is_possible = is_possible && up[best] != impossible;
            continue;
        }
        const std::int32_t above = labels[forest_[static_cast<std::size_t>(site.parent)].site];
        labels[site.site] = up_pointer_[p * width + static_cast<std::size_t>(above)];
    }
    return is_possible;
}

double TreeDP::maximise(std::size_t copy, std::size_t example, std::int32_t* labels) {
    const double* unary = forest_.batch().unary_of(copy, example);
    forest_.select(example);
    forest_.load(unary, unary_);
    upward_max();
    return backtrack(labels) ? forest_.batch().score(unary, example, labels) : impossible;
}

// Marks the sites whose subtree has a wanted pin that the free maximiser does not satisfy. All of them come before
// the position that is returned.
std::size_t TreeDP::find_needed(const std::uint8_t* wanted, const std::int32_t* labels) {
    const std::size_t n = forest_.n_sites(), width = forest_.n_labels();
    if (!wanted) return n;
    needed_.assign(n, 0);
    std::size_t end = 0;
    for (std::size_t p = n; p-- > 0;) {
        const TreeSite& site = forest_[p];
        const std::uint8_t* row = wanted + static_cast<std::size_t>(site.site) * width;
        std::size_t n_wanted = 0;
        for (std::size_t k = 0; k < width; ++k) n_wanted += row[k] != 0;
        if (n_wanted > (row[labels[site.site]] != 0)) needed_[p] = 1;
        if (!needed_[p]) continue;
        if (site.parent >= 0) needed_[static_cast<std::size_t>(site.parent)] = 1;
        end = std::max(end, p + 1);
    }
    return end;
}

void TreeDP::pin(std::size_t copy, std::size_t example, const std::uint8_t* wanted, std::int32_t* labels, double* values,
                 TreePins* pins) {
    const double top = maximise(copy, example, labels);
    const std::size_t n = forest_.n_sites(), width = forest_.n_labels(), end = find_needed(wanted, labels);
    down_.assign(end * width, 0.0);
    outside_.resize(unary_.size());
    down_pointer_.resize(unary_.size());
    for (std::size_t p = 0; p < n; ++p) {
        const TreeSite& site = forest_[p];
        const std::size_t first = static_cast<std::size_t>(site.site) * width;
        const std::size_t label = static_cast<std::size_t>(labels[site.site]);
        double* out = values + first;
        if (wanted && !needed_[p]) {
            std::fill(out, out + width, not_wanted);
        } else {
            double *up = up_.data() + p * width, *down = down_.data() + p * width;
            if (site.parent >= 0) {
                send(site, true, outside_.data() + p * width, down);
                if (pins) keep(argument_, down_pointer_.data() + p * width);
                normalise(width, down);
            }
            forest_.outside_of_children(p, unary_, down_, message_, outside_);
            const double best = up[label] + down[label];
            for (std::size_t k = 0; k < width; ++k) out[k] = top - std::max(0.0, best - (up[k] + down[k]));
            if (wanted)
                for (std::size_t k = 0; k < width; ++k) out[k] = wanted[first + k] ? out[k] : not_wanted;
        }
        // A pin that the free maximiser satisfies has its value exactly; no other has more.
        out[label] = top;
    }
    if (!pins) return;
    pins->n_labels = width;
    pins->order = forest_.shared_order();
    pins->free.resize(n);
    for (std::size_t p = 0; p < n; ++p) pins->free[p] = labels[forest_[p].site];
    pins->up_pointer = up_pointer_;
    pins->down_pointer.assign(down_pointer_.begin(), down_pointer_.begin() + static_cast<std::ptrdiff_t>(end * width));
}

void TreePins::add_moments(const double* weights, double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = order->size(), width = n_labels;
    if (n == 0) return;
    std::vector<double> mass(n * width), from_child(n * width, 0.0);
    // Pins that the free maximiser satisfies are moved to the first root: from there the pointers lead to
    // that very maximiser, ties or not.
    double satisfied = 0, total = 0;
    std::size_t n_roots = 0;
    for (std::size_t p = 0; p < n; ++p) {
        const double* w = weights + static_cast<std::size_t>((*order)[p].site) * width;
        std::copy(w, w + width, mass.begin() + static_cast<std::ptrdiff_t>(p * width));
        satisfied += w[free[p]];
        for (std::size_t k = 0; k < width; ++k) total += w[k];
        mass[p * width + static_cast<std::size_t>(free[p])] = 0;
        n_roots += (*order)[p].parent < 0;
    }
    mass[static_cast<std::size_t>(free[0])] = satisfied;

    auto add_to_table = [&](const TreeSite& site, std::size_t parent_label, std::size_t label, double amount) {
        const std::size_t a = site.parent_is_second ? label : parent_label;
        const std::size_t b = site.parent_is_second ? parent_label : label;
        pairwise[static_cast<std::size_t>(site.edge) * stride + a * width + b] += amount;
    };
    // Upwards: the weight of the pins in the subtree of each site, by the site's label. Sites without a row of
    // pointers have no such pins.
    for (std::size_t p = down_pointer.size() / width; p-- > 0;) {
        const TreeSite& site = (*order)[p];
        if (site.parent < 0) continue;
        const double* here = mass.data() + p * width;
        double *sent = from_child.data() + p * width, *above = mass.data() + static_cast<std::size_t>(site.parent) * width;
        const Pointer* pointer = down_pointer.data() + p * width;
        for (std::size_t k = 0; k < width; ++k) {
            if (here[k] == 0) continue;
            sent[pointer[k]] += here[k];
            add_to_table(site, static_cast<std::size_t>(pointer[k]), k, here[k]);
        }
        for (std::size_t k = 0; k < width; ++k) above[k] += sent[k];
    }
    // Downwards: the weight of all other pins. Those of other trees leave this one at its free maximiser.
    for (std::size_t p = 0; p < n; ++p) {
        const TreeSite& site = (*order)[p];
        double* here = mass.data() + p * width;
        if (site.parent < 0) {
            double own = 0;
            for (std::size_t k = 0; k < width; ++k) own += here[k];
            here[free[p]] += n_roots > 1 ? total - own : 0.0;
        } else {
            const double *above = mass.data() + static_cast<std::size_t>(site.parent) * width, *sent = from_child.data() + p * width;
            const Pointer* pointer = up_pointer.data() + p * width;
            for (std::size_t k = 0; k < width; ++k) {
                const double other = above[k] - sent[k];
                if (other == 0) continue;
                here[pointer[k]] += other;
                add_to_table(site, k, static_cast<std::size_t>(pointer[k]), other);
            }
        }
        double* out = unary + static_cast<std::size_t>(site.site) * width;
        for (std::size_t k = 0; k < width; ++k) out[k] += here[k];
    }
}

}  // namespace perturbmap
