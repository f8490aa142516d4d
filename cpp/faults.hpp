// What the tests' counting allocator asks of the bindings; see faults.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace perturbmap {

// Lives as long as a call of a kernel.
struct KernelCall {
    KernelCall();
    ~KernelCall();
};

void add_faults(nanobind::module_& module);

}  // namespace perturbmap
