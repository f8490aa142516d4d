"""Chains and trees: dynamic programming, which also gives exact sums."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.noise import Rng, streams_in
from perturbmap.potentials import Floats, Labels, Layout, Mask, Moments, Potentials
from perturbmap.structures.base import InfeasibleError, Pinned, check_given, check_weights
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
from perturbmap.structures.transitions import Transitions, as_transitions, forbid, forbid_pairs
from perturbmap.support.checks import check_count
from perturbmap.support.threads import threads


class _Forest(CompiledStructure, SummableStructure):
    kernels: ClassVar[Kernels] = Kernels(_core.tree_maximise, _core.tree_pin, _core.tree_moments)

    def __init__(self, n_threads: int | None = None, *, allowed: Transitions | ArrayLike | None = None) -> None:
        self.n_threads = n_threads
        self.allowed = allowed

    @property
    def is_plain(self) -> bool:
        """Whether nothing is forbidden; see `Structure.is_plain`."""
        return self.allowed is None

    @property
    def allows_every_labelling(self) -> bool:
        return self.allowed is None

    @abstractmethod
    def joined(self, layout: Layout) -> Layout:
        """The sites with the edges to which allowed pairs belong."""

    def check_classes(self, classes: Sequence[Hashable]) -> None:
        """See `Structure.check_classes`: the names that ``allowed`` has must be the classes."""
        if self.allowed is None:
            return
        transitions = as_transitions(self.allowed)
        if transitions.labels is not None and list(transitions.labels) != list(classes):
            raise ValueError(
                f"allowed was made for the labels {list(transitions.labels)}, but the classes are {list(classes)}: "
                "make it for these, in this order, or name the classes with classes=."
            )
        transitions.rules(len(classes))

    def check_labels(self, layout: Layout, labels: Labels, n_labels: int) -> None:
        """See `Structure.check_labels`: starts, ends and pairs of known labels."""
        if self.allowed is None:
            return
        broken = as_transitions(self.allowed).first_break(self.joined(layout), labels, n_labels)
        if broken is not None:
            raise InfeasibleError(f"{broken}.")

    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        labels, values = super().maximise(f, given)
        self._check_possible(f, given, np.isfinite(values))
        return labels, values

    def evaluate(self, f: Potentials, labels: ArrayLike) -> Floats:
        """See `Structure.evaluate`: -inf for labels that are not allowed."""
        return f.score(labels) if self.allowed is None else self.check(f, None).merged.score(labels)

    def pinned(self, f: Potentials, pins: ArrayLike | None = None, given: ArrayLike | None = None) -> Pinned:
        """See `Structure.pinned`: all pins from about the work of one maximisation."""
        pinned = super().pinned(f, pins, given)
        self._check_possible(f, given, self._has_some(f, pinned.values))
        return pinned

    def pinned_values(
        self, f: Potentials, given: ArrayLike | None = None, pins: ArrayLike | None = None
    ) -> tuple[Labels, Floats]:
        """See `Structure.pinned_values`; keeps no maximisers."""
        free, values = super().pinned_values(f, given, pins)
        self._check_possible(f, given, self._has_some(f, values))
        return free, values

    def _has_some(self, f: Potentials, values: Floats) -> Mask:
        """Whether the first site of each example has a value, ``(..., n_examples)``; an example without sites has."""
        if self.allowed is None:
            return np.ones(len(f), dtype=bool)
        has_sites = f.layout.site_counts > 0
        found = np.ones((*values.shape[:-2], len(f)), dtype=bool)
        found[..., has_sites] = np.isfinite(values[..., f.site_offsets[:-1][has_sites], :]).any(axis=-1)
        return found

    def _check_possible(self, f: Potentials, given: ArrayLike | None, is_possible: Mask) -> None:
        """Raises InfeasibleError unless all is possible, ``(..., n_examples)``; without ``allowed`` it always is."""
        if self.allowed is None or is_possible.all():
            return
        n = int(np.flatnonzero(~is_possible.reshape(-1, len(f)).all(axis=0))[0])
        known = check_given(f, given)
        if known is not None:
            self.check_labels(f.layout, known, f.n_labels)
        raise InfeasibleError(f"allowed and given leave no labelling of example {n}.")

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
        self._check_possible(f, known, np.isfinite(values))
        moments = problem.spread(finish_moments(problem.merged, unary, tables))
        return values.reshape(*f.unary.shape[:-2], len(f)), moments

    def pinned_sums(self, f: Potentials, given: ArrayLike | None = None) -> PinnedSums:
        """See `SummableStructure.pinned_sums`; exact, and all pins from about the work of one sum."""
        known = check_given(f, given)
        sums = _ForestSums(f, self.check(f, known), known, threads(self.n_threads))
        self._check_possible(f, known, self._has_some(f, sums.values))
        return sums

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
        self._check_possible(f, known, np.isfinite(values[:, 0]))
        lead = f.unary.shape[:-2]
        return labels.reshape(*lead, n, f.n_sites), values.reshape(*lead, n, len(f))

    def sample(self, f: Potentials, n_samples: int = 1, *, given: ArrayLike | None = None, rng: Rng = None) -> Labels:
        """See `SummableStructure.sample`: one sweep for each example, then one step for each site of each sample."""
        known, n, seed = check_samples(f, n_samples, given, rng)
        problem = self.check(f, known).merged
        labels = np.empty((n, f.n_sites), dtype=np.int32)
        streams = streams_in(f, EXACT_SAMPLES)
        _core.tree_sample(problem.to_core(known), seed, streams, labels, threads(self.n_threads))
        self._check_possible(f, known, np.asarray(f.layout.sums(labels[0] < 0) == 0))
        return labels

    def entropy(self, f: Potentials, given: ArrayLike | None = None) -> Floats:
        """See `SummableStructure.entropy`; the work of one `log_partition`."""
        known = check_given(f, given)
        problem = self.check(f, known).merged
        values = np.empty((len(f.stack), len(f)))
        _core.tree_entropy(problem.to_core(known), values, threads(self.n_threads))
        self._check_possible(f, known, np.isfinite(values))
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
        if self.allowed is not None and np.isnan(values).any():
            self.maximise(f, known)  # says of which example there is no labelling
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
    """Sequences of sites, each joined to the next, with up to 65,535 labels: words, sentences, signals.

    The Viterbi algorithm finds the best labelling; sums over labellings are exact. Ties go to the smallest label,
    from the first site on.

    allowed : which labels may come first, last and one after another, `Transitions`; or a mask of pairs,
        ``(n_labels, n_labels)``. What it forbids is impossible in all that is asked of the chain, and in learning.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0], [0.0, 0.2]], pm.potts(1.0))
    >>> pm.Chain().maximise(f)
    (array([1, 1, 1], dtype=int32), array([3.2]))
    >>> pm.Chain().argmax(f, given=[-1, 0, -1])
    array([0, 0, 0], dtype=int32)
    >>> pm.Chain(allowed=[[True, False], [True, True]]).argmax(f, given=[-1, 1, -1])  # no 1 after a 0
    array([1, 1, 1], dtype=int32)
    >>> log_z, q = pm.Chain().log_partition(f)
    >>> log_z.round(3)
    array([4.27])

    The best labellings, exact samples, how uncertain the labelling is, and the probability of part of it:

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
        if self.allowed is None:
            return ParallelEdges.keep(f)
        return ParallelEdges(f, forbid(f, as_transitions(self.allowed).rules(f.n_labels)))

    def joined(self, layout: Layout) -> Layout:
        """The same sites, consecutive ones of each example joined."""
        return Layout.of_counts(layout.site_counts)


