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
)
from perturbmap.structures.parallel_edges import ParallelEdges
from perturbmap.support.threads import threads


@dataclass(frozen=True)
class Kernels:
    """The three entry points of a compiled solver."""

    maximise: Any
    pin: Any
    moments: Any


def empty_moments(f: Potentials) -> tuple[Floats, Floats]:
    """Zeros for a kernel to add moments to; a shared table gets one for every block of examples."""
    k = f.n_labels
    return np.zeros(f.stack.shape), np.zeros((-(-len(f) // _core.shared_block) if f.is_shared else f.n_edges, k, k))


def finish_moments(f: Potentials, unary: Floats, tables: Floats) -> Moments:
    """Moments in the shape of ``f`` from what a kernel filled."""
    pairwise = None if f.pairwise is None else tables.sum(axis=0) if f.is_shared else tables
    return Moments(unary.reshape(f.unary.shape), pairwise)


class CompiledStructure(Structure):
    """A structure whose kernels solve all pins of a batch together."""

    is_thread_safe: ClassVar[bool] = True
    kernels: ClassVar[Kernels]

    @property
    def options(self) -> tuple[int, ...]:
        """What the kernels of maximisation and of pins are told besides."""
        return ()

    @abstractmethod
    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """Raises ValueError where ``f`` or ``given`` does not fit; returns what the kernel is to solve."""

    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        known = check_given(f, given)
        batch = self.check(f, known).merged.to_core(known)
        labels = np.empty(f.unary.shape[:-1], dtype=np.int32)
        values = np.empty((*f.unary.shape[:-2], len(f)))
        self.kernels.maximise(batch, labels, values, threads(self.n_threads), *self.options)
        return labels, values

    def pinned(self, f: Potentials, pins: ArrayLike | None = None, given: ArrayLike | None = None) -> Pinned:
        """See `Structure.pinned`: all pins from about the work of one maximisation."""
        known = check_given(f, given)
        return CompiledPinned(self, f, self.check(f, known), check_pins(f, pins), known)

    def pinned_values(
        self, f: Potentials, given: ArrayLike | None = None, pins: ArrayLike | None = None
    ) -> tuple[Labels, Floats]:
        """See `Structure.pinned_values`; keeps no maximisers."""
        known = check_given(f, given)
        free, values, _ = self.pin(f, self.check(f, known).merged.to_core(known), check_pins(f, pins), keep=False)
        return free, values

    def pin(self, f: Potentials, batch: _core.Batch, pins: Mask | None, *, keep: bool) -> tuple[Labels, Floats, Any]:
        """Free labels, pinned values and, with ``keep``, the maximisers as the kernel has them."""
        shape = f.stack.shape
        free, values = np.empty(shape[:-1], dtype=np.int32), np.empty(shape)
        mask = None if pins is None else pins.view(np.uint8)
        kept = self.kernels.pin(batch, mask, free, values, keep, threads(self.n_threads), *self.options)
        return free.reshape(f.unary.shape[:-1]), values.reshape(f.unary.shape), kept


class CompiledPinned:
    """All pinned problems of a batch: values, and the maximisers in the kernel's own compact form."""

    def __init__(
        self,
        structure: CompiledStructure,
        f: Potentials,
        problem: ParallelEdges,
        pins: Mask | None,
        given: Labels | None,
    ) -> None:
        self._structure, self._f, self._problem = structure, f, problem
        self._batch = problem.merged.to_core(given)
        self.free, self.values, self._maximisers = structure.pin(f, self._batch, pins, keep=True)

    def moments(self, weights: ArrayLike) -> Moments:
        """See `Pinned.moments`; takes no further maximisation."""
        merged = self._problem.merged
        w = check_weights(self._f, weights, self.values).reshape(merged.stack.shape)
        unary, tables = empty_moments(merged)
        n_threads = threads(self._structure.n_threads)
        self._structure.kernels.moments(self._batch, self._maximisers, w, unary, tables, n_threads)
        return self._problem.spread(finish_moments(merged, unary, tables))
