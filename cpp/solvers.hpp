// The three kernels behind one interface, so that the bindings are written once. A solver is the work space of one
// thread. It is made for one batch, which must outlive it and must not change; examples are told apart by their
// number in the batch.
//
//   Solver(batch)
//   maximise(copy, example, labels)      the maximum; its labels are written
//   pin(copy, example, wanted, labels, values, pins)
//                                        also the pinned values (n_sites, n_labels) of pin_values.hpp; `wanted` is
//                                        a mask of the same shape, or null for all. The maximisers of the wanted pins
//                                        are written to `pins`, which stands alone, unless it is null.
//   add_moments(pins, batch, example, weights, unary, tables, stride)
//                                        adds the weighted indicators of those maximisers
//   work(batch)                          nanoseconds for pin() of all examples, one copy, roughly
//
// work() only decides how many threads are worth starting (parallel.hpp), so that a factor of two or three does no
// harm. Its constants are fits to times measured on one core of an x86-64 server, with the ranges that they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "assignment.hpp"
#include "batch.hpp"
#include "max_flow.hpp"
#include "pin_values.hpp"
#include "pinned_cuts.hpp"
#include "tree_dp.hpp"

namespace perturbmap {

class GraphSolver {
   public:
    using Pins = CutPins;

    explicit GraphSolver(const Batch& batch) : batch_(batch) {}

    double maximise(std::size_t copy, std::size_t example, std::int32_t* labels) {
        argmax(copy, example, labels);
        return batch_.score(batch_.unary_of(copy, example), example, labels);
    }

    void argmax(std::size_t copy, std::size_t example, std::int32_t* labels) {
        const double* unary = batch_.unary_of(copy, example);
        const int n = static_cast<int>(batch_.sites(example)), m = static_cast<int>(batch_.n_edges(example));
        const std::int32_t first_site = static_cast<std::int32_t>(batch_.first_site(example));
        const std::int32_t *edges = batch_.edges_of(example), *given = batch_.given_of(example);
        if (batch_.n_copies == 1) {
            flow_.solve_once(n, first_site, edges, m, batch_.tables_of(example), given, unary);
        } else {
            if (example != example_) flow_.set_graph(n, first_site, edges, m, batch_.tables_of(example), given);
            example_ = example;
            flow_.solve(unary);
        }
        for (int i = 0; i < flow_.n_sites(); ++i) labels[i] = flow_.label(i);
    }

    void pin(std::size_t copy, std::size_t example, const std::uint8_t* wanted, std::int32_t* labels, double* values,
             Pins* pins) {
        const double top = maximise(copy, example, labels);
        const std::size_t n = static_cast<std::size_t>(flow_.n_sites());
        if (wanted) {
            wanted_flips_.resize(n);
            for (std::size_t d = 0; d < n; ++d)
                wanted_flips_[d] = wanted[2 * d + static_cast<std::size_t>(1 - labels[d])];
        }
        cuts_.run(flow_, wanted ? wanted_flips_.data() : nullptr, batch_.given_of(example));
        for (std::size_t d = 0; d < n; ++d) {
            values[2 * d + static_cast<std::size_t>(labels[d])] = top;
            values[2 * d + static_cast<std::size_t>(1 - labels[d])] = top - cuts_.gap(static_cast<int>(d));
        }
        if (pins) *pins = cuts_.pins();
    }

    static void add_moments(const Pins& pins, const Batch& batch, std::size_t example, const double* weights, double* out,
                            double* tables, std::size_t stride) {
        pins.add_moments(static_cast<std::int32_t>(batch.first_site(example)), batch.edges_of(example),
                         batch.n_edges(example), weights, out, tables, stride);
    }

    // Measured for triangulations of 10 to 2,000 sites: 70 to 410 ns for each site where coupling is weak or moderate,
    // 300 to 6,500 where it is strong. How strong it is, is not known here.
    static constexpr double nanoseconds_per_site = 400;
    static double work(const Batch& batch) { return nanoseconds_per_site * static_cast<double>(batch.n_sites); }

   private:
    const Batch& batch_;
    std::size_t example_ = no_example;
    MaxFlow flow_;
    PinnedCuts cuts_;
    std::vector<std::uint8_t> wanted_flips_;
};

class TreeSolver : public TreeDP {
   public:
    using Pins = TreePins;
    using TreeDP::TreeDP;

    static void add_moments(const Pins& pins, const Batch&, std::size_t, const double* weights, double* out, double* tables,
                            std::size_t stride) {
        pins.add_moments(weights, out, tables, stride);
    }

    // Measured for chains: for each site 60 to 90 ns with K = 2, 640 to 1,080 with K = 26, 8,500 to 23,000 with K = 120.
    // The fit is within a factor of 2.5 of all.
    static double work(const Batch& batch) {
        const double k = static_cast<double>(batch.n_labels);
        return static_cast<double>(batch.n_sites) * (50 + 20 * k + 0.5 * k * k);
    }
};

class AssignmentSolver {
   public:
    using Pins = AssignmentPins;

    explicit AssignmentSolver(const Batch& batch) : batch_(batch) {}

    double maximise(std::size_t copy, std::size_t example, std::int32_t* labels) {
        return assignment_.maximise(problem(copy, example), labels);
    }

    void pin(std::size_t copy, std::size_t example, const std::uint8_t* wanted, std::int32_t* labels, double* values,
             Pins* pins) {
        assignment_.pin(problem(copy, example), wanted, labels, values, pins);
    }

    static void add_moments(const Pins& pins, const Batch&, std::size_t, const double* weights, double* out, double*,
                            std::size_t) {
        pins.add_moments(weights, out);
    }

    // Measured for n = 2 to 100 sites and n or 2 n labels: for each site 215 to 290 ns with n = 2, 1,450 with n = 10,
    // 39,000 to 46,000 with n = 100; the number of labels made little difference. The fit is within a factor of 1.4 of
    // all.
    static double work(const Batch& batch) {
        double nanoseconds = 0;
        for (std::size_t example = 0; example < batch.n_examples; ++example) {
            const double n = static_cast<double>(batch.sites(example));
            nanoseconds += n * (150 + 60 * n + 4 * n * n);
        }
        return nanoseconds;
    }

   private:
    AssignmentProblem problem(std::size_t copy, std::size_t example) const {
        return {batch_.unary_of(copy, example), batch_.sites(example), batch_.n_labels, batch_.given_of(example)};
    }

    const Batch& batch_;
    Assignment assignment_;
};

}  // namespace perturbmap
