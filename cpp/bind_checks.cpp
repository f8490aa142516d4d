// Checks of arrays in one pass. They only say whether all is well; where it is not, Python looks again, slowly, for what
// is wrong, and says so. For a small problem this is most of what a call costs besides its solution.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "python_batch.hpp"
#include "simd.hpp"

namespace perturbmap {
namespace {

// The loop counts what fits: a count, unlike a flag, can be kept in wide registers.
template <class Float>
inline std::size_t count_at_most(const Float* x, std::size_t n, double largest) {
    std::size_t n_fit = 0;
    for (std::size_t i = 0; i < n; ++i) n_fit += std::fabs(x[i]) <= largest;
    return n_fit;
}
PERTURBMAP_SIMD std::size_t n_at_most(const double* x, std::size_t n, double largest) { return count_at_most(x, n, largest); }
PERTURBMAP_SIMD std::size_t n_at_most(const float* x, std::size_t n, double largest) { return count_at_most(x, n, largest); }

// Whether no number is NaN or larger than `largest` in size.
template <class Float>
bool are_at_most(Input<Float> values, double largest) {
    return n_at_most(values.data(), values.size(), largest) == values.size();
}

// Copies pairs of sites, (n, 2), as long as they are different sites from 0 to n_sites - 1; whether all are.
template <class Integer>
bool copy_edges(Input<Integer> edges, std::size_t n_sites, Output<std::int32_t> out) {
    require(edges.ndim() == 2 && edges.shape(1) == 2, "edges must have shape (n_edges, 2)");
    require_shape(out, {edges.shape(0), 2}, "out must have the shape of edges");
    using Number = std::make_unsigned_t<Integer>;
    const Number n = static_cast<Number>(std::min(n_sites, max_sites));  // a negative number is none below it either
    if (n_sites > max_sites) return false;
    const std::size_t n_edges = edges.shape(0);
    const Integer* const in = edges.data();
    std::int32_t* const copy = out.data();
    for (std::size_t e = 0; e < n_edges; ++e) {
        const Integer i = in[2 * e], j = in[2 * e + 1];
        if (static_cast<Number>(i) >= n || static_cast<Number>(j) >= n || i == j) return false;
        copy[2 * e] = static_cast<std::int32_t>(i);
        copy[2 * e + 1] = static_cast<std::int32_t>(j);
    }
    return true;
}

// Whether no table of two labels, (n, 2, 2), rewards disagreement: f00 + f11 >= f01 + f10. (Wide registers would take
// twice as long, since they have to be filled number by number.)
bool are_supermodular(const Input<double>& tables) {
    require(tables.size() % 4 == 0, "tables must have shape (n, 2, 2)");
    for (const double *t = tables.data(), *end = t + tables.size(); t != end; t += 4)
        if (!((t[0] - t[1]) + (t[3] - t[2]) >= 0)) return false;
    return true;
}

// Whether a batch has two labels and no such table: it is cheaper to ask than arrays that are looked at once more.
bool is_supermodular(const PythonBatch& batch) {
    return batch.view.n_labels == 2 && (!batch.tables || are_supermodular(*batch.tables));
}

// Whether all labels are from `low`, -1 or 0, to n_labels - 1.
bool are_labels(Input<std::int32_t> labels, std::int32_t low, std::int32_t n_labels) {
    std::size_t n_fit = 0;
    for (const std::int32_t *y = labels.data(), *end = y + labels.size(); y != end; ++y) n_fit += (*y >= low) & (*y < n_labels);
    return n_fit == labels.size();
}

// Whether all weights of pins are finite, and zero where the value says that there is no maximiser.
bool are_weights(Input<double> weights, Input<double> values) {
    require(weights.size() == values.size(), "weights must be as many as values");
    bool fit = true;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const double w = weights.data()[i];
        fit &= (w == 0) | (std::isfinite(w) & std::isfinite(values.data()[i]));
    }
    return fit;
}

}  // namespace

void bind_checks(nb::module_& module) {
    module.def("are_at_most", &are_at_most<double>);
    module.def("are_at_most", &are_at_most<float>);
    // Without conversion: to fewer bits, that would make a site of any number.
    // What NumPy makes of integers is tried first.
    module.def("copy_edges", &copy_edges<std::int64_t>, nb::arg().noconvert(), nb::arg(), nb::arg().noconvert());
    module.def("copy_edges", &copy_edges<std::int32_t>, nb::arg().noconvert(), nb::arg(), nb::arg().noconvert());
    // What is neither, or not contiguous, is for Python to look at.
    module.def("copy_edges", [](nb::handle, std::size_t, nb::handle) { return false; });
    module.def("are_supermodular", &are_supermodular);
    module.def("is_supermodular", &is_supermodular);
    module.def("are_labels", &are_labels, nb::arg().noconvert(), nb::arg(), nb::arg());
    module.def("are_weights", &are_weights);
}

}  // namespace perturbmap
