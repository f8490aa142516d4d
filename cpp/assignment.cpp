#include "assignment.hpp"

#include <algorithm>
#include <limits>

#include "pin_values.hpp"

namespace perturbmap {

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
}  // namespace

// Clamped at zero: below it lies only rounding.
double Assignment::reduced(std::size_t row, std::size_t column) const {
    return std::max(0.0, -unary_[row * k_ + column] - row_price_[row] - column_price_[column]);
}

double Assignment::maximise(const AssignmentProblem& problem, std::int32_t* labels) {
    unary_ = problem.unary;
    n_ = problem.n_sites;
    k_ = problem.n_labels;
    labels_.assign(n_, -1);
    owner_.assign(k_, -1);
    row_price_.assign(n_, 0.0);
    column_price_.assign(k_, 0.0);
    rows_.clear();
    columns_.clear();
    for (std::size_t d = 0; d < n_; ++d) {
        if (problem.given && problem.given[d] >= 0) {
            labels_[d] = problem.given[d];
            owner_[problem.given[d]] = static_cast<std::int32_t>(d);
        } else {
            rows_.push_back(static_cast<std::int32_t>(d));
        }
    }
    for (std::size_t k = 0; k < k_; ++k)
        if (owner_[k] < 0) columns_.push_back(static_cast<std::int32_t>(k));
    for (const std::int32_t d : rows_)
        if (!augment(static_cast<std::size_t>(d))) return impossible;
    std::copy(labels_.begin(), labels_.end(), labels);
    double value = 0;
    for (std::size_t d = 0; d < n_; ++d) value += unary_[d * k_ + static_cast<std::size_t>(labels_[d])];
    return value;
}

// Dijkstra over the labels from a site without one to the nearest unused label; then prices and owners
// along the path are brought up to date. False where there is no path: forbidden labels leave no matching.
bool Assignment::augment(std::size_t row) {
    distance_.assign(k_, infinity);
    previous_.assign(k_, -1);  // the label through whose owner a label was reached; -1: from `row`
    done_.assign(k_, 0);
    std::int32_t via = -1, target = -1;
    double reached = 0;
    row_price_[row] = -infinity;
    for (const std::int32_t k : columns_)
        row_price_[row] = std::max(row_price_[row], unary_[row * k_ + static_cast<std::size_t>(k)] + column_price_[static_cast<std::size_t>(k)]);
    row_price_[row] = -row_price_[row];
    if (row_price_[row] == infinity) return false;
    std::size_t current = row;
    while (target < 0) {
        std::int32_t nearest = -1;
        for (const std::int32_t k : columns_) {
            if (done_[k]) continue;
            const double through = reached + reduced(current, static_cast<std::size_t>(k));
            if (through < distance_[k]) {
                distance_[k] = through;
                previous_[k] = via;
            }
            if (nearest < 0 || distance_[k] < distance_[nearest]) nearest = k;
        }
        if (nearest < 0 || distance_[nearest] == infinity) return false;
        reached = distance_[nearest];
        done_[nearest] = 1;
        via = nearest;
        if (owner_[nearest] < 0)
            target = nearest;
        else
            current = static_cast<std::size_t>(owner_[nearest]);
    }
    row_price_[row] += reached;
    for (const std::int32_t k : columns_)
        if (done_[k] && k != target) {
            row_price_[owner_[k]] += reached - distance_[k];
            column_price_[k] -= reached - distance_[k];
        }
    for (std::int32_t k = target; k >= 0;) {
        const std::int32_t before = previous_[k];
        const std::int32_t site = before < 0 ? static_cast<std::int32_t>(row) : owner_[before];
        owner_[k] = site;
        labels_[site] = k;
        k = before;
    }
    return true;
}

// Lists the sites that chains run through, and the best unused label of each.
void Assignment::find_unused() {
    best_unused_.assign(n_, -1);
    bool any_unused = false;
    for (const std::int32_t k : columns_) {
        if (owner_[k] >= 0) continue;
        any_unused = true;
        for (const std::int32_t site : rows_) {
            const double* u = unary_ + static_cast<std::size_t>(site) * k_;
            if (best_unused_[site] < 0 || u[k] > u[best_unused_[site]]) best_unused_[site] = k;
        }
    }
    chain_sites_ = rows_;
    if (any_unused) chain_sites_.push_back(static_cast<std::int32_t>(n_));
}

// Marks the owners of the labels that are wanted at d, other than d; returns their number.
std::size_t Assignment::find_targets(std::size_t d, const std::uint8_t* wanted) {
    is_target_.assign(n_ + 1, 0);
    for (const std::int32_t k : columns_)
        if (!wanted || wanted[k]) is_target_[owner(static_cast<std::size_t>(k))] = 1;
    is_target_[d] = 0;
    return static_cast<std::size_t>(std::count(is_target_.begin(), is_target_.end(), 1));
}

