// The pairwise potentials of a batch.
#pragma once

#include <cstddef>

namespace perturbmap {

// Pairwise tables in row-major order: `stride` is the table's size, or 0 where all edges share one.
struct Tables {
    const double* data = nullptr;
    std::size_t stride = 0;
    bool are_shared() const { return stride == 0; }
    const double* operator[](std::size_t edge) const { return data + edge * stride; }
};

}  // namespace perturbmap
