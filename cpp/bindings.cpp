// Python bindings: shapes are checked here, the GIL is released, and the (example, copy) pairs of a batch
// are shared out to threads. Each call owns its work space; only the maximisers of pins, where they are asked
// for, outlive it, in an object that nothing changes.
#include <optional>
#include <vector>

#include "graph_search.hpp"
#include "gumbel.hpp"
#include "python_batch.hpp"
#include "solvers.hpp"

namespace perturbmap {
namespace {

// Runs task(solver, copy, example) for all copies of all examples; the copies of an example one after another, so that
// a solver can keep what they have in common.
template <class Solver, class Task, class... Options>
void for_each_copy(const Batch& batch, int n_threads, Task task, Options... options) {
    parallel_for(batch.n_examples * batch.n_copies, n_threads,
                 Solver::work(batch, options...) * static_cast<double>(batch.n_copies),
                 [&] { return Solver(batch, options...); },
                 [&](Solver& solver, std::size_t index) { task(solver, index % batch.n_copies, index / batch.n_copies); });
}

// Options are those of the solver.
template <class Solver, class... Options>
void maximise(const PythonBatch& python, Output<std::int32_t> labels, Output<double> values, int n_threads,
              Options... options) {
    const Batch& batch = python.view;
    require_rows(labels, batch.n_copies, batch.n_sites, "labels has the wrong shape");
    require_rows(values, batch.n_copies, batch.n_examples, "values has the wrong shape");
    for_each_copy<Solver>(batch, n_threads, [&](Solver& solver, std::size_t copy, std::size_t example) {
        values.data()[copy * batch.n_examples + example] =
            solver.maximise(copy, example, labels.data() + copy * batch.n_sites + batch.first_site(example));
    }, options...);
}

// The labels alone: the score of a cut takes a tenth of its time.
void graph_argmax(const PythonBatch& python, Output<std::int32_t> labels, int n_threads) {
    const Batch& batch = python.view;
    require_rows(labels, batch.n_copies, batch.n_sites, "labels has the wrong shape");
    for_each_copy<GraphSolver>(batch, n_threads, [&](GraphSolver& solver, std::size_t copy, std::size_t example) {
        solver.argmax(copy, example, labels.data() + copy * batch.n_sites + batch.first_site(example));
    });
}

// Upper bounds on the maxima of a batch, where `values` are scores of labellings.
void search_bound(const PythonBatch& python, Input<double> values, Output<double> bounds, int n_threads) {
    const Batch& batch = python.view;
    require_shape(values, {batch.n_copies, batch.n_examples}, "values has the wrong shape");
    require_shape(bounds, {batch.n_copies, batch.n_examples}, "bounds has the wrong shape");
    for_each_copy<GraphSearch>(batch, n_threads, [&](GraphSearch& search, std::size_t copy, std::size_t example) {
        const std::size_t at = copy * batch.n_examples + example;
        bounds.data()[at] = search.bound(copy, example, values.data()[at]);
    }, 1);
}

// The maximisers of the wanted pins of all copies of a batch; immutable.
template <class Solver>
struct PinnedBatch {
    std::vector<typename Solver::Pins> pins;  // of each copy, one example after another
};

// Writes labels and the pinned values that pin_values.hpp defines; with `keep`, the maximisers are returned, to take
// moments of.
template <class Solver, class... Options>
std::optional<PinnedBatch<Solver>> pin(const PythonBatch& python, std::optional<Input<std::uint8_t>> mask,
                                       Output<std::int32_t> labels, Output<double> values, bool keep, int n_threads,
                                       Options... options) {
    const Batch& batch = python.view;
    require_shape(labels, {batch.n_copies, batch.n_sites}, "labels has the wrong shape");
    require_shape(values, {batch.n_copies, batch.n_sites, batch.n_labels}, "values has the wrong shape");
    if (mask) require_shape(*mask, {batch.n_sites, batch.n_labels}, "pins has the wrong shape");
    PinnedBatch<Solver> kept;
    if (keep) kept.pins.resize(batch.n_examples * batch.n_copies);
    for_each_copy<Solver>(batch, n_threads, [&](Solver& solver, std::size_t copy, std::size_t example) {
        const std::size_t first = batch.first_site(example), k = batch.n_labels;
        solver.pin(copy, example, mask ? mask->data() + first * k : nullptr,
                   labels.data() + copy * batch.n_sites + first, values.data() + (copy * batch.n_sites + first) * k,
                   keep ? &kept.pins[example * batch.n_copies + copy] : nullptr);
    }, options...);
    if (!keep) return std::nullopt;
    return kept;
}

// The work of add_moments(), roughly. Measured: 4 to 19 for each weight, and 47 for graphs of 2,000 sites with strong
// coupling.
constexpr double nanoseconds_per_weight = 10;

template <class Solver>
void moments(const PythonBatch& python, const PinnedBatch<Solver>& pinned, Input<double> weights,
             Output<double> unary_moments, Output<double> table_moments, int n_threads) {
    const Batch& batch = python.view;
    require(pinned.pins.size() == batch.n_examples * batch.n_copies, "pinned belongs to another batch");
    require_shape(weights, {batch.n_copies, batch.n_sites, batch.n_labels}, "weights has the wrong shape");
    add_up(python, unary_moments, table_moments, n_threads, nanoseconds_per_weight * static_cast<double>(weights.size()),
           Nothing::make,
           [&](Nothing&, std::size_t copy, std::size_t example, double* out, double* tables, std::size_t stride) {
               Solver::add_moments(pinned.pins[example * batch.n_copies + copy], batch, example,
                                   weights.data() + (copy * batch.n_sites + batch.first_site(example)) * batch.n_labels,
                                   out, tables, stride);
           },
           [](Nothing&, double*) {});
}

// f(y) of every example for each of several labellings, `labels` (n, n_sites), which the caller has checked; the
// copies of the unary potentials take turns.
void score(const PythonBatch& python, Input<std::int32_t> labels, Output<double> values) {
    const Batch& batch = python.view;
    require(labels.ndim() == 2 && labels.shape(1) == batch.n_sites, "labels must have shape (n, n_sites)");
    require_shape(values, {labels.shape(0), batch.n_examples}, "values has the wrong shape");
    for (std::size_t row = 0; row < labels.shape(0); ++row)
        for (std::size_t example = 0; example < batch.n_examples; ++example)
            values.data()[row * batch.n_examples + example] =
                batch.score(batch.unary_of(row % batch.n_copies, example), example,
                            labels.data() + row * batch.n_sites + batch.first_site(example));
}

// Adds the indicators of several labellings, `labels` (n, n_sites), each example of each times its weight, to
// `unary` (n_sites, K) and to `tables`: the one of its edge, or the one that all share.
void indicators(const PythonBatch& python, Input<std::int32_t> labels, Input<double> weights, Output<double> unary,
                Output<double> tables) {
    const Batch& batch = python.view;
    const std::size_t k = batch.n_labels, n_edges = static_cast<std::size_t>(batch.edge_offsets[batch.n_examples]);
    require(labels.ndim() == 2 && labels.shape(1) == batch.n_sites, "labels must have shape (n, n_sites)");
    require_shape(weights, {labels.shape(0), batch.n_examples}, "weights has the wrong shape");
    require_shape(unary, {batch.n_sites, k}, "unary has the wrong shape");
    require_shape(tables, {python.shared ? 1 : n_edges, k, k}, "tables has the wrong shape");
    const std::size_t stride = python.shared ? 0 : k * k;
    for (std::size_t row = 0; row < labels.shape(0); ++row) {
        const std::int32_t* y = labels.data() + row * batch.n_sites;
        for (std::size_t example = 0; example < batch.n_examples; ++example) {
            const double weight = weights.data()[row * batch.n_examples + example];
            if (weight == 0) continue;
            const std::size_t first = batch.first_site(example);
            for (std::size_t d = first; d < first + batch.sites(example); ++d)
                unary.data()[d * k + static_cast<std::size_t>(y[d])] += weight;
            for (std::size_t e = batch.first_edge(example); e < batch.first_edge(example) + batch.n_edges(example); ++e) {
                const std::size_t a = static_cast<std::size_t>(y[batch.edges[2 * e]]);
                const std::size_t b = static_cast<std::size_t>(y[batch.edges[2 * e + 1]]);
                tables.data()[e * stride + a * k + b] += weight;
            }
        }
    }
}

// The work of gumbel_noise(), roughly. Measured: 16 to 22 for each number.
constexpr double nanoseconds_per_number = 16;

void gumbel(std::uint64_t seed, Input<std::uint64_t> streams, Input<std::int64_t> site_offsets, std::uint32_t first_draw,
            Output<double> out, int n_threads) {
    require(out.ndim() == 3 && streams.ndim() == 1, "out must have three axes, and streams one");
    const std::size_t n_draws = out.shape(0), n_sites = out.shape(1), k = out.shape(2), n = streams.shape(0);
    require_shape(site_offsets, {n + 1}, "site_offsets must have one more element than streams");
    check_offsets(site_offsets.data(), n, n_sites);
    const double nanoseconds = nanoseconds_per_number * static_cast<double>(n_draws * n_sites * k);
    parallel_for(n_draws * n, n_threads, nanoseconds, Nothing::make, [&](Nothing&, std::size_t index) {
        const std::size_t draw = index / n, example = index % n;
        const std::size_t first = static_cast<std::size_t>(site_offsets.data()[example]);
        const std::size_t sites = static_cast<std::size_t>(site_offsets.data()[example + 1]) - first;
        gumbel_noise(seed, streams.data()[example], first_draw + static_cast<std::uint32_t>(draw), sites * k,
                     out.data() + (draw * n_sites + first) * k);
    });
}

}  // namespace
}  // namespace perturbmap

