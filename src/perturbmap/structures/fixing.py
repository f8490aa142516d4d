"""Pinned values along labels that are fixed one after another, of which something is kept from site to site."""

from __future__ import annotations

from typing import Protocol, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.potentials import Floats, Labels, Potentials


class Fixing(Protocol):
    """Rows of labels that are fixed site by site, and may branch, for all perturbed copies of one example.

    It begins with one row. The values are those of `Structure.pinned` with the labels of a row given.
    """

    def pin(self, site: int) -> Floats:
        """The maxima given each row, with each label of the site: ``(n_rows, n_copies, n_labels)``."""
        ...

    def branch(self, parents: ArrayLike, labels: ArrayLike) -> None:
        """Replaces the rows: row r is what row ``parents[r]`` was, with ``labels[r]`` at the site pinned last."""
        ...


@final
class FixedCuts:
    """The `Fixing` of minimum cuts: no cut is begun again (``fixed_cuts.hpp``)."""

    def __init__(self, f: Potentials, given: Labels | None, n_threads: int) -> None:
        self._cuts = _core.FixedCuts(f.to_core(given), n_threads)
        self._n_rows, self._n_copies, self._n_threads = 1, len(f.stack), n_threads

    @staticmethod
    def n_bytes(f: Potentials, n_rows: int) -> int:
        """The memory that so many rows of all copies take, at most."""
        return 2 * n_rows * len(f.stack) * (16 * f.n_edges + 9 * f.n_sites)

    def pin(self, site: int) -> Floats:
        """See `Fixing.pin`; it pushes one flow for each row and copy."""
        values = np.empty((self._n_rows, self._n_copies, 2))
        self._cuts.pin(site, values, self._n_threads)
        return values

    def branch(self, parents: ArrayLike, labels: ArrayLike) -> None:
        """See `Fixing.branch`; it copies residual graphs, and pushes nothing."""
        rows = np.ascontiguousarray(parents, dtype=np.int64)
        self._cuts.branch(rows, np.ascontiguousarray(labels, dtype=np.int32), self._n_threads)
        self._n_rows = len(rows)
