// Python bindings of the kernels that sum over labellings; see bindings.cpp for the others.
#include <cmath>
#include <limits>
#include <vector>

#include "elimination.hpp"
#include "gibbs.hpp"
#include "python_batch.hpp"
#include "swaps.hpp"
#include "tree_sum.hpp"

namespace perturbmap {
namespace {

// As add_up, for sums over trees: calls add(sums, copy, example, unary, tables, stride).
template <class Add>
void add_up_sums(const PythonBatch& python, Output<double>& unary_moments, Output<double>& table_moments, int n_threads,
                 Add add) {
    const Batch& batch = python.view;
    add_up(python, unary_moments, table_moments, n_threads, TreeSum::work(batch) * static_cast<double>(batch.n_copies),
           [&] { return TreeSum(batch); }, add, [](TreeSum& sums, double* table) { sums.add_shared(table); });
}

// Log-partitions, and the marginals of each example times its weight.
void sum_tree(const PythonBatch& python, Input<double> weights, Output<double> values, Output<double> unary_marginals,
              Output<double> table_marginals, int n_threads) {
    const Batch& batch = python.view;
    require_shape(values, {batch.n_copies, batch.n_examples}, "values has the wrong shape");
    require_shape(weights, {batch.n_examples}, "weights has the wrong shape");
    add_up_sums(python, unary_marginals, table_marginals, n_threads,
                [&](TreeSum& sums, std::size_t copy, std::size_t example, double* out, double* tables, std::size_t stride) {
                    values.data()[copy * batch.n_examples + example] =
                        sums.sum(copy, example, weights.data()[example], out, tables, stride);
                });
}

void pinned_sums(const PythonBatch& python, Output<double> values, int n_threads) {
    const Batch& batch = python.view;
    require_shape(values, {batch.n_copies, batch.n_sites, batch.n_labels}, "values has the wrong shape");
    parallel_for(batch.n_examples, n_threads, TreeSum::work(batch) * static_cast<double>(batch.n_copies),
                 [&] { return TreeSum(batch); },
                 [&](TreeSum& sums, std::size_t example) {
                     for (std::size_t copy = 0; copy < batch.n_copies; ++copy)
                         sums.pinned_values(copy, example,
                                            values.data() + (copy * batch.n_sites + batch.first_site(example)) * batch.n_labels);
                 });
}

void pinned_sums_moments(const PythonBatch& python, Input<double> weights, Output<double> unary_moments,
                         Output<double> table_moments, int n_threads) {
    const Batch& batch = python.view;
    require_shape(weights, {batch.n_copies, batch.n_sites, batch.n_labels}, "weights has the wrong shape");
    add_up_sums(python, unary_moments, table_moments, n_threads,
                [&](TreeSum& sums, std::size_t copy, std::size_t example, double* out, double* tables, std::size_t stride) {
                    const std::size_t first = (copy * batch.n_sites + batch.first_site(example)) * batch.n_labels;
                    sums.pinned_moments(copy, example, weights.data() + first, out, tables, stride);
                });
}

// Roughly; only decides how many threads are worth starting.
constexpr double nanoseconds_to_eliminate = 20000;

double elimination_work(const Batch& batch) {
    return nanoseconds_to_eliminate * static_cast<double>(batch.n_sites * batch.n_copies);
}

// As sum_tree, for any graph whose tables have at most `max_entries` entries; NaN where they have more.
void sum_by_elimination(const PythonBatch& python, Input<double> weights, Output<double> values,
                        Output<double> unary_marginals, Output<double> table_marginals, std::size_t max_entries,
                        int n_threads) {
    const Batch& batch = python.view;
    require_shape(values, {batch.n_copies, batch.n_examples}, "values has the wrong shape");
    require_shape(weights, {batch.n_examples}, "weights has the wrong shape");
    add_up(python, unary_marginals, table_marginals, n_threads, elimination_work(batch),
           [&] { return Elimination(batch, max_entries); },
           [&](Elimination& sums, std::size_t copy, std::size_t example, double* out, double* tables, std::size_t stride) {
               double& value = values.data()[copy * batch.n_examples + example];
               value = std::numeric_limits<double>::quiet_NaN();
               if (!sums.select(example)) return;
               value = sums.sum(copy);
               sums.marginals(weights.data()[example], out, tables, stride);
           },
           [](Elimination&, double*) {});
}

// log sum_y exp f(y) alone, and an exact sample for each row of uniform numbers, (n_copies, n_rows, n_sites); NaN and -1
// where tables would be too large.
void sample_by_elimination(const PythonBatch& python, Input<double> uniform, Output<double> values,
                           Output<std::int32_t> labels, std::size_t max_entries, int n_threads) {
    const Batch& batch = python.view;
    require(uniform.ndim() == 3, "uniform must have three axes");
    const std::size_t n_rows = uniform.shape(1);
    require_shape(uniform, {batch.n_copies, n_rows, batch.n_sites}, "uniform has the wrong shape");
    require_shape(labels, {batch.n_copies, n_rows, batch.n_sites}, "labels has the wrong shape");
    require_shape(values, {batch.n_copies, batch.n_examples}, "values has the wrong shape");
    parallel_for(batch.n_examples, n_threads, elimination_work(batch), [&] { return Elimination(batch, max_entries); },
                 [&](Elimination& sums, std::size_t example) {
                     for (std::size_t copy = 0; copy < batch.n_copies; ++copy) {
                         const bool fits = sums.select(example);
                         values.data()[copy * batch.n_examples + example] =
                             fits ? sums.sum(copy) : std::numeric_limits<double>::quiet_NaN();
                         for (std::size_t row = 0; row < n_rows; ++row) {
                             const std::size_t first = (copy * n_rows + row) * batch.n_sites + batch.first_site(example);
                             if (fits)
                                 sums.sample(uniform.data() + first, labels.data() + first);
                             else
                                 std::fill_n(labels.data() + first, batch.sites(example), -1);
                         }
                     }
                 });
}

// Writes, for every site, at which place it is to be cut so that the tables of the rest are small; -1 where it need not.
// Returns the entries of the tables of the rest, of all examples together.
double cut_for_elimination(const PythonBatch& python, Output<std::int32_t> place, std::size_t max_width) {
    const Batch& batch = python.view;
    double entries = 0;
    require_shape(place, {batch.n_sites}, "place has the wrong shape");
    std::fill_n(place.data(), batch.n_sites, -1);
    for (std::size_t example = 0; example < batch.n_examples; ++example) {
        const std::int32_t first = static_cast<std::int32_t>(batch.first_site(example));
        const EliminationOrder order = elimination_order(batch.sites(example), first, batch.edges_of(example),
                                                         batch.n_edges(example), batch.given_of(example), max_width, true);
        for (std::size_t c = 0; c < order.cut.size(); ++c)
            place.data()[first + order.cut[c]] = static_cast<std::int32_t>(c);
        for (const EliminationStep& step : order.steps)
            entries += std::pow(static_cast<double>(batch.n_labels), static_cast<double>(step.neighbours.size() + 1));
    }
    return entries;
}

// Runs chains, `labels` (n_chains, n_sites), of every example, and writes the mean conditional probabilities of each, and the
// shares of the labels drawn, (n_chains, n_sites, K).
template <class Sampler>
void run_chains(const PythonBatch& python, std::uint64_t seed, Input<std::uint64_t> streams, Output<std::int32_t> labels,
                Output<double> probabilities, Output<double> shares, std::size_t first_chain, std::size_t n_burn,
                std::size_t n_kept, int n_threads) {
    const Batch& batch = python.view;
    require(labels.ndim() == 2 && batch.n_copies == 1, "labels must have two axes, and unary one copy");
    const std::size_t n_chains = labels.shape(0);
    require_shape(streams, {batch.n_examples}, "streams has the wrong shape");
    require_shape(labels, {n_chains, batch.n_sites}, "labels has the wrong shape");
    require_shape(probabilities, {n_chains, batch.n_sites, batch.n_labels}, "probabilities has the wrong shape");
    require_shape(shares, {n_chains, batch.n_sites, batch.n_labels}, "shares has the wrong shape");
    bool fit = true;
    for (std::size_t i = 0; i < labels.size(); ++i)
        fit &= labels.data()[i] >= 0 && labels.data()[i] < static_cast<std::int64_t>(batch.n_labels);
    require(fit, "labels must all be labels");
    require((first_chain + n_chains) * (n_burn + n_kept) < std::size_t{1} << 32, "too many chains and sweeps to be numbered");
    const Sweeps sweeps{seed, n_burn, n_kept, first_chain};
    parallel_for(batch.n_examples * n_chains, n_threads,
                 Sampler::work(batch) * static_cast<double>(n_chains * (n_burn + n_kept)), [&] { return Sampler(batch); },
                 [&](Sampler& sampler, std::size_t index) {
                     const std::size_t example = index / n_chains, chain = index % n_chains;
                     const std::size_t first = chain * batch.n_sites + batch.first_site(example);
                     sampler.run(example, streams.data()[example], sweeps, chain, labels.data() + first,
                                 probabilities.data() + first * batch.n_labels, shares.data() + first * batch.n_labels);
                 });
}

// Moves the chains that have not met, of one example with two labels, from the past to exact samples, `labels` (n_chains,
// n_sites), if they meet within one block of sweeps for each of the streams; the number of the first chain is given.
void run_from_the_past(const PythonBatch& python, std::uint64_t seed, Input<std::uint64_t> streams,
                       Output<std::int32_t> labels, Output<std::uint8_t> have_met, std::size_t first_chain,
                       std::size_t sweeps_a_block, int n_threads) {
    const Batch& batch = python.view;
    require(labels.ndim() == 2 && batch.n_copies == 1, "labels must have two axes, and unary one copy");
    require(batch.n_examples == 1 && batch.n_labels == 2 && streams.ndim() == 1, "one example of two labels, and streams");
    const std::size_t n_chains = labels.shape(0);
    require_shape(labels, {n_chains, batch.n_sites}, "labels has the wrong shape");
    require_shape(have_met, {n_chains}, "have_met has the wrong shape");
    require((first_chain + n_chains) * sweeps_a_block < std::size_t{1} << 32, "too many chains and sweeps to be numbered");
    const std::size_t n_blocks = streams.shape(0);
    parallel_for(n_chains, n_threads, 2 * Gibbs::work(batch) * static_cast<double>(n_chains * n_blocks * sweeps_a_block),
                 [&] { return Gibbs(batch); },
                 [&](Gibbs& gibbs, std::size_t chain) {
                     if (have_met.data()[chain]) return;
                     have_met.data()[chain] = gibbs.meet(0, seed, n_blocks, streams.data(), sweeps_a_block,
                                                         first_chain + chain, labels.data() + chain * batch.n_sites);
                 });
}

}  // namespace

void bind_sums(nb::module_& module) {
    module.def("tree_sum", &sum_tree, release());
    module.def("tree_pinned_sums", &pinned_sums, release());
    module.def("tree_pinned_sums_moments", &pinned_sums_moments, release());
    module.def("elimination_sum", &sum_by_elimination, release());
    module.def("elimination_sample", &sample_by_elimination, release());
    module.def("elimination_cut", &cut_for_elimination, release());
    module.def("gibbs", &run_chains<Gibbs>, release());
    module.def("gibbs_from_the_past", &run_from_the_past, release());
    module.def("swaps", &run_chains<Swaps>, release());
}

}  // namespace perturbmap