@final
class Tree(_Forest):
    """Trees and forests, graphs without cycles, with up to 65,535 labels; the smallest site of a tree is its root.

    Dynamic programming finds the best labelling; sums over labellings are exact. Ties go to the smallest label, from
    the roots down.

    allowed : a mask ``(n_labels, n_labels)`` of the pairs that an edge may have, or `Transitions` of pairs alone;
        rows are the labels of the first site of an edge, as in ``pairwise``

    >>> f = pm.Potentials([[0.0, 2.0], [1.0, 0.0], [1.0, 0.0]], pm.potts(0.8), edges=[(0, 1), (0, 2)])
    >>> pm.Tree().maximise(f)
    (array([1, 0, 0], dtype=int32), array([4.]))
    """

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """The edges, parallel ones taken together, must not close a cycle (which the kernel finds)."""
        if self.allowed is None:
            return ParallelEdges.merge(f) if f.n_edges else ParallelEdges.keep(f)
        transitions = as_transitions(self.allowed)
        if transitions.starts is not None or transitions.ends is not None:
            raise ValueError("Tree takes the pairs of allowed alone: leave starts and ends out, or use Chain.")
        own = forbid_pairs(f, transitions.rules(f.n_labels).pairs)
        return ParallelEdges.merge(own) if f.n_edges else ParallelEdges.keep(own)

    def joined(self, layout: Layout) -> Layout:
        """The same layout, with its own edges."""
        return layout
