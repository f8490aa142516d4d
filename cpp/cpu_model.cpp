// Whether the processor has AVX2, told as the code expects it that Clang writes for PERTURBMAP_SIMD: it calls
// __cpu_indicator_init and then looks at a bit of __cpu_model. GCC and LLVM bring both in their runtime
// libraries, Zig, which builds the wheels, does not. They are hidden: nobody outside this library sees them.
//
// AVX2 can be used where the processor has it and the system saves the registers of 256 bits (Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 1, section 14.7.1).
#include "simd.hpp"

#if defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#include <cpuid.h>

namespace {

constexpr unsigned kModelBitOfAvx2 = 10;

bool has_avx2() {
    unsigned a, b, c, d;
    constexpr unsigned saved_by_system = 1u << 27, avx = 1u << 28, avx2 = 1u << 5;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & saved_by_system) || !(c & avx)) return false;
    unsigned saved, saved_high;
    __asm__("xgetbv" : "=a"(saved), "=d"(saved_high) : "c"(0));
    constexpr unsigned halves_of_256_bits = 0b110;
    if ((saved & halves_of_256_bits) != halves_of_256_bits) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & avx2);
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"))) struct {
    unsigned vendor, type, subtype, features;
} __cpu_model = {};

// Before the constructors of the library, and for every function that has two versions.
__attribute__((visibility("hidden"))) int __cpu_indicator_init() {
    if (has_avx2()) __cpu_model.features |= 1u << kModelBitOfAvx2;
    return 0;
}
}
#endif
