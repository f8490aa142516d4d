#include "padded_rows.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "elementary.hpp"
#include "simd.hpp"

namespace perturbmap {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double sum_of(const double (&x)[lanes]) { return (x[0] + x[1]) + (x[2] + x[3]); }

// out[j] += sum_i x[i * step] * rows[i][j], four rows at a time; their number is a multiple of four.
inline void combine(std::size_t n, std::size_t width, const double* x, std::size_t step, const double* __restrict rows,
                    double* __restrict out) {
    for (std::size_t i = 0; i < n; i += 4) {
        const double *r0 = rows + i * width, *r1 = r0 + width, *r2 = r1 + width, *r3 = r2 + width;
        const double x0 = x[i * step], x1 = x[(i + 1) * step], x2 = x[(i + 2) * step], x3 = x[(i + 3) * step];
        for (std::size_t j = 0; j < width; ++j) out[j] += (x0 * r0[j] + x1 * r1[j]) + (x2 * r2[j] + x3 * r3[j]);
    }
}

}  // namespace

PERTURBMAP_SIMD
void exponentials(std::size_t k, const double* __restrict x, double top, double* __restrict out) {
    const std::size_t width = padded(k);
    std::memcpy(out, x, k * sizeof(double));
    std::fill(out + k, out + width, -infinity);
    for (std::size_t i = 0; i < width; ++i) out[i] = exp_of(out[i] - top);
}

PERTURBMAP_SIMD
bool are_zero_or_at_least(std::size_t width, const double* __restrict x, double least) {
    double between[lanes] = {};
    for (std::size_t i = 0; i < width; i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) {
            const double one = x[i + l] < least ? 1.0 : 0.0;
            between[l] += x[i + l] > 0 ? one : 0.0;
        }
    return sum_of(between) == 0;
}

PERTURBMAP_SIMD
double total(std::size_t width, const double* __restrict x) {
    double sum[lanes] = {};
    for (std::size_t i = 0; i < width; i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) sum[l] += x[i + l];
    return sum_of(sum);
}

PERTURBMAP_SIMD
double multiply(std::size_t width, const double* __restrict a, const double* __restrict b, double* __restrict out) {
    double sum[lanes] = {};
    for (std::size_t i = 0; i < width; i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) {
            const double product = a[i + l] * b[i + l];
            out[i + l] = product;
            sum[l] += product;
        }
    return sum_of(sum);
}

PERTURBMAP_SIMD
void multiply_by(std::size_t width, const double* __restrict factor, double* __restrict out) {
    for (std::size_t i = 0; i < width; ++i) out[i] *= factor[i];
}

PERTURBMAP_SIMD
void scale(std::size_t width, double factor, double* out) {
    for (std::size_t i = 0; i < width; ++i) out[i] *= factor;
}

PERTURBMAP_SIMD
void product(std::size_t width, const double* table, const double* x, double* out) {
    std::fill(out, out + width, 0.0);
    combine(width, width, x, 1, table, out);
}

PERTURBMAP_SIMD
void add_outer_products(std::size_t n, std::size_t width, const double* left, const double* right, double* out) {
    for (std::size_t a = 0; a < width; ++a) combine(n, width, left + a, width, right, out + a * width);
}

PERTURBMAP_SIMD
void add_products(std::size_t k, double weight, const double* __restrict a, const double* __restrict b,
                  double* __restrict out) {
    for (std::size_t i = 0; i < k; ++i) out[i] += weight * a[i] * b[i];
}

PERTURBMAP_SIMD
void log_products(std::size_t k, const double* __restrict x, double top, double offset, const double* __restrict a,
                  double factor, double* __restrict out) {
    for (std::size_t i = 0; i < k; ++i) out[i] = offset + ((x[i] - top) + log_of(a[i] * factor));
}

}  // namespace perturbmap
