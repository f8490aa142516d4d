// Python bindings of FixedCuts. An object changes from call to call: one thread of Python uses it at a time.
#include "fixed_cuts.hpp"
#include "python_batch.hpp"

namespace perturbmap {
namespace {

void pin(FixedCuts& cuts, std::size_t site, Output<double> values, int n_threads) {
    require_shape(values, {cuts.n_rows(), cuts.n_copies(), 2}, "values has the wrong shape");
    cuts.pin(site, values.data(), n_threads);
}

void branch(FixedCuts& cuts, Input<std::int64_t> parents, Input<std::int32_t> labels, int n_threads) {
    require(parents.ndim() == 1, "parents must have one axis");
    require_shape(labels, {parents.shape(0)}, "labels must be as many as parents");
    cuts.branch(parents.data(), labels.data(), parents.shape(0), n_threads);
}

}  // namespace

void bind_fixed(nb::module_& module) {
    nb::class_<FixedCuts>(module, "FixedCuts")
        .def("__init__", [](FixedCuts* cuts, const PythonBatch& batch, int n_threads) {
                 new (cuts) FixedCuts(batch.view, n_threads);
             }, release())
        .def("pin", &pin, release())
        .def("branch", &branch, release());
}

}  // namespace perturbmap
