// PERTURBMAP_SIMD before a function has it compiled twice, for any x86-64 and for those with AVX2, and the
// right one chosen when the library is loaded. Without fused multiply-add the results are the same bits.
// The choice is the C library's (ifunc), which glibc has; a sanitizer is not ready yet when it is made.
// Clang may leave out what such functions alone need of the standard library: they copy by memcpy, not std::copy.
#pragma once

#include <cstdlib> // defines __GLIBC__ where that is the C library

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#if __has_attribute(target_clones)
#define PERTURBMAP_SIMD __attribute__((target_clones("avx2", "default")))
#endif
#endif

#ifndef PERTURBMAP_SIMD
#define PERTURBMAP_SIMD
#endif
