// Zero-mean Gumbel noise from a counter-based generator.
//
// Number i of draw r of stream s under seed k is a pure function of (k, s, r, i): any thread can make any
// part of the noise, and every example keeps its own stream however the examples are batched.
//
// Generator.  Philox4x32-10: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3,
//             SC 2011. Key = seed, counter = (block, draw, stream).
// Noise.      -log(-log u) - gamma with u uniform on (0, 1), 52 bits; gamma is Euler's constant, so that
//             the mean is zero. The logarithm is our own: the same bits on every platform.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perturbmap {

// Fills out[0..n) with draw `draw` of stream `stream`.
void gumbel_noise(std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::size_t n, double* out);

}  // namespace perturbmap
