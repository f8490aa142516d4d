#include "uniform.hpp"

#include <algorithm>

#include "philox.hpp"
#include "simd.hpp"

namespace perturbmap {

PERTURBMAP_SIMD
void uniform_numbers(std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::size_t n, double* out) {
    constexpr std::size_t width = 2 * lanes;
    std::uint64_t bits[width];
    for (std::size_t done = 0; done < n; done += width) {
        philox(seed, stream, draw, static_cast<std::uint32_t>(done / 2), bits);
        for (std::size_t i = 0; i < std::min(width, n - done); ++i) out[done + i] = uniform_of(bits[i]);
    }
}

}  // namespace perturbmap
