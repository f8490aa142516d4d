"""Rows of a feature matrix: multiplied without being copied, wherever they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats

#: Rows that are looked at together where a matrix may be larger than memory.
CHUNK = 4096


class Rows:
    """Rows of a feature matrix, in memory or on disk, that are multiplied without being copied.

    Example n has the rows ``starts[n]`` to ``stops[n]``; examples that lie one after another are multiplied as one.
    With ``by_example`` they are not, and the bits of a product do not depend on what else is multiplied. ``blocks``
    are the first row and the end of what is multiplied as one.
    """

    def __init__(
        self, matrix: Any, starts: NDArray[np.int64], stops: NDArray[np.int64], *, by_example: bool = False
    ) -> None:
        self.matrix, self.starts, self.stops = matrix, starts, stops
        is_break = np.ones(max(0, len(starts) - 1), dtype=bool) if by_example else self._breaks()
        firsts = starts[np.concatenate([[True], is_break])].tolist()
        lasts = stops[np.concatenate([is_break, [True]])].tolist()
        self.blocks = list(zip(firsts, lasts, strict=True))

    @classmethod
    def of(cls, matrix: Any, offsets: NDArray[np.int64]) -> Rows:
        """All rows of a matrix; those of example n begin at ``offsets[n]``."""
        return cls(matrix, offsets[:-1], offsets[1:])

    def _breaks(self) -> NDArray[np.bool_]:
        """Between which examples a block ends: those that do not lie one after another."""
        return np.asarray(self.starts[1:] != self.stops[:-1])

    def by_example(self) -> Rows:
        """The same rows, each example multiplied separately."""
        return type(self)(self.matrix, self.starts, self.stops, by_example=True)

    @property
    def n_columns(self) -> int:
        """The number of columns of the matrix."""
        return int(self.matrix.shape[1])

    def __matmul__(self, weights: Floats) -> Floats:
        """Rows times weights, in the precision of the rows."""
        matrix, w = self._plain(), weights.astype(self.matrix.dtype, copy=False)
        product, end = np.empty((sum(b - a for a, b in self.blocks), *w.shape[1:]), dtype=w.dtype), 0
        for a, b in self.blocks:
            np.matmul(matrix[a:b], w, out=product[end : end + b - a])
            end += b - a
        return product.astype(np.float64, copy=False)

    def pullback(self, values: Floats) -> Floats:
        """The transpose of these rows times values, which have one row for each of them."""
        total = np.zeros((self.n_columns, *values.shape[1:]))
        self.add_pullback(values, total)
        return total

    def add_pullback(self, values: Floats, total: Floats) -> None:
        """Adds what `pullback` gives to ``total``."""
        matrix, v, end = self._plain(), values.astype(self.matrix.dtype, copy=False), len(values)
        # The last rows first: of a product with the weights, which came just before, these are still in the cache.
        for a, b in reversed(self.blocks):
            # Transposed twice: BLAS takes the tall matrix by rows.
            total += (v[end - (b - a) : end].T @ matrix[a:b]).T
            end -= b - a

    def _plain(self) -> Any:
        """The matrix; of a file that is mapped as an array, whose parts are made in less time."""
        return np.asarray(self.matrix) if isinstance(self.matrix, np.memmap) else self.matrix

    def minimum(self) -> float:
        """The least number of the matrix, or zero."""
        return float(self.matrix.min()) if self.matrix.size else 0.0

    def fingerprint(self) -> bytes:
        """A digest of the numbers of the matrix."""
        return digest(self.matrix)

    def release(self) -> None:
        """Gives memory back; there is none to give back unless the matrix is on disk."""

    def mean_squared_norm(self) -> float:
        """The mean over rows of their squared length."""
        return self.sum_of_squares() / max(1, int((self.stops - self.starts).sum()))

    def mean_absolute_sum(self) -> float:
        """The mean over rows of the sum of their absolute values."""
        return self.sum_of_absolutes() / max(1, int((self.stops - self.starts).sum()))

    def sum_of_absolutes(self) -> float:
        """The sum of the absolute values of all numbers."""
        return sum(float(abs(part).sum(dtype=np.float64)) for part in self._pieces())

    def sum_of_squares(self) -> float:
        """The sum of the squares of all numbers."""
        return sum(float((part**2).sum(dtype=np.float64)) for part in self._pieces())

    def _pieces(self) -> Iterator[Any]:
        """The rows, a few thousand at a time."""
        return (self.matrix[c : min(b, c + CHUNK)] for a, b in self.blocks for c in range(a, b, CHUNK))

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """The rows of some examples; nothing is copied."""
        return type(self)(self.matrix, self.starts[indices], self.stops[indices])


def digest(*arrays: NDArray[Any]) -> bytes:
    """A digest of the bytes of arrays."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        state.update(np.ascontiguousarray(array).data)
    return state.digest()
