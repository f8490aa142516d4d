#include "tree_best.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "pin_values.hpp"
#include "solvers.hpp"

namespace perturbmap {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_computed = -1;

// Candidates are sorted out when there are so many for each that is wanted, and so many besides.
constexpr std::size_t most_for_each = 2, most_besides = 32;

// The top of the heap is the candidate that costs the least.
constexpr auto is_later = [](const auto& a, const auto& b) { return b < a; };

}  // namespace

double TreeBest::work(const Batch& batch, std::size_t n) {
    return TreeSolver::work(batch) + 40.0 * static_cast<double>(batch.n_sites * n);
}

// By cost; among equals in an order that depends on nothing but the example.
bool TreeBest::Candidate::operator<(const Candidate& other) const {
    return std::tie(cost, from, position, deviation.label) <
           std::tie(other.cost, other.from, other.position, other.deviation.label);
}

std::size_t TreeBest::label_above(std::size_t found, std::size_t position) const {
    const std::int32_t parent = dp_.forest()[position].parent;
    return parent < 0 ? 0 : static_cast<std::size_t>(labels_of(found)[parent]);
}

TreeBest::Deviation TreeBest::next(std::size_t position, std::size_t above, Deviation after) const {
    const Forest& forest = dp_.forest();
    const TreeSite& site = forest[position];
    const std::size_t width = forest.n_labels();
    const double *up = dp_.up(position), *table = nullptr;
    std::size_t step = 1;
    std::int32_t best = labels_of(0)[position];  // of a root
    if (site.parent >= 0) {
        table = forest.tables()[static_cast<std::size_t>(site.edge)] + above * (site.parent_is_second ? 1 : width);
        step = site.parent_is_second ? width : 1;
        best = dp_.pointer(position, above);
    }
    auto value = [&](std::size_t k) { return table ? up[k] + table[k * step] : up[k]; };
    const double top = value(static_cast<std::size_t>(best));
    Deviation found{infinity, -1};
    for (std::size_t k = 0; k < width; ++k) {
        const double cost = top - value(k);
        const std::int32_t label = static_cast<std::int32_t>(k);
        if (cost < found.cost && label != best && (cost > after.cost || (cost == after.cost && label > after.label)))
            found = {cost, label};
    }
    return found;
}

const TreeBest::Deviation& TreeBest::first(std::size_t position, std::size_t above) {
    Deviation& kept = first_[position * dp_.forest().n_labels() + above];
    if (kept.cost == not_computed) kept = next(position, above, {-1.0, -1});
    return kept;
}

void TreeBest::propose(const Candidate& candidate, std::size_t n_wanted) {
    if (candidate.deviation.label < 0 || candidate.cost > limit_) return;
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end(), is_later);
    if (heap_.size() < most_for_each * n_wanted + most_besides) return;
    const auto last = heap_.begin() + static_cast<std::ptrdiff_t>(n_wanted - 1);
    std::nth_element(heap_.begin(), last, heap_.end());
    limit_ = last->cost;
    heap_.resize(n_wanted);
    std::make_heap(heap_.begin(), heap_.end(), is_later);
}

void TreeBest::propose_deviations(std::size_t found, std::size_t n_wanted) {
    for (std::size_t p = positions_[found]; p < dp_.forest().n_sites(); ++p) {
        const Deviation& deviation = first(p, label_above(found, p));
        propose({costs_[found] + deviation.cost, found, p, deviation}, n_wanted);
    }
}

void TreeBest::find(const Candidate& candidate) {
    const Forest& forest = dp_.forest();
    const std::size_t n = forest.n_sites(), found = costs_.size();
    labels_.resize((found + 1) * n);
    std::int32_t* labels = labels_.data() + found * n;
    std::copy_n(labels_of(candidate.from), candidate.position, labels);
    labels[candidate.position] = candidate.deviation.label;
    for (std::size_t p = candidate.position + 1; p < n; ++p) {
        const std::int32_t parent = forest[p].parent;
        labels[p] = parent < 0 ? labels_[p] : dp_.pointer(p, static_cast<std::size_t>(labels[parent]));
    }
    costs_.push_back(candidate.cost);
    positions_.push_back(candidate.position + 1);
}

void TreeBest::run(std::size_t copy, std::size_t example, std::size_t n, std::int32_t* labels, std::size_t label_stride,
                   double* values, std::size_t value_stride) {
    const Batch& batch = dp_.forest().batch();
    const std::size_t n_sites = batch.sites(example);
    for (std::size_t r = 0; r < n; ++r) {
        std::fill_n(labels + r * label_stride, n_sites, -1);
        values[r * value_stride] = impossible;
    }
    if (n == 0) return;
    values[0] = dp_.maximise(copy, example, labels);
    if (values[0] == impossible) {
        std::fill_n(labels, n_sites, -1);
        return;
    }

    const Forest& forest = dp_.forest();
    labels_.resize(n_sites);
    for (std::size_t p = 0; p < n_sites; ++p) labels_[p] = labels[forest[p].site];
    costs_.assign(1, 0.0);
    positions_.assign(1, 0);
    heap_.clear();
    limit_ = infinity;
    first_.assign(n_sites * forest.n_labels(), {not_computed, -1});
    while (costs_.size() < n) {
        const std::size_t found = costs_.size();
        propose_deviations(found - 1, n - found);
        if (heap_.empty()) return;
        std::pop_heap(heap_.begin(), heap_.end(), is_later);
        const Candidate candidate = heap_.back();
        heap_.pop_back();
        find(candidate);

        std::int32_t* out = labels + found * label_stride;
        for (std::size_t p = 0; p < n_sites; ++p) out[forest[p].site] = labels_of(found)[p];
        values[found * value_stride] = batch.score(batch.unary_of(copy, example), example, out);
        if (costs_.size() == n) return;
        const Deviation other =
            next(candidate.position, label_above(candidate.from, candidate.position), candidate.deviation);
        propose({costs_[candidate.from] + other.cost, candidate.from, candidate.position, other}, n - costs_.size());
    }
}

}  // namespace perturbmap
