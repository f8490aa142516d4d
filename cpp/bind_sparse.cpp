// Python bindings of products with sparse rows.

#include <algorithm>
#include <utility>
#include <vector>

#include "python_batch.hpp"
#include "sparse_rows.hpp"

namespace perturbmap {
namespace {

// Roughly; only decides how many threads are worth starting.
constexpr double nanoseconds_per_number = 1.0;

// The arrays of a matrix as Python hands them over; it keeps them alive.
struct PythonRows {
    Input<std::int64_t> starts;
    Input<std::int32_t> indices;
    std::optional<Input<float>> floats;
    std::optional<Input<double>> doubles;
    std::size_t n_rows, n_columns;
    SparseRows view;

    PythonRows(Input<std::int64_t> starts_, Input<std::int32_t> indices_, std::optional<Input<float>> floats_,
               std::optional<Input<double>> doubles_, std::size_t n_columns_)
        : starts(starts_), indices(indices_), floats(floats_), doubles(doubles_), n_columns(n_columns_) {
        require(starts.ndim() == 1 && starts.shape(0) >= 1, "starts must have one axis");
        require(indices.ndim() == 1, "indices must have one axis");
        require(!(floats && doubles), "values must be of one type");
        if (floats) require_shape(*floats, {indices.shape(0)}, "values must be as many as indices");
        if (doubles) require_shape(*doubles, {indices.shape(0)}, "values must be as many as indices");
        n_rows = starts.shape(0) - 1;
        const std::int64_t *const at = starts.data(), n = static_cast<std::int64_t>(indices.shape(0));
        bool fit = at[0] == 0 && at[n_rows] == n;
        for (std::size_t r = 0; r < n_rows; ++r) fit &= at[r] <= at[r + 1];
        for (std::int64_t i = 0; i < n; ++i)
            fit &= indices.data()[i] >= 0 && static_cast<std::size_t>(indices.data()[i]) < n_columns;
        require(fit, "starts and indices must be those of a matrix of so many columns");
        view = {at, indices.data(), floats ? floats->data() : nullptr, doubles ? doubles->data() : nullptr};
    }

    // The blocks, and how many rows they have.
    std::pair<RowBlocks, std::size_t> blocks(const Input<std::int64_t>& first, const Input<std::int64_t>& last) const {
        require(first.ndim() == 1, "blocks must have one axis");
        require_shape(last, {first.shape(0)}, "blocks must have as many ends as beginnings");
        const std::int64_t n = static_cast<std::int64_t>(n_rows);
        std::int64_t total = 0;
        bool fit = true;
        for (std::size_t b = 0; b < first.shape(0); ++b) {
            fit &= 0 <= first.data()[b] && first.data()[b] <= last.data()[b] && last.data()[b] <= n;
            total += last.data()[b] - first.data()[b];
        }
        require(fit, "blocks must lie in the matrix");
        return {{first.data(), last.data(), first.shape(0)}, static_cast<std::size_t>(total)};
    }
};

// Some rows times weights, (n_columns, K).
void product(const PythonRows& rows, Input<std::int64_t> first, Input<std::int64_t> last, Input<double> weights,
             Output<double> out, int n_threads) {
    const auto [blocks, n] = rows.blocks(first, last);
    require(weights.ndim() == 2 && weights.shape(0) == rows.n_columns, "weights must have a row for each column");
    const std::size_t k = weights.shape(1);
    require_shape(out, {n, k}, "out has the wrong shape");
    std::vector<std::size_t> before(blocks.n + 1, 0);
    double entries = 0;
    for (std::size_t b = 0; b < blocks.n; ++b) {
        before[b + 1] = before[b] + static_cast<std::size_t>(blocks.last[b] - blocks.first[b]);
        entries += static_cast<double>(rows.view.starts[blocks.last[b]] - rows.view.starts[blocks.first[b]]);
    }
    parallel_for(blocks.n, n_threads, nanoseconds_per_number * entries * static_cast<double>(k), Nothing::make,
                 [&, &blocks = blocks](Nothing&, std::size_t b) {
                     sparse_product(rows.view, blocks.first[b], blocks.last[b], k, weights.data(),
                                    out.data() + before[b] * k);
                 });
}

// Adds the transpose of some rows times values, (n, K), to `out`, (n_columns, K).
void pullback(const PythonRows& rows, Input<std::int64_t> first, Input<std::int64_t> last, Input<double> values,
              Output<double> out) {
    const auto [blocks, n] = rows.blocks(first, last);
    require(values.ndim() == 2 && values.shape(0) == n, "values must have a row for each of the rows");
    const std::size_t k = values.shape(1);
    require_shape(out, {rows.n_columns, k}, "out has the wrong shape");
    const double* from = values.data();
    for (std::size_t b = 0; b < blocks.n; ++b) {
        sparse_pullback(rows.view, blocks.first[b], blocks.last[b], k, from, out.data());
        from += static_cast<std::size_t>(blocks.last[b] - blocks.first[b]) * k;
    }
}

// Writes the number of the column of each entry of some rows into `numbers`, and the columns into `columns`; both have
// room for all entries. Returns how many columns there are.
std::size_t number(const PythonRows& rows, Input<std::int64_t> first, Input<std::int64_t> last,
                   Output<std::int32_t> numbers, Output<std::int32_t> columns) {
    const auto [blocks, n] = rows.blocks(first, last);
    std::size_t entries = 0;
    for (std::size_t b = 0; b < blocks.n; ++b)
        entries += static_cast<std::size_t>(rows.view.starts[blocks.last[b]] - rows.view.starts[blocks.first[b]]);
    require_shape(numbers, {entries}, "numbers has the wrong shape");
    require_shape(columns, {entries}, "columns has the wrong shape");
    const std::vector<std::int32_t> found = number_columns(rows.view, blocks, numbers.data());
    std::copy(found.begin(), found.end(), columns.data());
    return found.size();
}

// Writes the column that a vocabulary has for each name; -1 where it has none.
void look_up(nb::list names, nb::dict vocabulary, Output<std::int32_t> columns) {
    const std::size_t n = names.size();
    require_shape(columns, {n}, "columns has the wrong shape");
    for (std::size_t i = 0; i < n; ++i) {
        PyObject* const name = PyList_GetItem(names.ptr(), static_cast<Py_ssize_t>(i));
        PyObject* const column = name ? PyDict_GetItemWithError(vocabulary.ptr(), name) : nullptr;
        if (!column && PyErr_Occurred()) nb::raise_python_error();
        columns.data()[i] = column ? nb::cast<std::int32_t>(nb::handle(column)) : -1;
    }
}

}  // namespace

void bind_sparse(nb::module_& module) {
    nb::class_<PythonRows>(module, "SparseRows")
        .def(nb::init<Input<std::int64_t>, Input<std::int32_t>, std::optional<Input<float>>,
                      std::optional<Input<double>>, std::size_t>(),
             nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg());
    module.def("sparse_product", &product, release());
    module.def("sparse_pullback", &pullback, release());
    module.def("sparse_number", &number, release());
    module.def("look_up", &look_up);
}

}  // namespace perturbmap
