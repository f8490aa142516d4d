"""Rows of a sparse feature matrix: multiplied in the core, and cut down to the columns that they have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap import _core
from perturbmap.data.rows import Rows, digest
from perturbmap.potentials import Floats, offsets_of
from perturbmap.potentials.types import Labels, Offsets
from perturbmap.support.threads import threads

#: Columns are 32-bit numbers.
MOST_COLUMNS = 2**31 - 1


@final
class SparseMatrix:
    """A matrix in compressed rows, as the core takes it.

    starts : (n_rows + 1,), where the entries of each row begin
    indices : the columns of the entries
    values : their values, float32 or float64; None where all are 1, as those of features that are there or not
    """

    def __init__(
        self, starts: Offsets, indices: Labels, values: NDArray[np.float32] | Floats | None, n_columns: int
    ) -> None:
        self.starts, self.indices, self.values = starts, indices, values
        self.shape = (len(starts) - 1, n_columns)

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> SparseMatrix:
        """The rows of CSR matrices, one after another; each number is copied once."""
        if parts[0].shape[1] > MOST_COLUMNS:
            raise ValueError(f"features must have at most {MOST_COLUMNS} columns, but have {parts[0].shape[1]}.")
        starts = offsets_of(np.concatenate([np.diff(part.indptr) for part in parts]))
        if len(parts) == 1:
            indices, numbers = parts[0].indices.astype(np.int32, copy=False), parts[0].data
        else:
            indices = np.concatenate([part.indices for part in parts], dtype=np.int32, casting="unsafe")
            numbers = np.concatenate([part.data for part in parts])
        return cls(starts, indices, None if (numbers == 1).all() else numbers, parts[0].shape[1])

    @classmethod
    def stacked(cls, parts: Sequence[SparseMatrix], n_columns: int) -> SparseMatrix:
        """The rows of several matrices, one after another."""
        if len(parts) == 1:
            return parts[0]
        starts = offsets_of(np.concatenate([np.zeros(0, np.int64), *(np.diff(part.starts) for part in parts)]))
        indices = np.concatenate([np.zeros(0, np.int32), *(part.indices for part in parts)])
        if all(part.values is None for part in parts):
            return cls(starts, indices, None, n_columns)
        values: list[Any] = [
            np.ones(len(part.indices), np.float32) if part.values is None else part.values for part in parts
        ]
        return cls(starts, indices, np.concatenate(values), n_columns)

    @cached_property
    def in_core(self) -> _core.SparseRows:
        """The matrix as the kernels take it; columns are looked at once."""
        values: Any = self.values
        is_single = values is not None and values.dtype == np.float32
        floats, doubles = (values, None) if is_single else (None, values)
        return _core.SparseRows(self.starts, self.indices, floats, doubles, self.shape[1])

    def __reduce__(self) -> Any:
        return SparseMatrix, (self.starts, self.indices, self.values, self.shape[1])

    def __getitem__(self, rows: slice) -> sp.csr_array:
        first, last, _ = rows.indices(self.shape[0])
        entries = slice(int(self.starts[first]), int(self.starts[last]))
        values = np.ones(entries.stop - entries.start, np.float32) if self.values is None else self.values[entries]
        starts = self.starts[first : last + 1] - self.starts[first]
        return sp.csr_array((values, self.indices[entries], starts), shape=(last - first, self.shape[1]))


class CompressedRows(Rows, ABC):
    """Sparse rows, in memory or on disk."""

    def by_example(self) -> CompressedRows:
        """The same rows, which are multiplied one by one in any case."""
        return self

    @abstractmethod
    def compact(self) -> tuple[SparseRows, Labels]:
        """The same rows of a matrix of the columns that they have, and no other; and which columns these are.

        Those who make small matrices share out their work themselves: products take one thread.
        """

    @abstractmethod
    def present(self) -> CompressedRows:
        """The same rows with 1 for every entry: the features that a site has."""


@final
class SparseRows(CompressedRows):
    """Rows of a `SparseMatrix`: sums are taken row by row, whatever else is multiplied.

    n_threads : that share a product; None is one for each core
    """

    matrix: SparseMatrix

    def __init__(
        self, matrix: SparseMatrix, starts: Offsets, stops: Offsets, *, n_threads: int | None = None
    ) -> None:
        self.matrix, self.starts, self.stops, self._n_threads = matrix, starts, stops, n_threads

    def take(self, indices: NDArray[np.intp]) -> SparseRows:
        """The rows of some examples; nothing is copied."""
        return SparseRows(self.matrix, self.starts[indices], self.stops[indices])

    def __matmul__(self, weights: Floats) -> Floats:
        """Rows times weights, in double precision."""
        w = np.ascontiguousarray(weights, dtype=np.float64).reshape(len(weights), -1)
        out = np.empty((self._n_rows, w.shape[1]))
        _core.sparse_product(self.matrix.in_core, self.starts, self.stops, w, out, threads(self._n_threads))
        return out.reshape(len(out), *weights.shape[1:])

    def add_pullback(self, values: Floats, total: Floats) -> None:
        """Adds what `pullback` gives to ``total``, row by row."""
        v = np.ascontiguousarray(values, dtype=np.float64).reshape(len(values), -1)
        _core.sparse_pullback(self.matrix.in_core, self.starts, self.stops, v, total.reshape(len(total), -1))

    def compact(self) -> tuple[SparseRows, Labels]:
        matrix, counts = self.matrix, self.stops - self.starts
        rows = np.repeat(self.starts - offsets_of(counts)[:-1], counts) + np.arange(self._n_rows)
        sizes = matrix.starts[rows + 1] - matrix.starts[rows]
        starts = offsets_of(sizes)
        numbers, columns = (np.empty(int(starts[-1]), dtype=np.int32) for _ in range(2))
        n = _core.sparse_number(matrix.in_core, self.starts, self.stops, numbers, columns)
        values = None
        if matrix.values is not None:
            entries = np.repeat(matrix.starts[rows] - starts[:-1], sizes) + np.arange(len(numbers))
            values = matrix.values[entries]
        ends = np.cumsum(counts)
        small = SparseMatrix(starts, numbers, values, n)
        return SparseRows(small, ends - counts, ends, n_threads=1), columns[:n].copy()

    def present(self) -> SparseRows:
        matrix = self.matrix
        ones = SparseMatrix(matrix.starts, matrix.indices, None, matrix.shape[1])
        return self if matrix.values is None else SparseRows(ones, self.starts, self.stops)

    @property
    def _n_rows(self) -> int:
        return int((self.stops - self.starts).sum())

    def minimum(self) -> float:
        """The least number of the matrix, or zero."""
        values = self.matrix.values
        return 0.0 if values is None or not values.size else min(0.0, float(values.min()))

    def fingerprint(self) -> bytes:
        """A digest of the numbers of the matrix."""
        values = np.empty(0) if self.matrix.values is None else self.matrix.values
        return digest(values, self.matrix.indices, self.matrix.starts)

    def sum_of_absolutes(self) -> float:
        return self._sum(np.abs)

    def sum_of_squares(self) -> float:
        return self._sum(np.square)

    def _sum(self, function: Any) -> float:
        """The sum of a function of the values of these rows."""
        spans = zip(self.matrix.starts[self.starts].tolist(), self.matrix.starts[self.stops].tolist(), strict=True)
        values = self.matrix.values
        if values is None:
            return float(sum(b - a for a, b in spans))
        return sum(float(function(values[a:b]).sum(dtype=np.float64)) for a, b in spans)
