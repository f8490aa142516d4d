// PERTURBMAP_SIMD before a function has it compiled twice, for any x86-64 and for those with AVX2, and the
// right one chosen when the library is loaded. Without fused multiply-add the results are the same bits.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PERTURBMAP_SIMD __attribute__((target_clones("avx2", "default")))
#else
#define PERTURBMAP_SIMD
#endif
