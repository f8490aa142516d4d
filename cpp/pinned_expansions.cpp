#include "pinned_expansions.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pin_values.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
// A sweep that leaves out no more than one in so many is the last.
constexpr double few_of = 16;

// What the followers among the neighbours add, and the most that one of the others could.
PERTURBMAP_SIMD
void add_neighbour(const double* may_take, const double* follows, double together, std::size_t k, double* sum, double* most) {
    for (std::size_t a = 0; a < k; ++a) {
        const double other = together * (may_take[a] - follows[a]);
        sum[a] += together * follows[a];
        most[a] = other > most[a] ? other : most[a];
    }
}

// Returns how many are left.
PERTURBMAP_SIMD
double leave_out(const double* loss, const double* sum, const double* most, std::size_t k, double* follows) {
    double n_left = 0;
    for (std::size_t a = 0; a < k; ++a) {
        follows[a] = loss[a] < sum[a] + most[a] ? follows[a] : 0.0;
        n_left += follows[a];
    }
    return n_left;
}
}  // namespace

void PinnedExpansions::select(std::size_t example, const PottsEdges& edges) {
    example_ = example;
    edges_ = &edges;
}

void PinnedExpansions::set_labels(const double* unary, const std::int32_t* labels) {
    labels_ = labels;
    const std::size_t n = edges_->n_sites(), m = edges_->n_edges(), k = batch_.n_labels;
    loss_.resize(n * k);
    may_take_.resize(n * k);
    sums_.resize(2 * k);
    number_.resize(n);
    wanted_.resize(n);
    cut_unary_.resize(2 * n);
    cut_edges_.resize(2 * (m + 1));  // one more: edges that are left out are written, and then written over
    capacities_.resize(m + 1);
    together_.clear();
    for (std::size_t d = 0; d < n; ++d)
        for (const auto& [weight, j] : edges_->of(d)) together_.push_back({labels[j] == labels[d] ? 2 * weight : weight, j});
    find_losses(unary);
    find_followers();
}

void PinnedExpansions::find_losses(const double* unary) {
    const std::size_t n = number_.size(), k = batch_.n_labels;
    const std::int32_t* given = batch_.given_of(example_);
    for (std::size_t d = 0; d < n; ++d) {
        const std::size_t own = static_cast<std::size_t>(labels_[d]);
        const bool is_given = given && given[d] >= 0;
        double *loss = loss_.data() + d * k, *may_take = may_take_.data() + d * k;
        std::copy(unary + d * k, unary + (d + 1) * k, loss);
        for (const auto& [weight, j] : edges_->of(d)) loss[labels_[j]] += weight;
        const double kept = loss[own];
        for (std::size_t a = 0; a < k; ++a) {
            loss[a] = is_given || a == own ? infinity : kept - loss[a];
            may_take[a] = loss[a] < infinity ? 1.0 : 0.0;
        }
    }
}

// Fact (2).
void PinnedExpansions::find_followers() {
    const std::size_t n = number_.size(), k = batch_.n_labels;
    double *sum = sums_.data(), *most = sum + k;
    follows_ = may_take_;
    double n_before = infinity, n_left = static_cast<double>(n * k);
    while (n_before - n_left > n_left / few_of) {
        n_before = n_left;
        n_left = 0;
        for (std::size_t d = 0; d < n; ++d) {
            std::fill_n(sum, 2 * k, 0.0);
            for (const auto& [b, j] : together_of(d)) {
                const std::size_t at = static_cast<std::size_t>(j) * k;
                add_neighbour(may_take_.data() + at, follows_.data() + at, b, k, sum, most);
            }
            n_left += leave_out(loss_.data() + d * k, sum, most, k, follows_.data() + d * k);
        }
    }
}

void PinnedExpansions::number_followers(std::size_t label) {
    const std::size_t n = number_.size(), k = batch_.n_labels;
    std::int32_t n_followers = 0;
    slack_.assign(n, infinity);
    takes_along_.assign(n, 0);
    sites_.resize(n);
    for (std::size_t d = 0; d < n; ++d) {
        const bool follows = follows_[d * k + label] > 0;
        number_[d] = follows ? n_followers : -1;
        sites_[static_cast<std::size_t>(n_followers)] = static_cast<std::int32_t>(d);
        n_followers += follows;
    }
    sites_.resize(static_cast<std::size_t>(n_followers));
}

