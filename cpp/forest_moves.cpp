#include "forest_moves.hpp"

#include <algorithm>
#include <utility>

namespace perturbmap {

void ForestMoves::select(std::size_t example, const Neighbours& neighbours, const std::vector<double>& weights) {
    neighbours_ = &neighbours;
    example_ = example;
    sets_ = std::make_shared<ForestSets>();
    sets_->site_offsets.assign(1, 0);
    sets_->edge_offsets.assign(1, 0);
    add_sets(false);
    n_ascending_ = sets_->size();
    add_sets(true);
    const std::size_t k = batch_.n_labels, n = sets_->sites.size(), m = sets_->edge_numbers.size();
    Tables tables = batch_.tables_of(example);
    if (!tables.are_shared()) {
        tables_.resize(m * k * k);
        for (std::size_t e = 0; e < m; ++e) {
            const double* table = tables[static_cast<std::size_t>(sets_->edge_numbers[e])];
            std::copy(table, table + k * k, tables_.begin() + static_cast<std::ptrdiff_t>(e * k * k));
        }
        tables = {tables_.data(), k * k};
    }
    unary_.resize(n * k);
    labels_.resize(n);
    old_.resize(n);
    moved_.resize(batch_.sites(example));
    view_ = {unary_.data(), 1, n, k, sets_->edges.data(), tables, sets_->site_offsets.data(), sets_->edge_offsets.data(),
             sets_->size(), nullptr};
    weights_ = &weights;
    inside_weights_.clear();
    if (!weights.empty())
        for (const std::int32_t e : sets_->edge_numbers) inside_weights_.push_back(weights[static_cast<std::size_t>(e)]);
    tree_ = std::make_unique<TreeDP>(view_, weights.empty() ? nullptr : inside_weights_.data());
}

// Shares all sites without a given label out to sets, in this order.
void ForestMoves::add_sets(bool descending) {
    const std::size_t n = batch_.sites(example_);
    const std::int32_t* given = batch_.given_of(example_);
    std::vector<std::vector<std::int32_t>> members;
    std::vector<std::int32_t> position(n, -1);
    set_of_.assign(n, -1);
    root_.resize(n);
    auto root_of = [&](std::int32_t x) {
        while (root_[x] != x) x = root_[x] = root_[root_[x]];
        return x;
    };
    std::vector<std::pair<std::int32_t, std::int32_t>> touched;  // set and root of the trees that the site would join
    for (std::size_t step = 0; step < n; ++step) {
        const std::int32_t d = static_cast<std::int32_t>(descending ? n - 1 - step : step);
        if (given && given[d] >= 0) continue;
        touched.clear();
        for (const Neighbour& other : neighbours_->of(static_cast<std::size_t>(d)))
            if (set_of_[other.site] >= 0) touched.emplace_back(set_of_[other.site], root_of(other.site));
        std::sort(touched.begin(), touched.end());
        // It may touch each tree of its set once.
        std::size_t set = 0;
        for (std::size_t i = 1; i < touched.size(); ++i)
            if (touched[i] == touched[i - 1] && touched[i].first == static_cast<std::int32_t>(set)) ++set;
        if (set == members.size()) members.emplace_back();
        members[set].push_back(d);
        set_of_[d] = static_cast<std::int32_t>(set);
        root_[d] = d;
        for (const auto& [other_set, root] : touched)
            if (other_set == static_cast<std::int32_t>(set)) root_[root] = d;
    }
    ForestSets& sets = *sets_;
    for (std::vector<std::int32_t>& group : members) {
        std::sort(group.begin(), group.end());
        for (const std::int32_t d : group) {
            position[d] = static_cast<std::int32_t>(sets.sites.size());
            sets.sites.push_back(d);
        }
        for (const std::int32_t d : group)
            for (const Neighbour& other : neighbours_->of(static_cast<std::size_t>(d))) {
                if (set_of_[other.site] != set_of_[d] || !other.is_second) continue;
                sets.edges.push_back(position[d]);
                sets.edges.push_back(position[other.site]);
                sets.edge_numbers.push_back(static_cast<std::int32_t>(other.edge));
            }
        sets.site_offsets.push_back(static_cast<std::int64_t>(sets.sites.size()));
        sets.edge_offsets.push_back(static_cast<std::int64_t>(sets.edge_numbers.size()));
    }
}

// The unary potentials of a set, given the labels outside.
void ForestMoves::load(const double* unary, std::size_t set, const std::int32_t* labels) {
    const std::vector<double>& weights = *weights_;
    const std::size_t k = batch_.n_labels;
    for (std::size_t p = view_.first_site(set); p < view_.first_site(set + 1); ++p) set_of_[sets_->sites[p]] = -2;
    for (std::size_t p = view_.first_site(set); p < view_.first_site(set + 1); ++p) {
        const std::size_t d = static_cast<std::size_t>(sets_->sites[p]);
        double* u = unary_.data() + p * k;
        std::copy(unary + d * k, unary + (d + 1) * k, u);
        old_[p] = labels[d];
        for (const Neighbour& other : neighbours_->of(d)) {
            if (set_of_[other.site] == -2) continue;
            if (!weights.empty()) {
                u[labels[other.site]] += weights[other.edge];
                continue;
            }
            const double* row = other.table + static_cast<std::size_t>(labels[other.site]) * other.label_stride;
            for (std::size_t a = 0; a < k; ++a) u[a] += row[a * other.own_stride];
        }
    }
    for (std::size_t p = view_.first_site(set); p < view_.first_site(set + 1); ++p) set_of_[sets_->sites[p]] = -1;
}

bool ForestMoves::improve(const double* unary, std::size_t set, std::int32_t* labels, double& score) {
    load(unary, set, labels);
    const std::size_t first = view_.first_site(set);
    const double best = tree_->maximise(0, set, labels_.data() + first);
    if (!(best > view_.score(view_.unary_of(0, set), set, old_.data() + first))) return false;
    std::copy(labels, labels + moved_.size(), moved_.begin());
    for (std::size_t p = first; p < view_.first_site(set + 1); ++p) moved_[sets_->sites[p]] = labels_[p];
    const double other = batch_.score(unary, example_, moved_.data());
    if (!(other > score)) return false;
    std::copy(moved_.begin(), moved_.end(), labels);
    score = other;
    return true;
}

void ForestMoves::pin(const double* unary, std::size_t set, const std::int32_t* labels, double score,
                      const std::uint8_t* wanted, double* values, std::int32_t* source,
                      std::int32_t number, TreePins* pins) {
    const std::size_t k = batch_.n_labels, first = view_.first_site(set), n = view_.sites(set);
    auto is_wanted = [&](std::int32_t d) {
        const std::uint8_t* asked = wanted + static_cast<std::size_t>(d) * k;
        return std::find(asked, asked + k, 1) != asked + k;
    };
    const auto sites = sets_->sites.begin() + static_cast<std::ptrdiff_t>(first);
    if (wanted && std::none_of(sites, sites + static_cast<std::ptrdiff_t>(n), is_wanted)) return;
    load(unary, set, labels);
    values_.resize(n * k);
    tree_->pin(0, set, nullptr, labels_.data() + first, values_.data(), pins);
    const double base = view_.score(view_.unary_of(0, set), set, old_.data() + first);
    for (std::size_t p = 0; p < n; ++p) {
        const std::size_t d = static_cast<std::size_t>(sets_->sites[first + p]);
        for (std::size_t a = 0; a < k; ++a) {
            const std::size_t at = d * k + a;
            if (a == static_cast<std::size_t>(labels[d]) || (wanted && !wanted[at])) continue;
            const double value = score + std::min(0.0, values_[p * k + a] - base);
            if (value <= values[at]) continue;
            values[at] = value;
            source[at] = number;
        }
    }
}

}  // namespace perturbmap
