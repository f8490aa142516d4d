"""Structures over which ``exp f`` can be summed, and what the Gibbs distribution ``exp f(y) / Z`` can tell then."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.noise import Domain, Purpose, Rng, seed_of
from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.structures.base import InfeasibleError, Structure, check_given
from perturbmap.structures.spans import SpanLike, check_spans
from perturbmap.support.checks import check_count

#: The noise of exact samples, beside that of perturb-and-MAP samples.
EXACT_SAMPLES = Domain(Purpose.SAMPLES, 1)


class PinnedSums(Protocol):
    """All pinned sums ``log sum { exp f(y) : y_d = k }`` of a batch: `Pinned` with log-sum-exp for max.

    ``values`` is ``-inf`` where a pin contradicts the given labels or the structure. Its softmax over the labels
    of a site is the site's marginal.
    """

    @property
    def values(self) -> Floats:
        """The pinned sums, shape ``(..., n_sites, n_labels)``."""
        ...

    def moments(self, weights: ArrayLike) -> Moments:
        """``sum_{d,k} weights[d, k] * marginals given y_d = k``, the gradient of ``sum(weights * values)``."""
        ...


class SummableStructure(Structure):
    """A structure over whose labellings ``exp f`` can also be summed, so that probabilities are exact.

    `Chain`, `Tree` and `BruteForce` are such structures. One of your own needs only ``log_partition`` and
    ``pinned_sums`` besides ``maximise``: what the other methods make of them is slow but right.
    """

    can_sum = True

    @abstractmethod
    def log_partition(
        self, f: Potentials, given: ArrayLike | None = None, weights: ArrayLike = 1.0
    ) -> tuple[Floats, Moments]:
        """``A(f) = log sum_y exp f(y)``, ``(..., n_examples)``, and the marginals.

        With ``weights``, one for each example, the marginals of each are multiplied by its weight: they are the
        gradient of the weighted sum of A.
        """

    @abstractmethod
    def pinned_sums(self, f: Potentials, given: ArrayLike | None = None) -> PinnedSums:
        """The same sum over the labellings with ``y_d = k``, for all sites d and labels k; see `PinnedSums`."""

    def sample(self, f: Potentials, n_samples: int = 1, *, given: ArrayLike | None = None, rng: Rng = None) -> Labels:
        """Independent exact samples of the Gibbs distribution, ``(n_samples, n_sites)``.

        A sample depends on the seed, the example's stream and its own number alone.
        """
        known, n, seed = check_samples(f, n_samples, given, rng)
        labels = np.empty((n, f.n_sites), dtype=np.int32)
        for i in range(len(f)):
            sites = f.layout.sites(i)
            own = np.random.default_rng([seed, int(f.layout.streams[i])])
            uniform = own.random((n, sites.stop - sites.start))
            labels[:, sites] = self._sample_one(f[i], None if known is None else known[sites], uniform)
        return labels

    def _sample_one(self, one: Potentials, given: Labels | None, uniform: Floats) -> Labels:
        """One site after another, from its exact marginal given those before it; once for equal samples."""
        labels = np.full(uniform.shape, -1, dtype=np.int32)
        if given is not None:
            labels[:] = given
        for d in range(one.n_sites):
            for row in np.unique(labels, axis=0):
                same = np.flatnonzero((labels == row).all(axis=1))
                p = self.log_partition(one, row)[1].unary[d]
                possible = np.flatnonzero(p > 0)
                place = np.searchsorted(np.cumsum(p[possible]), uniform[same, d] * p.sum(), side="right")
                labels[same, d] = possible[np.minimum(place, len(possible) - 1)]
        return labels

    def entropy(self, f: Potentials, given: ArrayLike | None = None) -> Floats:
        """``-sum_y P(y) log P(y)`` of each example in nats, ``(..., n_examples)``: how uncertain its labelling is."""
        known = check_given(f, given)
        values = np.empty((len(f.stack), len(f)))
        for i in range(len(f)):
            sites = f.layout.sites(i)
            for copy, unary in enumerate(f.stack[:, sites]):
                one = f[i].with_unary(unary)
                total, q = self.log_partition(one, None if known is None else known[sites])
                mean = (q.unary * np.where(q.unary > 0, one.unary, 0.0)).sum()  # a forbidden label has -inf
                if one.pairwise is not None and q.pairwise is not None:
                    mean += (q.pairwise * one.pairwise).sum()
                values[copy, i] = max(0.0, float(total[0] - mean))
        return values.reshape(*f.unary.shape[:-2], len(f))

    def span_probabilities(self, f: Potentials, spans: Sequence[SpanLike], given: ArrayLike | None = None) -> Floats:
        """The probability of each span, ``(..., n_spans)``: that all its sites have its labels.

        A span is ``(example, sites, labels)``, as `Span` says.
        """
        known, asked = check_given(f, given), check_spans(f, spans)
        values = np.zeros((len(f.stack), len(asked)))
        for number, (i, own_sites, labels) in enumerate(asked.each()):
            sites = f.layout.sites(i)
            before = np.full(sites.stop - sites.start, -1, np.int32) if known is None else known[sites]
            if ((before[own_sites] >= 0) & (before[own_sites] != labels)).any():
                continue
            after = before.copy()
            after[own_sites] = labels
            one = f[i]
            try:
                pinned, total = (self.log_partition(one, y)[0].reshape(-1) for y in (after, before))
            except InfeasibleError:
                self.log_partition(one, before)  # raises where it is not the span that is impossible
                continue
            values[:, number] = np.exp(np.minimum(0.0, pinned - total))
        return values[:, asked.place].reshape(*f.unary.shape[:-2], len(asked))


def check_samples(f: Potentials, n_samples: int, given: ArrayLike | None, rng: Rng) -> tuple[Labels | None, int, int]:
    """Checks what samples are asked with; returns the given labels, the number of samples and a seed."""
    known = check_given(f, given)
    if f.unary.ndim != 2:
        raise ValueError("f has perturbed copies already: pass the potentials before they were perturbed.")
    return known, check_count("n_samples", n_samples), seed_of(rng)


def check_example_weights(f: Potentials, weights: ArrayLike) -> Floats:
    """Finite weights, one for each example."""
    array = np.asarray(weights, dtype=np.float64)
    if array.shape not in ((), (len(f),)) or not np.isfinite(array).all():
        raise ValueError(
            f"weights must be finite, one number or one for each example, {len(f)}, but has shape {array.shape}."
        )
    return np.ascontiguousarray(np.broadcast_to(array, (len(f),)))


def require_sums(structure: Structure, who: str, instead: str) -> SummableStructure:
    """The structure as one that can sum; TypeError says who needs it and what to use instead."""
    if not isinstance(structure, SummableStructure):
        raise TypeError(
            f"{who} sums over all labellings, which is possible for some structures, such as Chain and Tree, but not "
            f"for {type(structure).__name__}: use {instead}, which needs only the best labelling."
        )
    return structure
