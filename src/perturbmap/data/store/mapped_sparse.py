"""Sparse rows that lie in many files: a few thousand at a time are copied into memory, and multiplied there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.data.rows import CHUNK
from perturbmap.data.sparse_rows import CompressedRows, SparseMatrix, SparseRows
from perturbmap.data.store.mapped import Maps, MatrixOfShards, RowsOfShards
from perturbmap.data.store.shards import Shard
from perturbmap.potentials import Floats, Labels

_ARRAYS = ("feature_starts", "feature_indices", "feature_values")


@final
class MappedSparseMatrix(MatrixOfShards):
    """Sparse rows of some shards.

    is_present : whether every entry is 1, whatever its value
    """

    def __init__(self, shards: Sequence[Shard], n_columns: int, *, is_present: bool = False) -> None:
        super().__init__(Maps(shards, _ARRAYS), "feature_values", [shard.n_sites for shard in shards], n_columns)
        self.is_present = is_present

    def block(self, first: int, last: int) -> SparseMatrix:
        """Rows of one shard, copied: the core looks at their columns, which nobody changes afterwards."""
        shard = int(np.searchsorted(self.starts, first, side="right")) - 1
        starts, indices, values = self.maps[shard]
        at = starts[first - self.starts[shard] : last - self.starts[shard] + 1]
        entries = slice(int(at[0]), int(at[-1]))
        is_binary = self.is_present or not len(values)
        copied = None if is_binary else values[entries].copy()
        return SparseMatrix(at - at[0], indices[entries].copy(), copied, self.shape[1])

    def __getitem__(self, rows: slice) -> sp.csr_array:
        """Some rows as a matrix in memory."""
        first, last, _ = rows.indices(self.shape[0])
        cuts = np.unique(np.clip(self.starts, first, last)).tolist()
        return SparseMatrix.stacked([self.block(a, b) for a, b in pairwise(cuts)], self.shape[1])[:]

    def __reduce__(self) -> Any:
        return _again, (self.maps.shards, self.shape[1], self.is_present)


def _again(shards: Sequence[Shard], n_columns: int, is_present: bool) -> MappedSparseMatrix:
    return MappedSparseMatrix(shards, n_columns, is_present=is_present)


@final
class MappedSparseRows(RowsOfShards, CompressedRows):
    """Rows of a `MappedSparseMatrix`: sums are taken row by row, with the bits of rows in memory."""

    matrix: MappedSparseMatrix

    def take(self, indices: NDArray[np.intp]) -> MappedSparseRows:
        return MappedSparseRows(self.matrix, self.starts[indices], self.stops[indices])

    def loaded(self) -> SparseRows:
        """The same rows in memory, and no others."""
        blocks = [self.matrix.block(a, b) for a, b in self.blocks if b > a]
        ends = np.cumsum(self.stops - self.starts)
        return SparseRows(SparseMatrix.stacked(blocks, self.n_columns), ends - (self.stops - self.starts), ends)

    def _parts(self) -> Iterator[SparseRows]:
        """The examples in order, those of a few thousand rows at a time."""
        before = np.cumsum(self.stops - self.starts) // CHUNK
        cuts = np.flatnonzero(before[1:] != before[:-1]) + 1
        return (self.take(part).loaded() for part in np.split(np.arange(len(self.starts)), cuts))

    def __matmul__(self, weights: Floats) -> Floats:
        """Rows times weights, in double precision."""
        return np.concatenate([part @ weights for part in self._parts()])

    def add_pullback(self, values: Floats, total: Floats) -> None:
        """Adds what `pullback` gives to ``total``, a few thousand rows at a time."""
        first = 0
        for part in self._parts():
            last = first + int(part.stops[-1])
            part.add_pullback(values[first:last], total)
            first = last

    def compact(self) -> tuple[SparseRows, Labels]:
        return self.loaded().compact()

    def present(self) -> MappedSparseRows:
        matrix = MappedSparseMatrix(self.matrix.maps.shards, self.n_columns, is_present=True)
        return MappedSparseRows(matrix, self.starts, self.stops)