// For every site r, up to the farthest of the targets: distance_[r], the least cost of r giving up its label when d
// has left its own, and next_label_[r], the label it then takes. order_ lists the sites by distance. All unused
// labels together count as one more site, number n_: it takes any label for free, which leaves that label unused.
void Assignment::shortest_chains(std::size_t d, std::size_t n_targets) {
    const std::size_t left = static_cast<std::size_t>(labels_[d]);
    distance_.assign(n_ + 1, infinity);
    next_label_.assign(n_ + 1, -1);
    done_.assign(n_ + 1, 0);
    order_.clear();
    auto cost = [&](std::size_t r, std::size_t label) {
        return r == n_ ? std::max(0.0, -column_price_[label]) : reduced(r, label);
    };
    auto offer = [&](std::size_t r, std::size_t label, double distance) {
        if (distance < distance_[r]) {
            distance_[r] = distance;
            next_label_[r] = static_cast<std::int32_t>(label);
        }
    };
    for (const std::int32_t r : chain_sites_)
        if (static_cast<std::size_t>(r) != d) offer(static_cast<std::size_t>(r), left, cost(static_cast<std::size_t>(r), left));
    while (true) {
        std::int32_t nearest = -1;
        for (const std::int32_t r : chain_sites_)
            if (!done_[r] && static_cast<std::size_t>(r) != d && (nearest < 0 || distance_[r] < distance_[nearest]))
                nearest = r;
        if (nearest < 0 || distance_[nearest] == infinity) return;  // forbidden labels are on all further chains
        done_[nearest] = 1;
        order_.push_back(nearest);
        n_targets -= is_target_[nearest];
        if (n_targets == 0) return;
        for (const std::int32_t site : chain_sites_) {
            const std::size_t r = static_cast<std::size_t>(site);
            if (done_[r] || r == d) continue;
            const std::size_t label = static_cast<std::size_t>(
                static_cast<std::size_t>(nearest) == n_ ? best_unused_[r] : labels_[nearest]);
            offer(r, label, cost(r, label) + distance_[nearest]);
        }
    }
}

void Assignment::pin(const AssignmentProblem& problem, const std::uint8_t* wanted, std::int32_t* labels, double* values,
                     AssignmentPins* pins) {
    const double value = maximise(problem, labels);
    if (value == impossible) {
        std::fill(values, values + n_ * k_, impossible);
        return;
    }
    find_unused();
    if (pins) {
        *pins = {n_, k_, labels_, std::vector<std::int32_t>(k_), {0}, {}, {}};
        for (std::size_t k = 0; k < k_; ++k) pins->owner[k] = static_cast<std::int32_t>(owner(k));
    }
    for (std::size_t d = 0; d < n_; ++d) {
        const std::size_t label = static_cast<std::size_t>(labels_[d]);
        const std::uint8_t* asked = wanted ? wanted + d * k_ : nullptr;
        const bool is_given = problem.given && problem.given[d] >= 0;
        const std::size_t n_targets = is_given ? 0 : find_targets(d, asked);
        double* out = values + d * k_;
        std::fill(out, out + k_, impossible);
        order_.clear();
        if (n_targets > 0) {
            shortest_chains(d, n_targets);
            for (const std::int32_t column : columns_) {
                const std::size_t k = static_cast<std::size_t>(column);
                out[k] = value - (reduced(d, k) + distance_[owner(k)]);
            }
        }
        for (std::size_t k = 0; asked && k < k_; ++k) out[k] = asked[k] ? out[k] : not_wanted;
        out[label] = value;
        if (!pins) continue;
        for (const std::int32_t r : order_) pins->next_label.push_back(next_label_[r]);
        pins->order.insert(pins->order.end(), order_.begin(), order_.end());
        pins->order_begin.push_back(pins->order.size());
    }
}

void AssignmentPins::add_moments(const double* weights, double* moments) const {
    const std::size_t n = n_sites, m = n_labels;
    // A site that a pin does not move keeps its label: all weights there first, then the moves.
    double everything = 0;
    for (std::size_t i = 0; i < n * m; ++i) everything += weights[i];
    for (std::size_t r = 0; r < n; ++r) moments[r * m + static_cast<std::size_t>(labels[r])] += everything;
    std::vector<double> mass(n + 1);
    auto move = [&](std::size_t r, std::size_t to, double weight) {
        moments[r * m + to] += weight;
        moments[r * m + static_cast<std::size_t>(labels[r])] -= weight;
    };
    for (std::size_t d = 0; d < n; ++d) {
        const std::size_t label = static_cast<std::size_t>(labels[d]);
        std::fill(mass.begin(), mass.end(), 0.0);
        for (std::size_t k = 0; k < m; ++k) {
            const double weight = weights[d * m + k];
            if (k == label || weight == 0) continue;
            move(d, k, weight);
            mass[owner[k]] += weight;
        }
        // The farthest site first: each hands its weight to the owner of the label it takes.
        for (std::size_t i = order_begin[d + 1]; i-- > order_begin[d];) {
            const std::size_t r = static_cast<std::size_t>(order[i]), next = static_cast<std::size_t>(next_label[i]);
            if (mass[r] == 0) continue;
            if (next != label) mass[owner[next]] += mass[r];
            if (r != n) move(r, next, mass[r]);
        }
    }
}

}  // namespace perturbmap
