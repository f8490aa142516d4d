// The three kernels behind one interface, so that the bindings are written once:
//
//   load(batch, example)                     the example's graph, tables and given labels
//   maximise(unary, labels)                  the maximum; its labels are written
//   pin(unary, pins, labels, values)         also the pinned values (n_sites, n_labels); those that `pins`
//                                            (a mask of the same shape, or null) leaves out may be NaN
//   pins()                                   the maximisers of these pins, as a `Pins` that stands alone
//   add_moments(pins, batch, example, ...)   adds the weighted indicators of those maximisers
//   work(batch)                              nanoseconds for one pin() of one copy of the batch, roughly
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "assignment.hpp"
#include "batch.hpp"
#include "max_flow.hpp"
#include "pinned_cuts.hpp"
#include "tree_dp.hpp"
#include "tree_sum.hpp"

namespace perturbmap {

class GraphSolver {
   public:
    void load(const Batch& batch, std::size_t example) {
        batch_ = &batch;
        example_ = example;
        flow_.set_graph(static_cast<int>(batch.sites(example)), static_cast<std::int32_t>(batch.first_site(example)),
                        batch.edges_of(example), static_cast<int>(batch.n_edges(example)), batch.tables_of(example),
                        batch.given_of(example), batch.n_copies > 1);
    }

    double maximise(const double* unary, std::int32_t* labels) {
        flow_.solve(unary);
        for (int i = 0; i < flow_.n_sites(); ++i) labels[i] = flow_.label(i);
        return batch_->score(unary, example_, labels);
    }

    void pin(const double* unary, const std::uint8_t* pins, std::int32_t* labels, double* values) {
        const double top = maximise(unary, labels);
        const std::size_t n = static_cast<std::size_t>(flow_.n_sites());
        if (pins) {
            wanted_.resize(n);
            for (std::size_t d = 0; d < n; ++d) wanted_[d] = pins[2 * d + static_cast<std::size_t>(1 - labels[d])];
        }
        cuts_.run(flow_, pins ? wanted_.data() : nullptr, batch_->given_of(example_));
        for (std::size_t d = 0; d < n; ++d) {
            values[2 * d + static_cast<std::size_t>(labels[d])] = top;
            values[2 * d + static_cast<std::size_t>(1 - labels[d])] = top - cuts_.gap(static_cast<int>(d));
        }
    }

    using Pins = CutPins;
    Pins pins() const { return cuts_.pins(flow_); }
    static void add_moments(const Pins& pins, const Batch& batch, std::size_t example, const double* weights, double* out,
                            double* tables, std::size_t stride) {
        pins.add_moments(static_cast<std::int32_t>(batch.first_site(example)), batch.edges_of(example),
                         batch.n_edges(example), weights, out, tables, stride);
    }

    static double work(const Batch& batch) { return 1000.0 * static_cast<double>(batch.n_sites); }

   private:
    const Batch* batch_ = nullptr;
    std::size_t example_ = 0;
    MaxFlow flow_;
    PinnedCuts cuts_;
    std::vector<std::uint8_t> wanted_;
};

inline void set_forest(Forest& forest, const Batch& batch, std::size_t example) {
    if (batch.n_labels > TreeDP::max_labels)
        throw std::invalid_argument("chains and trees take at most " + std::to_string(TreeDP::max_labels) + " labels");
    if (!forest.set(batch.sites(example), static_cast<std::int32_t>(batch.first_site(example)), batch.edges_of(example),
                    batch.n_edges(example), batch.n_labels, batch.tables_of(example), batch.given_of(example)))
        throw std::invalid_argument("the edges of example " + std::to_string(example) + " contain a cycle");
}

class TreeSolver {
   public:
    void load(const Batch& batch, std::size_t example) {
        batch_ = &batch;
        example_ = example;
        set_forest(dp_.forest, batch, example);
    }

    double maximise(const double* unary, std::int32_t* labels) {
        dp_.maximise(unary, labels);
        return batch_->score(unary, example_, labels);
    }

    void pin(const double* unary, const std::uint8_t*, std::int32_t* labels, double* values) {
        const double top = maximise(unary, labels);
        dp_.pin(labels, top, values);
    }

    using Pins = TreePins;
    Pins pins() const { return dp_.pins(); }
    static void add_moments(const Pins& pins, const Batch&, std::size_t, const double* weights, double* out, double* tables,
                            std::size_t stride) {
        pins.add_moments(weights, out, tables, stride);
    }

    static double work(const Batch& batch) {
        return static_cast<double>(batch.n_sites) * static_cast<double>(20 + batch.n_labels * batch.n_labels);
    }

   private:
    const Batch* batch_ = nullptr;
    std::size_t example_ = 0;
    TreeDP dp_;
};

// Not maximisation: what trees have besides.
class TreeSumSolver : public TreeSum {
   public:
    void load(const Batch& batch, std::size_t example) {
        set_forest(forest, batch, example);
        TreeSum::load();
    }
};

class AssignmentSolver {
   public:
    void load(const Batch& batch, std::size_t example) {
        batch_ = &batch;
        example_ = example;
    }

    double maximise(const double* unary, std::int32_t* labels) {
        assignment_.solve(unary, batch_->sites(example_), batch_->n_labels, batch_->given_of(example_));
        std::copy(assignment_.labels().begin(), assignment_.labels().end(), labels);
        return assignment_.value();
    }

    void pin(const double* unary, const std::uint8_t*, std::int32_t* labels, double* values) {
        maximise(unary, labels);
        assignment_.pin(values, pins_);
    }

    using Pins = AssignmentPins;
    Pins pins() const { return pins_; }
    static void add_moments(const Pins& pins, const Batch&, std::size_t, const double* weights, double* out, double*,
                            std::size_t) {
        pins.add_moments(weights, out);
    }

    static double work(const Batch& batch) {
        const double n = static_cast<double>(batch.n_sites) / static_cast<double>(std::max<std::size_t>(1, batch.n_examples));
        return static_cast<double>(batch.n_sites) * n * static_cast<double>(batch.n_labels);
    }

   private:
    const Batch* batch_ = nullptr;
    std::size_t example_ = 0;
    Assignment assignment_;
    AssignmentPins pins_;
};

}  // namespace perturbmap
