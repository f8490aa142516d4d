"""Edges that join the same two sites: merged for a kernel, and spread again over its moments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Moments, Potentials


class ParallelEdges(NamedTuple):
    """Potentials ``f`` and their ``merged`` form, in which no two edges join the same sites."""

    f: Potentials
    merged: Potentials
    group: NDArray[np.intp] | None = None
    is_turned: NDArray[np.bool_] | None = None

    @classmethod
    def keep(cls, f: Potentials) -> ParallelEdges:
        """Leaves ``f`` as it is: for kernels that add parallel edges up by themselves."""
        return cls(f, f)

    @classmethod
    def merge(cls, f: Potentials) -> ParallelEdges:
        """Adds up the tables of parallel edges, turned round where an edge runs the other way."""
        low, high = f.edges.min(axis=1), f.edges.max(axis=1)
        _, first, group = np.unique(low.astype(np.int64) * f.n_sites + high, return_index=True, return_inverse=True)
        if first.size == f.n_edges:
            return cls(f, f)
        # In the order and direction of their first appearance: examples without parallel edges stay as they are.
        order = np.argsort(first)
        first, group = first[order], np.argsort(order)[group]
        is_turned = f.edges[:, 0] != f.edges[first[group], 0]
        tables = np.zeros((first.size, f.n_labels, f.n_labels))
        np.add.at(tables, group, np.where(is_turned[:, None, None], f.tables.swapaxes(1, 2), f.tables))
        edge_offsets = np.searchsorted(first, f.edge_offsets)
        merged = Potentials.trusted(f.layout.with_edges(f.edges[first], edge_offsets), f.unary, tables)
        return cls(f, merged, group, is_turned)

    def spread(self, moments: Moments) -> Moments:
        """Moments of ``merged`` as moments of ``f``."""
        if self.f.n_edges == 0:  # those that were added are nobody's
            return Moments(moments.unary, None if self.f.pairwise is None else np.zeros_like(self.f.pairwise))
        if self.group is None or self.is_turned is None or moments.pairwise is None:
            return moments
        pairwise = moments.pairwise[self.group]
        pairwise = np.where(self.is_turned[:, None, None], pairwise.swapaxes(1, 2), pairwise)
        return Moments(moments.unary, pairwise.sum(axis=0) if self.f.is_shared else pairwise)
