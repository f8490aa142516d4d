// What the bindings share: arrays of Python with their checks, a batch of them, and moments added up over a batch.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <utility>

#include "batch.hpp"
#include "parallel.hpp"
#ifdef PERTURBMAP_FAULTS
#include "faults.hpp"
#endif

namespace perturbmap {

namespace nb = nanobind;

#ifdef PERTURBMAP_FAULTS
using release = nb::call_guard<nb::gil_scoped_release, KernelCall>;
#else
using release = nb::call_guard<nb::gil_scoped_release>;
#endif

template <class T>
using Input = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Output = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

inline void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

template <class Array>
void require_shape(const Array& array, std::initializer_list<std::size_t> shape, const char* message) {
    require(array.ndim() == shape.size(), message);
    std::size_t axis = 0;
    for (const std::size_t length : shape) require(array.shape(axis++) == length, message);
}

// What the kernels can count: sites, and the two arcs of every edge.
constexpr std::size_t max_sites = 2147483647;

// The product of the axes of an array but for its last `n_last`.
template <class Array>
std::size_t rows_of(const Array& array, std::size_t n_last) {
    std::size_t rows = 1;
    for (std::size_t axis = 0; axis + n_last < array.ndim(); ++axis) rows *= array.shape(axis);
    return rows;
}

// An output with a row for each copy, whose axes may be any that multiply to their number, even none.
template <class Array>
void require_rows(const Array& array, std::size_t n_copies, std::size_t length, const char* message) {
    require(array.ndim() >= 1 && array.shape(array.ndim() - 1) == length && rows_of(array, 1) == n_copies, message);
}

// The arrays of a batch as Python hands them over; it keeps them alive. `unary` is (..., n_sites, K), its copies on any
// leading axes. `tables` is (n_edges, K, K), or (K, K) that all edges share, or none where there are no edges.
struct PythonBatch {
    Input<double> unary;
    std::optional<Input<double>> tables;
    Input<std::int32_t> edges;
    Input<std::int64_t> site_offsets, edge_offsets;
    std::optional<Input<std::int32_t>> given;
    bool shared;
    Batch view;

    PythonBatch(Input<double> unary_, Input<std::int32_t> edges_, std::optional<Input<double>> tables_,
                Input<std::int64_t> site_offsets_, Input<std::int64_t> edge_offsets_,
                std::optional<Input<std::int32_t>> given_)
        : unary(std::move(unary_)), tables(std::move(tables_)), edges(std::move(edges_)),
          site_offsets(std::move(site_offsets_)), edge_offsets(std::move(edge_offsets_)), given(std::move(given_)),
          shared(tables && tables->ndim() == 2) {
        require(unary.ndim() >= 2, "unary must have at least two axes");
        const std::size_t n_sites = unary.shape(unary.ndim() - 2), k = unary.shape(unary.ndim() - 1);
        require(site_offsets.ndim() == 1 && site_offsets.shape(0) >= 1, "site_offsets must have one axis");
        const std::size_t n = site_offsets.shape(0) - 1;
        require_shape(edge_offsets, {n + 1}, "edge_offsets must be as long as site_offsets");
        require(edges.ndim() == 2 && edges.shape(1) == 2, "edges must have shape (n_edges, 2)");
        if (shared)
            require_shape(*tables, {k, k}, "a table must have shape (K, K)");
        else if (tables)
            require_shape(*tables, {edges.shape(0), k, k}, "tables must have shape (n_edges, K, K)");
        require(tables || edges.shape(0) == 0, "edges need tables");
        require(n_sites <= max_sites && edges.shape(0) <= max_sites / 2, "a batch takes 2^31 - 1 sites and 2^30 - 1 edges");
        if (given) require_shape(*given, {n_sites}, "given must have shape (n_sites,)");
        view = {unary.data(), rows_of(unary, 2), n_sites, k, edges.data(),
                {tables ? tables->data() : nullptr, shared ? 0 : k * k},
                site_offsets.data(), edge_offsets.data(), n, given ? given->data() : nullptr};
        view.check_ranges(edges.shape(0));
    }
};

// Where all edges share one table, its moments are summed block by block of this many examples, and the
// blocks by the caller: always in the same order, and without a table for every example.
constexpr std::size_t shared_block = 16;

// For kernels that need no work space.
struct Nothing {
    static Nothing make() { return {}; }
};

// Calls add(workspace, copy, example, unary, tables, stride) for all copies of all examples; the copies of an
// example, and the examples of a block that shares its table, one after another. After such a block, calls
// finish(workspace, table).
template <class MakeWorkspace, class Add, class Finish>
void add_up(const PythonBatch& python, Output<double>& unary_moments, Output<double>& table_moments, int n_threads,
            double nanoseconds, MakeWorkspace make_workspace, Add add, Finish finish) {
    const Batch& batch = python.view;
    const std::size_t k = batch.n_labels, n_edges = static_cast<std::size_t>(batch.edge_offsets[batch.n_examples]);
    const std::size_t block = python.shared ? shared_block : 1, n_blocks = (batch.n_examples + block - 1) / block;
    require_shape(unary_moments, {batch.n_copies, batch.n_sites, k}, "unary_moments has the wrong shape");
    require_shape(table_moments, {python.shared ? n_blocks : n_edges, k, k}, "table_moments has the wrong shape");
    parallel_for(n_blocks, n_threads, nanoseconds, make_workspace, [&](auto& workspace, std::size_t index) {
        for (std::size_t example = index * block; example < std::min((index + 1) * block, batch.n_examples); ++example) {
            double* tables = table_moments.data() + (python.shared ? index : batch.first_edge(example)) * k * k;
            for (std::size_t copy = 0; copy < batch.n_copies; ++copy)
                add(workspace, copy, example, unary_moments.data() + (copy * batch.n_sites + batch.first_site(example)) * k,
                    tables, python.shared ? 0 : k * k);
        }
        if (python.shared) finish(workspace, table_moments.data() + index * k * k);
    });
}

void bind_checks(nb::module_& module);  // bind_checks.cpp
void bind_sums(nb::module_& module);    // bind_sums.cpp
void bind_trees(nb::module_& module);   // bind_trees.cpp
void bind_sparse(nb::module_& module);  // bind_sparse.cpp
void bind_fixed(nb::module_& module);   // bind_fixed.cpp

}  // namespace perturbmap
