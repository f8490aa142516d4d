#include "sparse_rows.hpp"

#include <algorithm>
#include <utility>

#include "simd.hpp"

namespace perturbmap {

namespace {

// Weights of entries so far ahead are fetched: they lie anywhere in memory.
constexpr std::int64_t ahead = 8;

inline void fetch(const double* weights, const std::int32_t* index, std::size_t k) {
#if defined(__GNUC__)
    __builtin_prefetch(weights + static_cast<std::size_t>(*index) * k);
    __builtin_prefetch(weights + static_cast<std::size_t>(*index) * k + 8);
#endif
}

// A hash table: where each column is in the list of those that have come.
class Numbers {
public:
    explicit Numbers(std::size_t most) : mask_(15) {
        while (mask_ < 2 * most) mask_ = 2 * mask_ + 1;
        places_.assign(mask_ + 1, -1);
    }

    std::int32_t of(std::int32_t column) {
        std::size_t slot = (static_cast<std::uint64_t>(column) * 0x9E3779B97F4A7C15) >> 24 & mask_;
        while (places_[slot] >= 0 && columns[static_cast<std::size_t>(places_[slot])] != column) slot = (slot + 1) & mask_;
        if (places_[slot] < 0) {
            places_[slot] = static_cast<std::int32_t>(columns.size());
            columns.push_back(column);
        }
        return places_[slot];
    }

    std::vector<std::int32_t> columns;

private:
    std::size_t mask_;
    std::vector<std::int32_t> places_;
};

}  // namespace

PERTURBMAP_SIMD
void sparse_product(const SparseRows& rows, std::int64_t a, std::int64_t b, std::size_t k, const double* weights,
                    double* out) {
    const std::int64_t end = rows.starts[b];
    for (std::int64_t r = a; r < b; ++r, out += k) {
        std::fill_n(out, k, 0.0);
        for (std::int64_t i = rows.starts[r]; i < rows.starts[r + 1]; ++i) {
            if (i + ahead < end) fetch(weights, rows.indices + i + ahead, k);
            const double* const from = weights + static_cast<std::size_t>(rows.indices[i]) * k;
            const double x = rows.value(i);
            for (std::size_t l = 0; l < k; ++l) out[l] += x * from[l];
        }
    }
}

PERTURBMAP_SIMD
void sparse_pullback(const SparseRows& rows, std::int64_t a, std::int64_t b, std::size_t k, const double* values,
                     double* out) {
    const std::int64_t end = rows.starts[b];
    for (std::int64_t r = a; r < b; ++r, values += k)
        for (std::int64_t i = rows.starts[r]; i < rows.starts[r + 1]; ++i) {
            if (i + ahead < end) fetch(out, rows.indices + i + ahead, k);
            double* const to = out + static_cast<std::size_t>(rows.indices[i]) * k;
            const double x = rows.value(i);
            for (std::size_t l = 0; l < k; ++l) to[l] += x * values[l];
        }
}

std::vector<std::int32_t> number_columns(const SparseRows& rows, const RowBlocks& blocks, std::int32_t* numbers) {
    std::size_t most = 0;
    for (std::size_t b = 0; b < blocks.n; ++b)
        most += static_cast<std::size_t>(rows.starts[blocks.last[b]] - rows.starts[blocks.first[b]]);
    Numbers found(most);
    for (std::size_t b = 0; b < blocks.n; ++b)
        for (std::int64_t i = rows.starts[blocks.first[b]]; i < rows.starts[blocks.last[b]]; ++i)
            *numbers++ = found.of(rows.indices[i]);
    return std::move(found.columns);
}

}  // namespace perturbmap
