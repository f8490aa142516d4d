"""Chains and trees: dynamic programming, which also gives exact sums."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.structures.base import (
    PinnedSums,
    SummableStructure,
    check_example_weights,
    check_given,
    check_weights,
)
from perturbmap.structures.compiled import (
    CompiledStructure,
    Kernels,
    empty_moments,
    finish_moments,
)
from perturbmap.structures.parallel_edges import ParallelEdges
from perturbmap.support.threads import threads


class _Forest(CompiledStructure, SummableStructure):
    is_plain = True
    kernels: ClassVar[Kernels] = Kernels(_core.tree_maximise, _core.tree_pin, _core.tree_moments)

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads

    @property
    def allows_every_labelling(self) -> bool:
        return True

    def log_partition(
        self, f: Potentials, given: ArrayLike | None = None, weights: ArrayLike = 1.0
    ) -> tuple[Floats, Moments]:
        """See `SummableStructure.log_partition`; the sum is exact."""
        known = check_given(f, given)
        problem = self.check(f, known)
        unary, tables = empty_moments(problem.merged)
        values = np.empty((len(unary), len(f)))
        each = check_example_weights(f, weights)
        _core.tree_sum(problem.merged.to_core(known), each, values, unary, tables, threads(self.n_threads))
        moments = problem.spread(finish_moments(problem.merged, unary, tables))
        return values.reshape(*f.unary.shape[:-2], len(f)), moments

    def pinned_sums(self, f: Potentials, given: ArrayLike | None = None) -> PinnedSums:
        """See `SummableStructure.pinned_sums`; exact, and all pins from about the work of one sum."""
        known = check_given(f, given)
        return _ForestSums(f, self.check(f, known), known, threads(self.n_threads))


class _ForestSums:
    """All pinned sums of a batch. Nothing is kept between values and moments: the sweeps cost less than memory."""

    def __init__(self, f: Potentials, problem: ParallelEdges, given: Labels | None, n_threads: int) -> None:
        self._f, self._problem, self._n_threads = f, problem, n_threads
        self._batch = problem.merged.to_core(given)
        values = np.empty(f.stack.shape)
        _core.tree_pinned_sums(self._batch, values, n_threads)
        self.values = values.reshape(f.unary.shape)

    def moments(self, weights: ArrayLike) -> Moments:
        merged = self._problem.merged
        w = check_weights(self._f, weights, self.values).reshape(merged.stack.shape)
        unary, tables = empty_moments(merged)
        _core.tree_pinned_sums_moments(self._batch, w, unary, tables, self._n_threads)
        return self._problem.spread(finish_moments(merged, unary, tables))


@final
class Chain(_Forest):
    """Up to 65,535 labels, consecutive sites joined: words, sentences, signals.

    Ties go to the smallest label, from the first site on.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0], [0.0, 0.2]], pm.potts(1.0))
    >>> pm.Chain().maximise(f)
    (array([1, 1, 1], dtype=int32), array([3.2]))
    >>> pm.Chain().argmax(f, given=[-1, 0, -1])
    array([0, 0, 0], dtype=int32)
    >>> log_z, q = pm.Chain().log_partition(f)
    >>> log_z.round(3)
    array([4.27])
    """

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """Raises ValueError unless the edges join consecutive sites, in order."""
        if f.n_edges and not f.layout.is_chain():
            raise ValueError(
                "Chain needs edges between consecutive sites, in order: (0, 1), (1, 2), ... Leave edges out to get "
                "them, or use Tree for other forests."
            )
        return ParallelEdges.keep(f)


@final
class Tree(_Forest):
    """Up to 65,535 labels, any forest. The smallest site of each tree is its root.

    Ties go to the smallest label, from the roots down.

    >>> f = pm.Potentials([[0.0, 2.0], [1.0, 0.0], [1.0, 0.0]], pm.potts(0.8), edges=[(0, 1), (0, 2)])
    >>> pm.Tree().maximise(f)
    (array([1, 0, 0], dtype=int32), array([4.]))
    """

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """The edges, parallel ones taken together, must not close a cycle (which the kernel finds)."""
        return ParallelEdges.merge(f) if f.n_edges else ParallelEdges.keep(f)