NB_MODULE(_core, module) {
    using namespace perturbmap;
#ifdef PERTURBMAP_FAULTS
    add_faults(module);
#endif
    // What torch's autograd holds until the interpreter ends is no leak; a report of it would alarm users.
    nb::set_leak_warnings(false);
    module.attr("shared_block") = shared_block;
    module.doc() = "Compiled kernels; see perturbmap.structures for the public interface.";
    nb::class_<PythonBatch>(module, "Batch")
        .def(nb::init<Input<double>, Input<std::int32_t>, std::optional<Input<double>>, Input<std::int64_t>,
                      Input<std::int64_t>, std::optional<Input<std::int32_t>>>(),
             nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none());
    nb::class_<PinnedBatch<GraphSolver>>(module, "GraphPins");
    nb::class_<PinnedBatch<TreeSolver>>(module, "TreePins");
    nb::class_<PinnedBatch<AssignmentSolver>>(module, "AssignmentPins");
    nb::class_<PinnedBatch<GraphSearch>>(module, "SearchPins");
    module.def("gumbel", &gumbel, release());
    module.def("score", &score);
    module.def("indicators", &indicators);
    module.def("graph_argmax", &graph_argmax, release());
    module.def("graph_maximise", &maximise<GraphSolver>, release());
    module.def("graph_pin", &pin<GraphSolver>, release());
    module.def("graph_moments", &moments<GraphSolver>, release());
    module.def("tree_maximise", &maximise<TreeSolver>, release());
    module.def("tree_pin", &pin<TreeSolver>, release());
    module.def("tree_moments", &moments<TreeSolver>, release());
    module.def("assignment_maximise", &maximise<AssignmentSolver>, release());
    module.def("assignment_pin", &pin<AssignmentSolver>, release());
    module.def("assignment_moments", &moments<AssignmentSolver>, release());
    module.def("search_maximise", &maximise<GraphSearch, int>, release());
    module.def("search_bound", &search_bound, release());
    module.def("search_pin", &pin<GraphSearch, int>, release());
    module.def("search_moments", &moments<GraphSearch>, release());
    bind_checks(module);
    bind_sums(module);
    bind_sparse(module);
    bind_fixed(module);
    bind_trees(module);
}