// The cut of the sites that may follow, -F of those that take the label (1): b y_i y_j is half of b (y_i + y_j - [y_i != y_j]).
void PinnedExpansions::load(std::size_t label) {
    const std::size_t k = batch_.n_labels;
    std::size_t n_edges = 0;
    for (std::size_t i = 0; i < sites_.size(); ++i) {
        const std::size_t d = static_cast<std::size_t>(sites_[i]);
        const double loss = loss_[d * k + label];
        double sum = 0;
        for (const auto& [b, site] : together_of(d)) {
            const std::int32_t j = number_[site];
            sum += j >= 0 ? b : 0.0;
            cut_edges_[2 * n_edges] = static_cast<std::int32_t>(i);
            cut_edges_[2 * n_edges + 1] = j;
            capacities_[n_edges] = 0.5 * b;
            n_edges += j > static_cast<std::int32_t>(i);
        }
        cut_unary_[2 * i] = 0;
        cut_unary_[2 * i + 1] = 0.5 * sum - loss;
        const double slack = slack_[d] = loss - sum;
        for (const auto& [b, site] : together_of(d)) takes_along_[static_cast<std::size_t>(site)] |= slack < b;
    }
    n_cut_edges_ = n_edges;
}

// The minimum cut, in which all sites keep their labels.
void PinnedExpansions::solve() {
    const std::size_t n = sites_.size();
    auto moves = [&] {
        flow_.set_capacities(static_cast<int>(n), cut_edges_.data(), capacities_.data(), static_cast<int>(n_cut_edges_));
        flow_.solve(cut_unary_.data());
        for (std::size_t i = 0; i < n; ++i)
            if (flow_.label(static_cast<int>(i))) return true;
        return false;
    };
    if (!moves()) return;
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(cut_unary_[2 * i + 1]));
    for (double more = std::max(1e-13 * largest, std::numeric_limits<double>::min()); moves(); more *= 1e3)
        for (std::size_t i = 0; i < n; ++i) cut_unary_[2 * i] += more;
}

// The gap of a site that follows no other one, which becomes the last of `sites_`.
double PinnedExpansions::settle_outside(std::size_t d, double loss) {
    links_.clear();
    if (takes_along_[d]) {
        const PottsEdges::Range edges = together_of(d);
        std::size_t n_links = 0;
        links_.resize(static_cast<std::size_t>(edges.end() - edges.begin()));
        for (const auto& [b, j] : edges) {
            links_[n_links] = {b, number_[static_cast<std::size_t>(j)]};
            n_links += slack_[static_cast<std::size_t>(j)] < b;
        }
        links_.resize(n_links);
    }
    sites_.push_back(static_cast<std::int32_t>(d));
    return cuts_.settle_outside(static_cast<std::int32_t>(sites_.size()) - 1, loss, links_);
}

void PinnedExpansions::pin(std::size_t label, double score, const std::uint8_t* wanted, double* values, std::int32_t* source,
                           CutPins* pins) {
    const std::size_t n = number_.size(), k = batch_.n_labels;
    bool any = false;
    for (std::size_t d = 0; d < n; ++d) {
        const std::size_t at = d * k + label;
        wanted_[d] = loss_[at] < infinity && (!wanted || wanted[at]);
        any |= wanted_[d];
    }
    if (!any) return;
    auto put = [&](std::size_t d, double gap) {
        const std::size_t at = d * k + label;
        const double value = score - std::max(0.0, gap);
        if (value <= values[at]) return;
        values[at] = value;
        source[at] = static_cast<std::int32_t>(label);
    };
    number_followers(label);
    load(label);
    solve();
    const std::size_t n_followers = sites_.size();
    wanted_followers_.resize(n_followers);
    for (std::size_t i = 0; i < n_followers; ++i) wanted_followers_[i] = wanted_[static_cast<std::size_t>(sites_[i])];
    cuts_.load(flow_, wanted_followers_.data(), nullptr);
    for (std::size_t d = 0; d < n; ++d)
        if (wanted_[d] && number_[d] < 0) put(d, settle_outside(d, loss_[d * k + label]));
    cuts_.settle_all();
    for (std::size_t i = 0; i < n_followers; ++i)
        if (wanted_followers_[i]) put(static_cast<std::size_t>(sites_[i]), cuts_.gap(static_cast<int>(i)));
    if (pins) keep(*pins, n_followers);
}

// The sets that have been found, by the sites of the example; those of sites that follow no other come first.
void PinnedExpansions::keep(CutPins& pins, std::size_t n_followers) const {
    const CutPins found = cuts_.pins();
    pins.free.assign(number_.size(), 0);
    pins.set_of.assign(number_.size(), -1);
    pins.set_begin = found.set_begin;
    pins.members.resize(found.members.size());
    for (std::size_t m = 0; m < found.members.size(); ++m)
        pins.members[m] = sites_[static_cast<std::size_t>(found.members[m])];
    for (std::size_t i = 0; i < sites_.size(); ++i)
        pins.set_of[static_cast<std::size_t>(sites_[i])] =
            i < n_followers ? found.set_of[i] : static_cast<std::int32_t>(i - n_followers);
}

}  // namespace perturbmap
