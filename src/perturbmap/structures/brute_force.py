"""Enumeration: the executable definition of all the other structures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.structures.base import InfeasibleError, check_given, check_weights
from perturbmap.structures.spans import SpanLike, check_spans
from perturbmap.structures.summable import PinnedSums, SummableStructure, check_example_weights
from perturbmap.support.checks import check_count


@final
class BruteForce(SummableStructure):
    """Lists every labelling of every example: for tests, and for a few sites.

    allowed : a function ``allowed(y)`` of a labelling, which may leave labellings out by returning False:
        ``lambda y: len(set(y)) == len(y)`` makes it a `Matching`. All are allowed by default
    max_labellings : an example with more labellings is an error, as a guard against mistakes

    Ties go to the first labelling in lexicographic order.

    >>> f = pm.Potentials([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]])
    >>> pm.BruteForce(allowed=lambda y: y.sum() == 1).maximise(f)
    (array([0, 1, 0], dtype=int32), array([3.]))
    """

    def __init__(self, allowed: Callable[[Labels], bool] | None = None, max_labellings: int = 2**20) -> None:
        self.allowed = allowed
        self.max_labellings = max_labellings

    @property
    def allows_every_labelling(self) -> bool:
        return self.allowed is None

    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        copies = f.stack
        labels = np.empty(copies.shape[:-1], dtype=np.int32)
        values = np.empty((len(copies), len(f)))
        for copy, n, sites, y, scores in self._examples(f, given):
            best = int(np.argmax(scores))
            labels[copy, sites] = y[best]
            values[copy, n] = scores[best]
        lead = f.unary.shape[:-2]
        return labels.reshape(*lead, f.n_sites), values.reshape(*lead, len(f))

    def log_partition(
        self, f: Potentials, given: ArrayLike | None = None, weights: ArrayLike = 1.0
    ) -> tuple[Floats, Moments]:
        copies, each = f.stack, check_example_weights(f, weights)
        values = np.empty((len(copies), len(f)))
        unary = np.zeros(copies.shape)
        pairwise = None if f.pairwise is None else np.zeros(f.pairwise.shape)
        for copy, n, sites, y, scores in self._examples(f, given):
            top = scores.max()
            p = np.exp(scores - top)
            values[copy, n] = top + np.log(p.sum())
            p *= each[n] / p.sum()
            _add_indicators(f, n, y, p, unary[copy, sites], pairwise)
        return values.reshape(*f.unary.shape[:-2], len(f)), Moments(unary.reshape(f.unary.shape), pairwise)

    def pinned_sums(self, f: Potentials, given: ArrayLike | None = None) -> PinnedSums:
        return _ListedSums(f, list(self._examples(f, given)))

    def k_best(self, f: Potentials, k: int, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        """The k best labellings, best first, as `Chain.k_best` has them; ties in lexicographic order."""
        copies, n = f.stack, check_count("k", k)
        labels = np.full((len(copies), n, f.n_sites), -1, dtype=np.int32)
        values = np.full((len(copies), n, len(f)), -np.inf)
        for copy, i, sites, y, scores in self._examples(f, given):
            best = np.argsort(-scores, kind="stable")[:n]
            labels[copy, : len(best), sites] = y[best]
            values[copy, : len(best), i] = scores[best]
        lead = f.unary.shape[:-2]
        return labels.reshape(*lead, n, f.n_sites), values.reshape(*lead, n, len(f))

    def entropy(self, f: Potentials, given: ArrayLike | None = None) -> Floats:
        values = np.empty((len(f.stack), len(f)))
        for copy, i, _, _, scores in self._examples(f, given):
            log_p = scores - np.logaddexp.reduce(scores)
            values[copy, i] = -(np.exp(log_p) * log_p).sum()
        return values.reshape(*f.unary.shape[:-2], len(f))

    def span_probabilities(self, f: Potentials, spans: Sequence[SpanLike], given: ArrayLike | None = None) -> Floats:
        asked = check_spans(f, spans)
        values = np.empty((len(f.stack), len(asked)))
        sorted_spans = list(asked.each())
        for copy, i, _, y, scores in self._examples(f, given):
            p = np.exp(scores - np.logaddexp.reduce(scores))
            for number, (example, sites, labels) in enumerate(sorted_spans):
                if example == i:
                    values[copy, number] = p[(y[:, sites] == labels).all(axis=1)].sum()
        return values[:, asked.place].reshape(*f.unary.shape[:-2], len(asked))

    def _examples(self, f: Potentials, given: ArrayLike | None) -> Iterator[tuple[int, int, slice, Labels, Floats]]:
        """(copy, example, its sites, all labellings, their scores)."""
        known = check_given(f, given)
        for n in range(len(f)):
            sites = f.layout.sites(n)
            one = f[n]
            y = self._labellings(one, None if known is None else known[sites], n)
            pairwise = np.zeros(len(y))
            for table, (i, j) in zip(one.tables, one.edges, strict=True):
                pairwise += table[y[:, i], y[:, j]]
            for copy, unary in enumerate(one.stack):
                scores = unary[np.arange(one.n_sites), y].sum(axis=1) + pairwise
                if np.isneginf(scores).any():  # of forbidden labels
                    possible = scores > -np.inf
                    if not possible.any():
                        raise InfeasibleError(f"what is forbidden and given leaves no labelling of example {n}.")
                    yield copy, n, sites, y[possible], scores[possible]
                else:
                    yield copy, n, sites, y, scores

    def _labellings(self, one: Potentials, given: Labels | None, n: int) -> Labels:
        choices = [
            [int(given[d])] if given is not None and given[d] >= 0 else list(range(one.n_labels))
            for d in range(one.n_sites)
        ]
        count = float(np.prod([float(len(c)) for c in choices]))
        if count > self.max_labellings:
            raise ValueError(
                f"BruteForce would list {count:.0g} labellings of example {n}; its limit is {self.max_labellings} "
                "(max_labellings). Use Chain, Tree, BinaryGraph, Graph, Matching or FromSolver."
            )
        grids = np.meshgrid(*choices, indexing="ij") if choices else []
        columns = np.stack([g.ravel() for g in grids], axis=1) if choices else np.zeros((1, 0))
        y: Labels = columns.astype(np.int32)
        if self.allowed is not None:
            y = y[[bool(self.allowed(row)) for row in y]]
            if not len(y):
                raise InfeasibleError(f"allowed and given leave no labelling of example {n}.")
        return y


class _ListedSums:
    """All pinned sums of a batch, with all its labellings at hand."""

    def __init__(self, f: Potentials, examples: list[tuple[int, int, slice, Labels, Floats]]) -> None:
        self._f, self._examples = f, examples
        values = np.full(f.stack.shape, -np.inf)
        for copy, _, sites, y, scores in examples:
            for d in range(y.shape[1]):
                for k in np.unique(y[:, d]):
                    values[copy, sites.start + d, k] = np.logaddexp.reduce(scores[y[:, d] == k])
        self.values = values.reshape(f.unary.shape)

    def moments(self, weights: ArrayLike) -> Moments:
        f = self._f
        w = check_weights(f, weights, self.values).reshape(f.stack.shape)
        values = self.values.reshape(w.shape)
        unary = np.zeros(w.shape)
        pairwise = None if f.pairwise is None else np.zeros(f.pairwise.shape)
        for copy, n, sites, y, scores in self._examples:
            each = np.arange(y.shape[1])
            given_pin = np.exp(scores[:, None] - values[copy, sites][each, y])  # of each labelling, for its own pins
            p = (w[copy, sites][each, y] * given_pin).sum(axis=1)
            _add_indicators(f, n, y, p, unary[copy, sites], pairwise)
        return Moments(unary.reshape(f.unary.shape), pairwise)


def _add_indicators(f: Potentials, n: int, y: Labels, p: Floats, unary: Floats, pairwise: Floats | None) -> None:
    """Adds the indicators of labellings ``y`` of example n, weighted by ``p``."""
    for k in range(f.n_labels):
        unary[:, k] += p @ (y == k)
    if pairwise is not None:
        first = f.layout.edges_between(n).start
        for e, (i, j) in enumerate(f[n].edges.tolist()):
            np.add.at(pairwise if f.is_shared else pairwise[first + e], (y[:, i], y[:, j]), p)
