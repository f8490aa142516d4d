#include "gumbel.hpp"

#include <algorithm>
#include <cstring>

#include "elementary.hpp"
#include "philox.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {

constexpr double euler_gamma = 0.57721566490153286061;

}  // namespace

PERTURBMAP_SIMD
void gumbel_noise(std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::size_t n, double* out) {
    constexpr std::size_t width = 2 * lanes;
    std::uint64_t bits[width];
    double z[width];
    for (std::size_t done = 0; done < n; done += width) {
        philox(seed, stream, draw, static_cast<std::uint32_t>(done / 2), bits);
        for (std::size_t i = 0; i < width; ++i) {
            z[i] = -log_of(-log_of(uniform_of(bits[i]))) - euler_gamma;
        }
        std::memcpy(out + done, z, std::min(width, n - done) * sizeof(double));
    }
}

}  // namespace perturbmap
