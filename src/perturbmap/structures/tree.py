"""Chains and trees: dynamic programming, which also gives exact sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.noise import Rng, streams_in
from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.structures.base import check_given, check_weights
from perturbmap.structures.compiled import (
    CompiledStructure,
    Kernels,
    empty_moments,
    finish_moments,
)
from perturbmap.structures.parallel_edges import ParallelEdges
from perturbmap.structures.spans import SpanLike, check_spans
from perturbmap.structures.summable import (
    EXACT_SAMPLES,
    PinnedSums,
    SummableStructure,
    check_example_weights,
    check_samples,
)
from perturbmap.support.checks import check_count
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

    def k_best(self, f: Potentials, k: int, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        """The k best labellings, ``(..., k, n_sites)``, and their scores, ``(..., k, n_examples)``; the best first.

        The first is that of `maximise`; scores descend, but for rounding. Where an example has fewer labellings, the
        labels of the rest are -1 and their scores ``-inf``.
        """
        known, n = check_given(f, given), check_count("k", k)
        problem = self.check(f, known).merged
        labels = np.empty((len(f.stack), n, f.n_sites), dtype=np.int32)
        values = np.empty((len(labels), n, len(f)))
        _core.tree_best(problem.to_core(known), labels, values, threads(self.n_threads))
        lead = f.unary.shape[:-2]
        return labels.reshape(*lead, n, f.n_sites), values.reshape(*lead, n, len(f))

    def sample(self, f: Potentials, n_samples: int = 1, *, given: ArrayLike | None = None, rng: Rng = None) -> Labels:
        """See `SummableStructure.sample`: one sweep for each example, then one step for each site of each sample."""
        known, n, seed = check_samples(f, n_samples, given, rng)
        problem = self.check(f, known).merged
        labels = np.empty((n, f.n_sites), dtype=np.int32)
        streams = streams_in(f, EXACT_SAMPLES)
        _core.tree_sample(problem.to_core(known), seed, streams, labels, threads(self.n_threads))
        return labels

    def entropy(self, f: Potentials, given: ArrayLike | None = None) -> Floats:
        """See `SummableStructure.entropy`; the work of one `log_partition`."""
        known = check_given(f, given)
        problem = self.check(f, known).merged
        values = np.empty((len(f.stack), len(f)))
        _core.tree_entropy(problem.to_core(known), values, threads(self.n_threads))
        return values.reshape(*f.unary.shape[:-2], len(f))

    def span_probabilities(self, f: Potentials, spans: Sequence[SpanLike], given: ArrayLike | None = None) -> Floats:
        """See `SummableStructure.span_probabilities`; the work of one `log_partition`, and a little for each site.

        Spans whose sites are not connected take another sweep over their example each.
        """
        known, asked = check_given(f, given), check_spans(f, spans)
        problem = self.check(f, known).merged
        values = np.empty((len(f.stack), len(asked)))
        _core.tree_spans(
            problem.to_core(known),
            asked.span_offsets,
            asked.offsets,
            asked.sites,
            asked.labels,
            values,
            threads(self.n_threads),
        )
        return values[:, asked.place].reshape(*f.unary.shape[:-2], len(asked))


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

    The best labellings, exact samples, how open the labelling is, and the probability of part of it:

    >>> pm.Chain().k_best(f, 2)
    (array([[1, 1, 1],
           [0, 0, 0]], dtype=int32), array([[3.2],
           [2.5]]))
    >>> pm.Chain().sample(f, 2, rng=0)
    array([[1, 1, 1],
           [1, 1, 1]], dtype=int32)
    >>> pm.Chain().entropy(f).round(3)
    array([1.8])
    >>> pm.Chain().span_probabilities(f, [(0, 1, [1, 1])]).round(3)  # of example 0, from site 1 on, labels 1, 1
    array([0.389])
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
