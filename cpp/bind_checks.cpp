// Checks of arrays in one pass. They only say whether all is well; where it is not, Python looks again, slowly, for what
// is wrong, and says so. For a small problem this is most of what a call costs besides its solution.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "python_batch.hpp"

namespace perturbmap {
namespace {

// Whether no number is NaN or larger than `largest` in size. The count, unlike a flag, can be kept in wide registers.
template <class Float>
bool are_at_most(Input<Float> values, double largest) {
    std::size_t n_fit = 0;
    for (const Float *x = values.data(), *end = x + values.size(); x != end; ++x) n_fit += std::fabs(*x) <= largest;
    return n_fit == values.size();
}

// Copies pairs of sites, (n, 2); whether they are different sites from 0 to n_sites - 1.
template <class Integer>
bool copy_edges(Input<Integer> edges, std::size_t n_sites, Output<std::int32_t> out) {
    require(edges.ndim() == 2 && edges.shape(1) == 2, "edges must have shape (n_edges, 2)");
    require_shape(out, {edges.shape(0), 2}, "out must have the shape of edges");
    using Number = std::make_unsigned_t<Integer>;
    const Number n = static_cast<Number>(std::min(n_sites, max_sites));  // a negative number is none below it either
    bool fit = n_sites <= max_sites;
    for (std::size_t k = 0; k < edges.size(); k += 2) {
        const Integer i = edges.data()[k], j = edges.data()[k + 1];
        fit &= (static_cast<Number>(i) < n) & (static_cast<Number>(j) < n) & (i != j);
        out.data()[k] = static_cast<std::int32_t>(i);
        out.data()[k + 1] = static_cast<std::int32_t>(j);
    }
    return fit;
}

// Whether no table of two labels, (n, 2, 2), rewards disagreement: f00 + f11 >= f01 + f10.
bool are_supermodular(Input<double> tables) {
    require(tables.size() % 4 == 0, "tables must have shape (n, 2, 2)");
    bool fit = true;
    for (const double *t = tables.data(), *end = t + tables.size(); t != end; t += 4)
        fit &= (t[0] - t[1]) + (t[3] - t[2]) >= 0;
    return fit;
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
    module.def("copy_edges", &copy_edges<std::int32_t>, nb::arg().noconvert(), nb::arg(), nb::arg());
    module.def("copy_edges", &copy_edges<std::int64_t>, nb::arg().noconvert(), nb::arg(), nb::arg());
    module.def("are_supermodular", &are_supermodular);
    module.def("are_weights", &are_weights);
}

}  // namespace perturbmap
