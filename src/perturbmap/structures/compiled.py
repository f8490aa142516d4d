"""What the compiled structures have in common: the way from Potentials into the kernels and back."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.potentials import Floats, Labels, Mask, Moments, Potentials
from perturbmap.structures.base import (
    Pinned,
    Structure,
    check_given,
    check_pins,
    check_weights,
    threads,
)
from perturbmap.structures.parallel_edges import ParallelEdges


@dataclass(frozen=True)
class Kernels:
    """The three entry points of a compiled solver."""

    maximise: Any
    pin: Any
    moments: Any


def to_core(f: Potentials, given: Labels | None) -> _core.Batch:
    """The arrays of ``f`` as the kernels take them."""
    k = f.n_labels
    tables = np.zeros((0, k, k)) if f.pairwise is None else f.pairwise.reshape(-1, k, k)
    return _core.Batch(
        f.stack, f.edges, tables, f.is_shared, f.site_offsets, f.edge_offsets, given
    )


def empty_moments(f: Potentials) -> tuple[Floats, Floats]:
    """Zeros for a kernel to add moments to; a shared table gets one row an example."""
    k = f.n_labels
    return np.zeros(f.stack.shape), np.zeros((len(f) if f.is_shared else f.n_edges, k, k))


def finish_moments(f: Potentials, unary: Floats, tables: Floats) -> Moments:
    """Moments in the shape of ``f`` from what a kernel filled."""
    pairwise = None if f.pairwise is None else tables.sum(axis=0) if f.is_shared else tables
    return Moments(unary.reshape(f.unary.shape), pairwise)


class CompiledStructure(Structure):
    """A structure whose kernels solve all pins of a batch together."""

    kernels: ClassVar[Kernels]

    @abstractmethod
    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """Raises ValueError where ``f`` or ``given`` does not fit; returns what the kernel is to solve."""

    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        """See `Structure.maximise`."""
        known = check_given(f, given)
        problem = self.check(f, known).merged
        labels = np.empty(f.stack.shape[:-1], dtype=np.int32)
        values = np.empty((len(labels), len(f)))
        self.kernels.maximise(to_core(problem, known), labels, values, threads(self.n_threads))
        lead = f.unary.shape[:-2]
        return labels.reshape(*lead, f.n_sites), values.reshape(*lead, len(f))

    def pinned(self, f: Potentials, pins: ArrayLike | None = None, given: ArrayLike | None = None) -> Pinned:
        """See `Structure.pinned`: all pins from about the work of one maximisation."""
        known = check_given(f, given)
        return CompiledPinned(self, f, self.check(f, known), check_pins(f, pins), known)


class CompiledPinned:
    """All pinned problems of a batch. The values are computed at once, the moments when asked for."""

    def __init__(
        self,
        structure: CompiledStructure,
        f: Potentials,
        problem: ParallelEdges,
        pins: Mask | None,
        given: Labels | None,
    ) -> None:
        self._structure, self._f, self._problem, self._given = structure, f, problem, given
        free = np.empty(f.stack.shape[:-1], dtype=np.int32)
        values = np.empty(f.stack.shape)
        mask = None if pins is None else pins.view(np.uint8)
        structure.kernels.pin(to_core(problem.merged, given), mask, free, values, threads(structure.n_threads))
        self.free: Labels = free.reshape(f.unary.shape[:-1])
        self.values: Floats = values.reshape(f.unary.shape)
        if pins is not None:
            satisfied = np.arange(f.n_labels) == self.free[..., None]
            self.values[~(pins | satisfied)] = np.nan

    def moments(self, weights: ArrayLike) -> Moments:
        """See `Pinned.moments`. Pins of weight zero cost nothing."""
        f, merged = self._f, self._problem.merged
        w = check_weights(f, weights, self.values > -np.inf).reshape(f.stack.shape)
        unary, tables = empty_moments(merged)
        self._structure.kernels.moments(
            to_core(merged, self._given), w, unary, tables, threads(self._structure.n_threads)
        )
        return self._problem.spread(finish_moments(merged, unary, tables))
