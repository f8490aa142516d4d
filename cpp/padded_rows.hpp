// Arithmetic on rows of numbers, one for each label, for the sums over trees.
//
// Padding.    A row of k numbers takes padded(k), a multiple of `lanes`; what it is padded with is zero. Loops then run
//             over whole vectors, without a remainder.
// Rounding.   Sums are taken lane by lane, so that they are the same bits whatever the length of a vector.
#pragma once

#include <algorithm>
#include <cstddef>

namespace perturbmap {

// Doubles of a 256-bit vector.
constexpr std::size_t lanes = 4;

constexpr std::size_t padded(std::size_t k) { return (k + lanes - 1) / lanes * lanes; }

// The largest of k >= 1 numbers.
inline double highest(std::size_t k, const double* x) {
    double a = x[0], b = a, c = a, d = a;
    std::size_t i = 0;
    for (; i + 4 <= k; i += 4) {
        a = std::max(a, x[i]);
        b = std::max(b, x[i + 1]);
        c = std::max(c, x[i + 2]);
        d = std::max(d, x[i + 3]);
    }
    for (; i < k; ++i) a = std::max(a, x[i]);
    return std::max(std::max(a, b), std::max(c, d));
}

// out = exp(x - top), padded with zeros; `x` is not padded, and none of it is above top.
void exponentials(std::size_t k, const double* x, double top, double* out);

// Whether every number of a padded row, none of them negative, is zero or at least so much.
bool are_zero_or_at_least(std::size_t width, const double* x, double least);

// The sum of a padded row.
double total(std::size_t width, const double* x);

// out = a * b; returns its sum.
double multiply(std::size_t width, const double* a, const double* b, double* out);

// out *= factor, number by number.
void multiply_by(std::size_t width, const double* factor, double* out);

// out *= factor, a single number.
void scale(std::size_t width, double factor, double* out);

// out[j] = sum_i x[i] * table[i][j]; the table has `width` rows.
void product(std::size_t width, const double* table, const double* x, double* out);

// out[a][b] += sum_i left[i][a] * right[i][b] for i < n, a multiple of `lanes`.
void add_outer_products(std::size_t n, std::size_t width, const double* left, const double* right, double* out);

// out += weight * a * b; `out` is not padded.
void add_products(std::size_t k, double weight, const double* a, const double* b, double* out);

// out = offset + (x - top) + log(a * factor); `x` and `out` are not padded.
void log_products(std::size_t k, const double* x, double top, double offset, const double* a, double factor, double* out);

}  // namespace perturbmap
