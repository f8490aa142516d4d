// Python bindings of what chains and trees can tell besides maxima and sums; see bindings.cpp for the others.
#include "python_batch.hpp"
#include "tree_best.hpp"
#include "tree_gibbs.hpp"
#include "tree_sum.hpp"

namespace perturbmap {
namespace {

// The best labellings of every copy of every example, best first: `labels` (n_copies, n, n_sites) and `values`
// (n_copies, n, n_examples).
void best_labellings(const PythonBatch& python, Output<std::int32_t> labels, Output<double> values, int n_threads) {
    const Batch& batch = python.view;
    require(labels.ndim() == 3, "labels must have three axes");
    const std::size_t n = labels.shape(1);
    require_shape(labels, {batch.n_copies, n, batch.n_sites}, "labels has the wrong shape");
    require_shape(values, {batch.n_copies, n, batch.n_examples}, "values has the wrong shape");
    parallel_for(batch.n_examples * batch.n_copies, n_threads, TreeBest::work(batch, n) * static_cast<double>(batch.n_copies),
                 [&] { return TreeBest(batch); },
                 [&](TreeBest& best, std::size_t index) {
                     const std::size_t example = index / batch.n_copies, copy = index % batch.n_copies;
                     best.run(copy, example, n, labels.data() + copy * n * batch.n_sites + batch.first_site(example),
                              batch.n_sites, values.data() + copy * n * batch.n_examples + example, batch.n_examples);
                 });
}

// Samples of one example are shared out to threads in blocks of this many: each thread makes the sweep once.
constexpr std::size_t samples_at_once = 64;

// Measured for chains with a shared table: for each site of a sample 25 to 30 ns with K = 2, 60 to 75 with K = 26.
double work_of_samples(const Batch& batch, std::size_t n) {
    return TreeSum::work(batch) + static_cast<double>(batch.n_sites * n) * (25 + 2.0 * static_cast<double>(batch.n_labels));
}

// Exact samples, `labels` (n, n_sites): row r has draw r of the stream of each example.
void samples(const PythonBatch& python, std::uint64_t seed, Input<std::uint64_t> streams, Output<std::int32_t> labels,
             int n_threads) {
    const Batch& batch = python.view;
    require(labels.ndim() == 2 && batch.n_copies == 1, "labels must have two axes, and unary one copy");
    const std::size_t n = labels.shape(0), n_blocks = (n + samples_at_once - 1) / samples_at_once;
    require_shape(labels, {n, batch.n_sites}, "labels has the wrong shape");
    require_shape(streams, {batch.n_examples}, "streams has the wrong shape");
    require(n < std::size_t{1} << 32, "too many samples to be numbered");
    parallel_for(batch.n_examples * n_blocks, n_threads, work_of_samples(batch, n), [&] { return TreeGibbs(batch); },
                 [&](TreeGibbs& gibbs, std::size_t index) {
                     const std::size_t example = index / n_blocks, first = index % n_blocks * samples_at_once;
                     for (std::size_t row = first; row < std::min(first + samples_at_once, n); ++row)
                         gibbs.sample(0, example, seed, streams.data()[example], static_cast<std::uint32_t>(row),
                                      labels.data() + row * batch.n_sites + batch.first_site(example));
                 });
}

// The entropies of all copies of all examples, `values` (n_copies, n_examples).
void entropies(const PythonBatch& python, Output<double> values, int n_threads) {
    const Batch& batch = python.view;
    require_shape(values, {batch.n_copies, batch.n_examples}, "values has the wrong shape");
    parallel_for(batch.n_examples, n_threads, TreeSum::work(batch) * static_cast<double>(batch.n_copies),
                 [&] { return TreeGibbs(batch); },
                 [&](TreeGibbs& gibbs, std::size_t example) {
                     for (std::size_t copy = 0; copy < batch.n_copies; ++copy)
                         values.data()[copy * batch.n_examples + example] = gibbs.entropy(copy, example);
                 });
}

// The probabilities of spans, (n_copies, n_spans). Those of an example begin at its entry of `span_offsets` (n_examples + 1);
// the sites of a span, counted in its example, and their labels begin at its entry of `offsets` (n_spans + 1).
void span_probabilities(const PythonBatch& python, Input<std::int64_t> span_offsets, Input<std::int64_t> offsets,
                        Input<std::int32_t> sites, Input<std::int32_t> labels, Output<double> values, int n_threads) {
    const Batch& batch = python.view;
    require(offsets.ndim() == 1 && offsets.shape(0) >= 1 && sites.ndim() == 1, "offsets and sites must have one axis");
    const std::size_t n = offsets.shape(0) - 1;
    require_shape(span_offsets, {batch.n_examples + 1}, "span_offsets has the wrong shape");
    require_shape(labels, {sites.shape(0)}, "labels has the wrong shape");
    require_shape(values, {batch.n_copies, n}, "values has the wrong shape");
    check_offsets(span_offsets.data(), batch.n_examples, n);
    check_offsets(offsets.data(), n, sites.shape(0));
    auto begin_of = [&](std::size_t span) { return static_cast<std::size_t>(offsets.data()[span]); };
    auto spans_of = [&](std::size_t example) { return static_cast<std::size_t>(span_offsets.data()[example]); };
    bool fit = true;
    for (std::size_t example = 0; example < batch.n_examples; ++example)
        for (std::size_t i = begin_of(spans_of(example)); i < begin_of(spans_of(example + 1)); ++i)
            fit &= sites.data()[i] >= 0 && static_cast<std::size_t>(sites.data()[i]) < batch.sites(example) &&
                   labels.data()[i] >= 0 && static_cast<std::size_t>(labels.data()[i]) < batch.n_labels;
    require(fit, "a span has a site or a label that is not there");
    parallel_for(batch.n_examples, n_threads, TreeSum::work(batch) * static_cast<double>(batch.n_copies),
                 [&] { return TreeGibbs(batch); },
                 [&](TreeGibbs& gibbs, std::size_t example) {
                     for (std::size_t copy = 0; copy < batch.n_copies; ++copy)
                         for (std::size_t span = spans_of(example); span < spans_of(example + 1); ++span)
                             values.data()[copy * n + span] =
                                 gibbs.probability(copy, example, begin_of(span + 1) - begin_of(span),
                                                   sites.data() + begin_of(span), labels.data() + begin_of(span));
                 });
}

}  // namespace

void bind_trees(nb::module_& module) {
    module.def("tree_best", &best_labellings, release());
    module.def("tree_sample", &samples, release());
    module.def("tree_entropy", &entropies, release());
    module.def("tree_spans", &span_probabilities, release());
}

}  // namespace perturbmap
