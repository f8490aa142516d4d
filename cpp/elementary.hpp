// exp and log that a compiler can vectorise, with the same bits however wide the vectors are.
#pragma once

#include <cstdint>
#include <cstring>

namespace perturbmap {

// log of a positive normal number, to about 1e-15: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and
// log m = 2 artanh((m - 1) / (m + 1)).
inline double log_of(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    // Adding 1 - sqrt(1/2) in units of the mantissa carries into the exponent where m >= sqrt(2).
    const std::uint64_t shifted = bits + 0x00095F619980C433u;
    // An exponent in the low mantissa bits of 2^52 is a double without an integer conversion.
    const std::uint64_t exponent_bits = (shifted >> 52) | 0x4330000000000000u;
    double exponent;
    std::memcpy(&exponent, &exponent_bits, sizeof exponent);
    exponent -= 4503599627370496.0 + 1023.0;
    const std::uint64_t mantissa_bits = bits - ((shifted & 0xFFF0000000000000u) - 0x3FF0000000000000u);
    double m;
    std::memcpy(&m, &mantissa_bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), q = s * s;
    double series = 1.0 / 21.0;
    series = series * q + 1.0 / 19.0;
    series = series * q + 1.0 / 17.0;
    series = series * q + 1.0 / 15.0;
    series = series * q + 1.0 / 13.0;
    series = series * q + 1.0 / 11.0;
    series = series * q + 1.0 / 9.0;
    series = series * q + 1.0 / 7.0;
    series = series * q + 1.0 / 5.0;
    series = series * q + 1.0 / 3.0;
    series = series * q + 1.0;
    return exponent * 0.69314718055994530942 + 2.0 * s * series;
}

// exp of a number of at most zero, to about one unit in the last place; zero below -708. x = n log 2 + r with
// |r| <= log(2) / 2, and exp r is its Taylor series.
inline double exp_of(double x) {
    // The sum has the nearest integer n in its low mantissa bits.
    constexpr double shifter = 0x1.8p52;
    const double shifted = x * 1.4426950408889634074 + shifter, n = shifted - shifter;
    // The first part of log 2 is so short that its product with n is exact.
    const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double series = 1.0 / 6227020800.0;
    series = series * r + 1.0 / 479001600.0;
    series = series * r + 1.0 / 39916800.0;
    series = series * r + 1.0 / 3628800.0;
    series = series * r + 1.0 / 362880.0;
    series = series * r + 1.0 / 40320.0;
    series = series * r + 1.0 / 5040.0;
    series = series * r + 1.0 / 720.0;
    series = series * r + 1.0 / 120.0;
    series = series * r + 1.0 / 24.0;
    series = series * r + 1.0 / 6.0;
    series = series * r + 1.0 / 2.0;
    const double unscaled = 1.0 + (r + r * r * series);
    std::uint64_t bits, exponent;
    std::memcpy(&bits, &unscaled, sizeof bits);
    std::memcpy(&exponent, &shifted, sizeof exponent);
    // A mask rather than a choice between two numbers, which GCC does not vectorise.
    bits = (bits + (exponent << 52)) & (std::uint64_t{0} - std::uint64_t{x >= -708.0});
    double result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

}  // namespace perturbmap
