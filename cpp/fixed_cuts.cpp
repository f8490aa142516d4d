#include "fixed_cuts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "parallel.hpp"
#include "pinned_cuts.hpp"

namespace perturbmap {

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
// The work of a pin or of a branch, roughly; it only decides how many threads are worth starting. Measured on grids of
// 280 and 1,000 sites: 20 to 60 for each site.
constexpr double nanoseconds_per_site = 30;

void set_graph(MaxFlow& flow, const Batch& batch) {
    flow.set_graph(static_cast<int>(batch.sites(0)), static_cast<std::int32_t>(batch.first_site(0)), batch.edges_of(0),
                   static_cast<int>(batch.n_edges(0)), batch.tables_of(0), batch.given_of(0));
}
}  // namespace

FixedCuts::FixedCuts(const Batch& batch, int n_threads) : n_sites_(batch.n_sites), n_copies_(batch.n_copies) {
    if (batch.n_examples != 1 || batch.n_labels != 2)
        throw std::invalid_argument("labels are fixed in one example, which has two labels");
    MaxFlow flow;
    set_graph(flow, batch);
    first_.assign(flow.first_arcs(), flow.first_arcs() + n_sites_ + 1);
    graph_.assign(flow.arcs(), flow.arcs() + first_[n_sites_]);
    cuts_.resize(n_copies_, n_numbers(), n_sites_);
    flips_.resize(n_copies_);

    struct Workspace {
        MaxFlow flow;
        std::vector<std::int32_t> labels;
    };
    auto make_workspace = [&] {
        Workspace workspace;
        set_graph(workspace.flow, batch);
        workspace.labels.resize(n_sites_);
        return workspace;
    };
    parallel_for(n_copies_, n_threads, work(n_copies_), make_workspace, [&](Workspace& workspace, std::size_t copy) {
        workspace.flow.solve(batch.unary_of(copy, 0));
        Residuals to = residuals(cuts_, copy);
        for (std::size_t a = 0; a < graph_.size(); ++a) to.capacities[a] = workspace.flow.arcs()[a].capacity;
        for (std::size_t x = 0; x < n_sites_; ++x) {
            const int site = static_cast<int>(x);
            workspace.labels[x] = workspace.flow.label(site);
            to.labels[x] = static_cast<std::uint8_t>(workspace.labels[x]);
            to.rooms[x] = batch.given && batch.given[x] >= 0 ? infinity : std::abs(workspace.flow.excess(site));
        }
        cuts_.values[copy] = batch.score(batch.unary_of(copy, 0), 0, workspace.labels.data());
    });
}

void FixedCuts::pin(std::size_t site, double* values, int n_threads) {
    if (site >= n_sites_) throw std::invalid_argument("there is no such site");
    const std::size_t n = n_rows_ * n_copies_;
    parallel_for(n, n_threads, work(n), [] { return PinnedCuts(); }, [&](PinnedCuts& pins, std::size_t cut) {
        Residuals at = residuals(cuts_, cut);
        const std::size_t label = at.labels[site];
        flips_[cut].gap = pins.flip(at, static_cast<std::int32_t>(site), flips_[cut].sites);
        values[2 * cut + label] = cuts_.values[cut];
        values[2 * cut + 1 - label] = cuts_.values[cut] - flips_[cut].gap;
    });
    pinned_ = site;
}

void FixedCuts::branch(const std::int64_t* parents, const std::int32_t* labels, std::size_t n, int n_threads) {
    check_branches(parents, labels, n);
    next_.resize(n * n_copies_, n_numbers(), n_sites_);
    parallel_for(n * n_copies_, n_threads, work(n * n_copies_), [] { return 0; }, [&](int, std::size_t cut) {
        const std::size_t row = cut / n_copies_;
        const std::size_t parent = static_cast<std::size_t>(parents[row]) * n_copies_ + cut % n_copies_;
        const Residuals from = residuals(cuts_, parent), to = residuals(next_, cut);
        std::copy_n(from.capacities, n_numbers(), to.capacities);
        std::copy_n(from.labels, n_sites_, to.labels);
        next_.values[cut] = cuts_.values[parent];
        if (to.labels[pinned_] != labels[row]) {
            for (const std::int32_t x : flips_[parent].sites) to.labels[x] ^= 1;
            next_.values[cut] -= flips_[parent].gap;
        }
        to.rooms[pinned_] = infinity;
    });
    std::swap(cuts_, next_);
    flips_.resize(n * n_copies_);
    n_rows_ = n;
    pinned_ = no_site;
}

void FixedCuts::check_branches(const std::int64_t* parents, const std::int32_t* labels, std::size_t n) const {
    if (pinned_ == no_site) throw std::invalid_argument("a site must be pinned before its label is fixed");
    for (std::size_t row = 0; row < n; ++row) {
        if (parents[row] < 0 || static_cast<std::size_t>(parents[row]) >= n_rows_)
            throw std::invalid_argument("there is no such row to branch from");
        if (labels[row] != 0 && labels[row] != 1) throw std::invalid_argument("a label must be 0 or 1");
        for (std::size_t copy = 0; copy < n_copies_; ++copy) {
            const std::size_t cut = static_cast<std::size_t>(parents[row]) * n_copies_ + copy;
            if (cuts_.labels[cut * n_sites_ + pinned_] != labels[row] && std::isinf(flips_[cut].gap))
                throw std::invalid_argument("a label that is not possible cannot be fixed");
        }
    }
}

void FixedCuts::Cuts::resize(std::size_t n, std::size_t n_numbers, std::size_t n_sites) {
    numbers.resize(n * n_numbers);
    labels.resize(n * n_sites);
    values.resize(n);
}

double FixedCuts::work(std::size_t n_cuts) const { return nanoseconds_per_site * static_cast<double>(n_cuts * n_sites_); }

Residuals FixedCuts::residuals(Cuts& cuts, std::size_t cut) const {
    double* const capacities = cuts.numbers.data() + cut * n_numbers();
    return {static_cast<std::int32_t>(n_sites_), graph_.data(), first_.data(), capacities, capacities + graph_.size(),
            cuts.labels.data() + cut * n_sites_};
}

}  // namespace perturbmap
