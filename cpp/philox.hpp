// Random numbers from a counter: number i of draw r of stream s under seed k is a pure function of (k, s, r, i).
//
// Reference.  Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011: Philox4x32-10 with
//             key = seed and counter = (block, draw, stream).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace perturbmap {

constexpr std::size_t lanes = 16;  // blocks of four 32-bit numbers made side by side

// Philox4x32-10 for the counters (first_block + lane, draw, stream); two 64-bit numbers for each lane.
inline void philox(std::uint64_t seed, std::uint64_t stream, std::uint32_t draw, std::uint32_t first_block,
                   std::uint64_t* out) {
    std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
    for (std::size_t l = 0; l < lanes; ++l) {
        c0[l] = first_block + static_cast<std::uint32_t>(l);
        c1[l] = draw;
        c2[l] = static_cast<std::uint32_t>(stream);
        c3[l] = static_cast<std::uint32_t>(stream >> 32);
    }
    std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        for (std::size_t l = 0; l < lanes; ++l) {
            const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[l], p1 = std::uint64_t{0xCD9E8D57u} * c2[l];
            c0[l] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
            c1[l] = static_cast<std::uint32_t>(p1);
            c2[l] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
            c3[l] = static_cast<std::uint32_t>(p0);
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (std::size_t l = 0; l < lanes; ++l) {
        out[2 * l] = std::uint64_t{c0[l]} << 32 | c1[l];
        out[2 * l + 1] = std::uint64_t{c2[l]} << 32 | c3[l];
    }
}

// 52 random bits as a number in (0, 1): the mantissa of a number in [1, 2), moved to the middle of its cell.
inline double uniform_of(std::uint64_t bits) {
    const std::uint64_t one_to_two = (bits >> 12) | 0x3FF0000000000000u;
    double u;
    std::memcpy(&u, &one_to_two, sizeof u);
    return (u - 1.0) + 0x1p-53;
}

}  // namespace perturbmap
