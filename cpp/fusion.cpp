#include "fusion.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pin_values.hpp"

namespace perturbmap {

void Fusion::select(std::size_t example, const Neighbours& neighbours) {
    neighbours_ = &neighbours;
    example_ = example;
    const std::size_t n = batch_.sites(example_), m = batch_.n_edges(example_);
    flow_.set_edges(static_cast<int>(n), static_cast<std::int32_t>(batch_.first_site(example_)), batch_.edges_of(example_),
                    static_cast<int>(m));
    unary_.resize(2 * n);
    tables_.resize(4 * m);
    held_.resize(n);
    moved_.resize(n);
    proposal_.resize(n);
    is_member_.assign(n, 0);
}

// The binary problem: 0 keeps the label, 1 takes the proposal.
void Fusion::load(const double* unary, std::size_t proposal, const std::int32_t* labels) {
    const std::size_t n = batch_.sites(example_), m = batch_.n_edges(example_), k = batch_.n_labels;
    const std::size_t first = batch_.first_site(example_);
    const std::int32_t *edges = batch_.edges_of(example_), *given = batch_.given_of(example_);
    const Tables tables = batch_.tables_of(example_);
    for (std::size_t d = 0; d < n; ++d) {
        const std::size_t label = static_cast<std::size_t>(labels[d]), other = proposed(proposal, label, k);
        proposal_[d] = static_cast<std::int32_t>(other);
        unary_[2 * d] = unary[d * k + label];
        unary_[2 * d + 1] = unary[d * k + other];
        held_[d] = label == other || (given && given[d] >= 0) || unary_[2 * d + 1] == impossible ? 0 : -1;
    }
    is_truncated_ = false;
    for (std::size_t e = 0; e < m; ++e) {
        const std::size_t i = static_cast<std::size_t>(edges[2 * e]) - first;
        const std::size_t j = static_cast<std::size_t>(edges[2 * e + 1]) - first;
        const std::size_t a = static_cast<std::size_t>(labels[i]), b = static_cast<std::size_t>(labels[j]);
        const std::size_t p = held_[i] ? static_cast<std::size_t>(proposal_[i]) : a;
        const std::size_t q = held_[j] ? static_cast<std::size_t>(proposal_[j]) : b;
        double* t = tables_.data() + 4 * e;
        const double* table = tables[e];
        t[0] = table[a * k + b];
        t[1] = table[a * k + q];
        t[2] = table[p * k + b];
        t[3] = table[p * k + q];
        const double lack = (t[1] - t[0]) + (t[2] - t[3]);
        if (lack > 0) {
            t[1] -= 0.5 * lack;
            t[2] -= 0.5 * lack;
            // Tables that are sums miss the inequality by rounding.
            is_truncated_ |= lack > 1e-12 * (std::abs(t[0]) + std::abs(t[3]));
        }
    }
}

// Whether the cut has sites take what is proposed; the labels are in moved_ then.
bool Fusion::cut(const std::int32_t* labels) {
    flow_.set_tables({tables_.data(), 4}, held_.data());
    flow_.solve(unary_.data());
    std::copy(labels, labels + held_.size(), moved_.begin());
    bool has_moved = false;
    for (std::size_t d = 0; d < held_.size(); ++d) {
        if (held_[d] == 0 || !flow_.label(static_cast<int>(d))) continue;
        moved_[d] = proposal_[d];
        has_moved = true;
    }
    return has_moved;
}

// A cut in which all sites keep their labels, although rounding may say that others are as good: they get an advantage,
// as small as will do beside the largest potential. Gains are counted without it. Whether none was needed.
bool Fusion::cut_keeping(const std::int32_t* labels) {
    if (!cut(labels)) return true;
    double largest = 0;
    for (std::size_t d = 0; d < held_.size(); ++d) largest = std::max(largest, std::abs(unary_[2 * d]));
    for (const double t : tables_) largest = std::max(largest, std::abs(t));
    for (double advantage = std::max(1e-13 * largest, std::numeric_limits<double>::min());; advantage *= 1e3) {
        for (std::size_t d = 0; d < held_.size(); ++d) unary_[2 * d] += advantage;
        if (!cut(labels)) return false;
    }
}

// How much the score rises if these sites take what is proposed to them.
double Fusion::gain(const double* unary, const std::int32_t* labels, const std::int32_t* first,
                    const std::int32_t* last) {
    const std::size_t k = batch_.n_labels;
    for (const std::int32_t* d = first; d != last; ++d) is_member_[*d] = 1;
    double total = 0;
    for (const std::int32_t* d = first; d != last; ++d) {
        const std::size_t i = static_cast<std::size_t>(*d);
        const std::size_t a = static_cast<std::size_t>(labels[i]), p = static_cast<std::size_t>(proposal_[i]);
        total += unary[i * k + p] - unary[i * k + a];
        for (const Neighbour& other : neighbours_->of(i)) {
            const std::size_t b = static_cast<std::size_t>(labels[other.site]);
            if (!is_member_[other.site])
                total += other.at(p, b) - other.at(a, b);
            else if (other.site > *d)
                total += other.at(p, static_cast<std::size_t>(proposal_[other.site])) - other.at(a, b);
        }
    }
    for (const std::int32_t* d = first; d != last; ++d) is_member_[*d] = 0;
    return total;
}

// The true gains of the pins of wanted sites (all where it is null), in gain_, by set. Where the cut is that of the true
// potentials, they are what it says; elsewhere a site that does better alone gets a set of its own.
void Fusion::find_gains(const double* unary, const std::int32_t* labels, const std::uint8_t* wanted, bool is_exact) {
    const std::size_t n = batch_.sites(example_);
    cuts_.run(flow_, wanted, held_.data());
    pins_ = cuts_.pins();
    gain_.resize(pins_.set_begin.size() - 1);
    if (is_exact) {
        for (std::size_t d = 0; d < n; ++d)
            if (pins_.set_of[d] >= 0) gain_[static_cast<std::size_t>(pins_.set_of[d])] = -cuts_.gap(static_cast<int>(d));
        return;
    }
    for (std::size_t s = 0; s < gain_.size(); ++s)
        gain_[s] = gain(unary, labels, pins_.members.data() + pins_.set_begin[s],
                        pins_.members.data() + pins_.set_begin[s + 1]);
    for (std::size_t d = 0; d < n; ++d) {
        if (pins_.set_of[d] < 0) continue;
        const std::int32_t site = static_cast<std::int32_t>(d);
        const double alone = gain(unary, labels, &site, &site + 1);
        if (!(alone > gain_[static_cast<std::size_t>(pins_.set_of[d])])) continue;
        pins_.set_of[d] = static_cast<std::int32_t>(gain_.size());
        pins_.members.push_back(site);
        pins_.set_begin.push_back(pins_.members.size());
        gain_.push_back(alone);
    }
}

bool Fusion::improve(const double* unary, std::size_t proposal, std::int32_t* labels, double& score) {
    load(unary, proposal, labels);
    const bool has_moved = cut(labels);
    if (has_moved && take(unary, labels, score)) return true;
    if (!is_truncated_) return false;
    if (has_moved) cut_keeping(labels);
    find_gains(unary, labels, nullptr, false);
    const auto best = std::max_element(gain_.begin(), gain_.end());
    if (best == gain_.end() || !(*best > 0)) return false;
    const std::size_t s = static_cast<std::size_t>(best - gain_.begin());
    std::copy(labels, labels + held_.size(), moved_.begin());
    for (std::size_t i = pins_.set_begin[s]; i < pins_.set_begin[s + 1]; ++i)
        moved_[pins_.members[i]] = proposal_[pins_.members[i]];
    return take(unary, labels, score);
}

// Takes moved_ for the labels if its score is higher.
bool Fusion::take(const double* unary, std::int32_t* labels, double& score) {
    const double other = batch_.score(unary, example_, moved_.data());
    if (!(other > score)) return false;
    std::copy(moved_.begin(), moved_.end(), labels);
    score = other;
    return true;
}

void Fusion::pin(const double* unary, std::size_t proposal, const std::int32_t* labels, double score,
                 const std::uint8_t* wanted, double* values, std::int32_t* source, CutPins* pins) {
    const std::size_t width = batch_.n_labels;
    load(unary, proposal, labels);
    if (wanted) {
        wanted_sites_.resize(held_.size());
        bool any = false;
        for (std::size_t d = 0; d < held_.size(); ++d)
            any |= wanted_sites_[d] = held_[d] && wanted[d * width + static_cast<std::size_t>(proposal_[d])];
        if (!any) return;
    }
    const bool is_exact = cut_keeping(labels) && !is_truncated_;
    find_gains(unary, labels, wanted ? wanted_sites_.data() : nullptr, is_exact);
    for (std::size_t d = 0; d < held_.size(); ++d) {
        const std::size_t at = d * width + static_cast<std::size_t>(proposal_[d]);
        if (held_[d] == 0 || (wanted && !wanted[at])) continue;
        const double value = score + std::min(0.0, gain_[static_cast<std::size_t>(pins_.set_of[d])]);
        if (value <= values[at]) continue;
        values[at] = value;
        source[at] = static_cast<std::int32_t>(proposal);
    }
    if (pins) *pins = pins_;
}

}  // namespace perturbmap
