#include "graph_search.hpp"

#include <algorithm>
#include <limits>

#include "philox.hpp"
#include "pin_values.hpp"

namespace perturbmap {

namespace {
// Passes of messages for a second start, and for a bound.
constexpr int n_passes_to_start = 30, n_passes_to_bound = 200;
}  // namespace

double GraphSearch::work(const Batch& batch, int effort) {
    const double k = static_cast<double>(batch.n_labels);
    return effort * static_cast<double>(batch.n_sites) * (1000 * k + 2 * k * k);
}

void GraphSearch::select(std::size_t example) {
    if (example == example_) return;
    example_ = example;
    neighbours_.set(batch_, example);
    read_potts(batch_.tables_of(example), batch_.n_edges(example), batch_.n_labels, weights_);
    if (!weights_.empty()) {
        potts_.set(batch_, example, weights_);
        expansion_.select(example, potts_);
        pinned_expansions_.select(example, potts_);
    } else {
        fusion_.select(example, neighbours_);
    }
    forests_.select(example, neighbours_, weights_);
    messages_.select(example, neighbours_);
}

// Moves labels until no move improves them; returns their score.
double GraphSearch::climb(const double* unary, std::int32_t* labels) {
    double score = batch_.score(unary, example_, labels);
    for (std::size_t set = 0; set < n_sets_; ++set) forests_.improve(unary, set, labels, score);
    for (bool has_improved = true; has_improved;) {
        for (std::size_t n_idle = 0, p = 0; n_idle < n_proposals_; p = (p + 1) % n_proposals_) {
            n_idle = fuse(unary, p, labels, score) ? 0 : n_idle + 1;
        }
        has_improved = false;
        for (std::size_t set = 0; set < n_sets_; ++set) has_improved |= forests_.improve(unary, set, labels, score);
    }
    return score;
}

// One move to the labels of a proposal; whether it improves. Potts tables need no others than expansions.
bool GraphSearch::fuse(const double* unary, std::size_t proposal, std::int32_t* labels, double& score) {
    if (!weights_.empty()) return expansion_.improve(unary, proposal, labels, score);
    const bool has_improved = fusion_.improve(unary, proposal, labels, score);
    if (fusion_.is_truncated()) use_everything();
    return has_improved;
}

void GraphSearch::use_everything() {
    n_proposals_ = Fusion::n_proposals(batch_.n_labels);
    n_sets_ = forests_.sets()->size();
}

double GraphSearch::maximise(std::size_t copy, std::size_t example, std::int32_t* labels) {
    select(example);
    const double* unary = batch_.unary_of(copy, example);
    const std::size_t n = batch_.sites(example), k = batch_.n_labels;
    const std::int32_t* given = batch_.given_of(example);
    for (std::size_t d = 0; d < n; ++d) {
        const double* u = unary + d * k;
        labels[d] = given && given[d] >= 0 ? given[d] : static_cast<std::int32_t>(std::max_element(u, u + k) - u);
    }
    n_proposals_ = k;
    n_sets_ = forests_.n_ascending();
    double score = climb(unary, labels);
    const bool is_truncated = n_proposals_ > k;
    if (k <= 2 && !is_truncated) return score;
    other_.resize(n);
    for (int start = is_truncated ? 0 : 1; start < effort_; ++start) {
        if (start == 0) {
            messages_.run(unary, n_passes_to_start, 1e-6, score, other_.data());
        } else {
            std::copy(labels, labels + n, other_.begin());
            shake(unary, static_cast<std::uint32_t>(start), other_.data());
        }
        const std::size_t n_proposals = n_proposals_, n_sets = n_sets_;
        const double other = climb(unary, other_.data());
        if (other <= score) {
            n_proposals_ = n_proposals;  // what the labels were tried with
            n_sets_ = n_sets;
            continue;
        }
        std::copy(other_.begin(), other_.end(), labels);
        score = other;
    }
    return score;
}

// Gives random labels to a random site and those around it, a quarter of all sites at most; none that is forbidden.
void GraphSearch::shake(const double* unary, std::uint32_t number, std::int32_t* labels) {
    const std::size_t n = batch_.sites(example_), k = batch_.n_labels;
    const std::int32_t* given = batch_.given_of(example_);
    std::uint64_t bits[2 * lanes];
    std::uint32_t block = 0;
    std::size_t next = 2 * lanes;
    auto below = [&](std::size_t count) {
        if (next == 2 * lanes) {
            philox(0, 0, number, block, bits);
            block += static_cast<std::uint32_t>(lanes);
            next = 0;
        }
        return static_cast<std::size_t>(uniform_of(bits[next++]) * static_cast<double>(count));
    };
    const std::size_t size = 2 + below(n / 4 + 1);
    is_in_part_.assign(n, 0);
    part_.assign(1, static_cast<std::int32_t>(below(n)));
    is_in_part_[static_cast<std::size_t>(part_[0])] = 1;
    for (std::size_t i = 0; i < part_.size() && i < size; ++i) {
        const std::size_t d = static_cast<std::size_t>(part_[i]);
        if (!given || given[d] < 0) {
            const std::size_t label = below(k);
            if (unary[d * k + label] != impossible) labels[d] = static_cast<std::int32_t>(label);
        }
        for (const Neighbour& other : neighbours_.of(d)) {
            if (is_in_part_[other.site]) continue;
            is_in_part_[other.site] = 1;
            part_.push_back(other.site);
        }
    }
}

void GraphSearch::pin(std::size_t copy, std::size_t example, const std::uint8_t* wanted, std::int32_t* labels,
                      double* values, Pins* pins) {
    const double score = maximise(copy, example, labels);
    const double* unary = batch_.unary_of(copy, example);
    const std::size_t n = batch_.sites(example), k = batch_.n_labels;
    std::fill(values, values + n * k, impossible);
    source_.assign(n * k, SearchPins::nowhere);
    if (pins) {
        pins->fusions.resize(n_proposals_);
        pins->forests.resize(n_sets_);
    }
    const bool is_potts = !weights_.empty();
    if (is_potts) pinned_expansions_.set_labels(unary, labels);
    for (std::size_t p = 0; p < n_proposals_; ++p) {
        CutPins* const kept = pins ? &pins->fusions[p] : nullptr;
        if (is_potts)
            pinned_expansions_.pin(p, score, wanted, values, source_.data(), kept);
        else
            fusion_.pin(unary, p, labels, score, wanted, values, source_.data(), kept);
    }
    for (std::size_t set = 0; set < n_sets_; ++set)
        forests_.pin(unary, set, labels, score, wanted, values, source_.data(),
                     static_cast<std::int32_t>(n_proposals_ + set), pins ? &pins->forests[set] : nullptr);
    for (std::size_t d = 0; d < n; ++d)
        for (std::size_t a = 0; a < k; ++a) {
            if (static_cast<std::size_t>(labels[d]) == a)
                values[d * k + a] = score;
            else if (wanted && !wanted[d * k + a])
                values[d * k + a] = not_wanted;
        }
    if (!pins) return;
    pins->free.assign(labels, labels + n);
    pins->source = source_;
    pins->sets = forests_.sets();
}

double GraphSearch::bound(std::size_t copy, std::size_t example, double score) {
    select(example);
    other_.resize(batch_.sites(example));
    return messages_.run(batch_.unary_of(copy, example), n_passes_to_bound, 1e-7, score, other_.data());
}

void SearchPins::add_moments(const Batch& batch, std::size_t example, const double* weights, double* unary,
                             double* pairwise, std::size_t stride) const {
    const std::size_t n = free.size(), k = batch.n_labels, first = batch.first_site(example);
    const std::int32_t* edges = batch.edges_of(example);
    double total = 0;
    for (std::size_t i = 0; i < n * k; ++i) total += weights[i];
    for (std::size_t d = 0; d < n; ++d) unary[d * k + label_of(d)] += total;
    for (std::size_t e = 0; e < batch.n_edges(example); ++e) {
        const std::size_t i = static_cast<std::size_t>(edges[2 * e]) - first;
        const std::size_t j = static_cast<std::size_t>(edges[2 * e + 1]) - first;
        pairwise[e * stride + label_of(i) * k + label_of(j)] += total;
    }
    std::vector<std::uint8_t> is_used(fusions.size() + forests.size(), 0);
    for (std::size_t i = 0; i < n * k; ++i)
        if (weights[i] != 0 && source[i] != nowhere) is_used[static_cast<std::size_t>(source[i])] = 1;
    for (std::size_t p = 0; p < fusions.size(); ++p)
        if (is_used[p]) add_fusion(batch, example, p, weights, unary, pairwise, stride);
    for (std::size_t s = 0; s < forests.size(); ++s)
        if (is_used[fusions.size() + s]) add_forest(batch, example, s, weights, unary, pairwise, stride);
}

void SearchPins::add_fusion(const Batch& batch, std::size_t example, std::size_t proposal, const double* weights,
                            double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = free.size(), k = batch.n_labels, first = batch.first_site(example);
    const std::int32_t* edges = batch.edges_of(example);
    std::vector<double> of_pin(n);
    auto taken = [&](std::size_t d) { return Fusion::proposed(proposal, label_of(d), k); };
    for (std::size_t d = 0; d < n; ++d) {
        const std::size_t at = d * k + taken(d);
        of_pin[d] = source[at] == static_cast<std::int32_t>(proposal) ? weights[at] : 0.0;
    }
    const FlipWeights flips(fusions[proposal], of_pin.data());
    for (std::size_t d = 0; d < n; ++d) {
        unary[d * k + label_of(d)] -= flips.of(d);
        unary[d * k + taken(d)] += flips.of(d);
    }
    for (std::size_t e = 0; e < batch.n_edges(example); ++e) {
        const std::size_t i = static_cast<std::size_t>(edges[2 * e]) - first;
        const std::size_t j = static_cast<std::size_t>(edges[2 * e + 1]) - first;
        if (flips.of(i) == 0 && flips.of(j) == 0) continue;
        const double both = flips.of_both(i, j), only_i = flips.of(i) - both, only_j = flips.of(j) - both;
        double* out = pairwise + e * stride;
        out[label_of(i) * k + label_of(j)] -= only_i + only_j + both;
        out[taken(i) * k + label_of(j)] += only_i;
        out[label_of(i) * k + taken(j)] += only_j;
        out[taken(i) * k + taken(j)] += both;
    }
}

void SearchPins::add_forest(const Batch& batch, std::size_t example, std::size_t set, const double* weights,
                            double* unary, double* pairwise, std::size_t stride) const {
    const std::size_t n = free.size(), k = batch.n_labels, first = batch.first_site(example);
    const std::int32_t* edges = batch.edges_of(example);
    const std::size_t begin = static_cast<std::size_t>(sets->site_offsets[set]);
    const std::size_t size = static_cast<std::size_t>(sets->site_offsets[set + 1]) - begin;
    const std::size_t first_edge = static_cast<std::size_t>(sets->edge_offsets[set]);
    const std::size_t n_inside = static_cast<std::size_t>(sets->edge_offsets[set + 1]) - first_edge;
    std::vector<double> of_pin(size * k, 0.0), inside(size * k, 0.0), tables(n_inside * k * k, 0.0);
    std::vector<std::int32_t> position(n, -1);
    double total = 0;
    for (std::size_t p = 0; p < size; ++p) {
        const std::size_t d = static_cast<std::size_t>(sets->sites[begin + p]);
        position[d] = static_cast<std::int32_t>(p);
        for (std::size_t a = 0; a < k; ++a) {
            if (source[d * k + a] != static_cast<std::int32_t>(fusions.size() + set)) continue;
            of_pin[p * k + a] = weights[d * k + a];
            total += weights[d * k + a];
        }
    }
    forests[set].add_moments(of_pin.data(), inside.data(), tables.data(), k * k);
    for (std::size_t p = 0; p < size; ++p) {
        const std::size_t d = static_cast<std::size_t>(sets->sites[begin + p]);
        unary[d * k + label_of(d)] -= total;
        for (std::size_t a = 0; a < k; ++a) unary[d * k + a] += inside[p * k + a];
    }
    for (std::size_t e = 0; e < n_inside; ++e) {
        double* out = pairwise + static_cast<std::size_t>(sets->edge_numbers[first_edge + e]) * stride;
        for (std::size_t a = 0; a < k * k; ++a) out[a] += tables[e * k * k + a];
    }
    for (std::size_t e = 0; e < batch.n_edges(example); ++e) {
        const std::size_t i = static_cast<std::size_t>(edges[2 * e]) - first;
        const std::size_t j = static_cast<std::size_t>(edges[2 * e + 1]) - first;
        if (position[i] < 0 && position[j] < 0) continue;
        double* out = pairwise + e * stride;
        out[label_of(i) * k + label_of(j)] -= total;
        if (position[i] >= 0 && position[j] >= 0) continue;
        // The edge leaves the set: its other end has its free label.
        const std::size_t p = static_cast<std::size_t>(std::max(position[i], position[j]));
        for (std::size_t a = 0; a < k; ++a)
            out[position[i] < 0 ? label_of(i) * k + a : a * k + label_of(j)] += inside[p * k + a];
    }
}

}  // namespace perturbmap
