// Products with sparse rows, and the numbering of the columns that some rows have.
//
// Rows.     CSR: row r has the columns indices[i], i from starts[r] to starts[r + 1], each with a value: of one of two
//           types, or 1 where there are none, as of features that are there or not. A column may repeat: values add up.
// Blocks.   Rows come in blocks, the examples of a batch, which need not lie one after another.
// Rounding. Every number is a sum in the order of the rows and of their columns, in double precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perturbmap {

struct SparseRows {
    const std::int64_t* starts;
    const std::int32_t* indices;
    const float* floats;    // or null
    const double* doubles;  // or null

    double value(std::int64_t i) const { return floats ? static_cast<double>(floats[i]) : doubles ? doubles[i] : 1.0; }
};

// Rows first[b] to last[b] - 1, for each block b.
struct RowBlocks {
    const std::int64_t* first;
    const std::int64_t* last;
    std::size_t n;
};

// out[r][k] = sum_j rows[r][j] weights[j][k], for the rows from a to b - 1.
void sparse_product(const SparseRows& rows, std::int64_t a, std::int64_t b, std::size_t k, const double* weights,
                    double* out);

// out[j][k] += sum_r rows[r][j] values[r][k], for the rows from a to b - 1.
void sparse_pullback(const SparseRows& rows, std::int64_t a, std::int64_t b, std::size_t k, const double* values,
                     double* out);

// Numbers columns in the order in which they come: writes the number of each entry's, and returns the columns.
std::vector<std::int32_t> number_columns(const SparseRows& rows, const RowBlocks& blocks, std::int32_t* numbers);

}  // namespace perturbmap
