// Uniform random numbers from a counter-based generator.
//
// Number i of draw r of stream s under seed k is a pure function of (k, s, r, i), as in gumbel.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perturbmap {

// Fills out[0..n) with the numbers, in (0, 1), of draw `draw` of stream `stream`.
void uniform_numbers(std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::size_t n, double* out);

}  // namespace perturbmap
