"""Weighted labellings that converge to the Gibbs distribution: particles.

Sites are fixed a few at a time. Every particle branches into one for each label, and where these are too many, some
are kept: those whose share of Z is large for certain, the others with a probability in proportion to it, and one over
that probability is their weight (Fearnhead and Clifford, JRSS B 2003). So no two particles are equal, and what
decides Z is not left to chance. How large a share is, is guessed from pinned values given what is fixed, or from
chains (`perturbmap.inference.guesses`). What is left is summed exactly as soon as its tables are small (a cutset;
Bidyuk and Dechter, JAIR 2007). The weighted sum of these sums has the mean Z, whatever was guessed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perturbmap.inference.elimination import cut_sites, most_entries, sample_out, sum_out
from perturbmap.inference.guesses import FittedGuesses, Guesses, KeptGuesses, PinnedGuesses
from perturbmap.inference.sweeps import sweeps
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.structures.base import Structure
from perturbmap.support.threads import threads

# Entries of the table of one site of the rest, which is summed out for every particle.
_SMALL_TABLE = 2**14
# Sites of all perturbed problems of all steps: beyond this, a group would take hours.
_MOST_WORK = 3 * 10**10
# Sweeps of Gibbs sampling after the particles are complete, and how many of them are averaged.
_BURN, _KEPT = 20, 300
# Particles with less than this share of the weight add nothing to marginals that could be seen.
_NO_WEIGHT = 1e-9
# With fewer effective particles than one in so many, marginals are the exact ones given what is fixed, in proportion
# to the weights, without sweeps: where coupling is strong, these would not come from mode to mode.
_UNEVEN = 3


@dataclass(frozen=True)
class Group:
    """Independent of all other groups: an unbiased estimate of Z, and labellings of the Gibbs distribution.

    log_z : the logarithm of the estimate; zero where it is not known, and all groups weigh the same
    marginals : (n_sites, n_labels); without rows where chains have them
    labels : (..., n_sites), equally weighted; none where chains have them
    n_different : how many particles there were, all different, before they were drawn by weight; or how many
        labellings chains have met
    """

    log_z: float
    marginals: Floats
    labels: Labels
    n_different: int


class OutOfTimeError(Exception):
    """Raised where a group of particles is not complete by its deadline."""


def run_group(
    structure: Structure,
    f: Potentials,
    given: Labels | None,
    seed: int,
    group: int,
    n_particles: int,
    deadline: float = np.inf,
    labels: Labels | None = None,
) -> Group:
    """One group of particles of one example; the deadline is one of ``time.monotonic``.

    With ``labels`` (n_labellings, n_sites) of chains that can be believed, these are what is guessed from.
    """
    return _Run(structure, f, given, seed, group, n_particles, labels).run(deadline)


class _Run:
    def __init__(
        self,
        structure: Structure,
        f: Potentials,
        given: Labels | None,
        seed: int,
        group: int,
        n_particles: int,
        labels: Labels | None,
    ) -> None:
        self.structure, self.f, self.n = structure, f, n_particles
        self.is_fitted = labels is not None
        self.n_threads = threads(structure.n_threads)
        self.seed, self.group = seed, group
        known = np.full(f.n_sites, -1, dtype=np.int32) if given is None else given
        self.known, self.given = given, known[None].astype(np.int32)
        if structure.is_plain:
            width = int(np.log(_SMALL_TABLE) / np.log(max(2, f.n_labels))) - 1
            self.order = cut_sites(f, given, max(1, width))
        else:
            self.order = np.flatnonzero(known < 0)
        if labels is None and PinnedGuesses.work(f, len(self.order), n_particles) > _MOST_WORK:
            raise ValueError(
                f"an example of {f.n_sites:,} sites, of which {len(self.order):,} must be fixed before the rest can "
                f"be summed, is too large for {n_particles} particles. PINNED marginals and log_partition_bound are "
                "quick for graphs of any size."
            )
        self.guesses: Guesses
        if labels is not None:
            self.guesses = FittedGuesses(f, labels, self.order)
        else:
            kept = KeptGuesses.of(structure, f, given, seed, group, n_particles)
            self.guesses = kept or PinnedGuesses(structure, f, seed, group, n_particles)
        self.rng = np.random.default_rng([seed, int(f.layout.streams[0]), group])
        self.log_weights = np.zeros(1)

    def run(self, deadline: float) -> Group:
        """All steps, the sum over the rest, and sweeps that even out what the particles left open."""
        first = 0
        while first < len(self.order):
            if time.monotonic() > deadline:
                raise OutOfTimeError
            # While all branches are kept, there is nothing to guess, if it is known which labels are possible.
            is_free = self.structure.allows_every_labelling and len(self.given) * self.f.n_labels <= self.n
            n_sites = self.guesses.sites_a_step if self.structure.allows_every_labelling and not is_free else 1
            sites = self.order[first : first + n_sites]
            first += n_sites
            self._branch(sites, self._unguessed(sites) if is_free else self.guesses(self.given, sites))
        self.log_weights += self._totals()
        log_z = float(_log_sum(self.log_weights))
        w = np.exp(self.log_weights - log_z)
        if self.is_fitted:  # marginals and labellings are those of the chains
            return Group(log_z, np.empty((0, self.f.n_labels)), np.empty((0, self.f.n_sites), np.int32), len(w))
        labels = self._complete(w)
        if self.structure.sweeps is not None and 1 / (w**2).sum() > self.n / _UNEVEN:
            chain = self.group * self.n
            labels, p, _ = sweeps(self.structure, self.f, self.known, labels, self.seed, chain, _BURN, _KEPT)
            return Group(log_z, p.mean(axis=0), labels, len(w))
        return Group(log_z, self._marginals(w), labels, len(w))

    def _unguessed(self, sites: NDArray[np.intp]) -> Floats:
        """No guess but for the labels that are forbidden."""
        values = np.where(np.isneginf(self.f.unary[sites]), -np.inf, 0.0)
        return np.broadcast_to(values, (len(self.given), *values.shape))

    def _branch(self, sites: NDArray[np.intp], values: Floats) -> None:
        """Every particle becomes one for each label of each site, and not too many are kept."""
        k = self.f.n_labels
        log_sums = _log_sum(values[:, 0])  # what is guessed of the sum over the rest
        curiosity = self.guesses.curiosity
        for s, site in enumerate(sites):
            possible = ~np.isneginf(values[:, s])
            p = (1 - curiosity) * np.exp(values[:, s] - _log_sum(values[:, s])[:, None])
            p += curiosity * possible / possible.sum(axis=-1, keepdims=True)
            branches = np.flatnonzero(possible)
            guesses = (log_sums[:, None] + np.log(np.where(possible, p, 1.0))).ravel()[branches]
            weights = np.repeat(self.log_weights, k)[branches]
            kept, log_inverse = keep(weights + guesses, self.n, self.rng)
            parent, label = np.divmod(branches[kept], k)
            self.guesses.branch(int(site), parent, label)
            self.given = self.given[parent]
            self.given[:, site] = label
            self.log_weights = weights[kept] + log_inverse
            log_sums, values = guesses[kept], values[parent]

    def _totals(self) -> Floats:
        """For every particle the log of the sum over what is not fixed."""
        f, n = self.f, len(self.given)
        if not self.structure.is_plain:
            return np.array([self.structure.evaluate(f, y)[0] for y in self.given])
        return sample_out(_repeat(f, n), self.given.ravel(), np.empty((0, n * f.n_sites)), self.n_threads)[0]

    def _marginals(self, w: Floats) -> Floats:
        """The marginals given what is fixed, in proportion to the weights."""
        f, k = self.f, self.f.n_labels
        counts = w > _NO_WEIGHT * w.sum()
        given, share = self.given[counts], w[counts] / w[counts].sum()
        if not self.structure.is_plain:
            return np.tensordot(share, one_hot(given, k), axes=1)
        q = sum_out(_repeat(f, len(given)), given.ravel(), self.n_threads, most_entries(f)).marginals
        return np.tensordot(share, q.reshape(*given.shape, k), axes=1)

    def _complete(self, w: Floats) -> Labels:
        """Labellings, as many as particles were asked for: drawn by weight, and exactly given what is fixed."""
        ends = w.cumsum()
        which = np.searchsorted(ends, (self.rng.random() + np.arange(self.n)) / self.n * ends[-1])
        which = which.clip(max=len(w) - 1)
        if not self.structure.is_plain:
            return np.asarray(self.given[which])
        drawn, place = np.unique(which, return_inverse=True)
        rank = _rank(place)
        different = self.given[drawn]
        uniform = self.rng.random((int(rank.max()) + 1, different.size))
        _, labels = sample_out(_repeat(self.f, len(drawn)), different.ravel(), uniform, self.n_threads)
        return np.asarray(labels.reshape(len(uniform), *different.shape)[rank, place])


def keep(log_weights: Floats, n: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], Floats]:
    """Which ``n`` of many weights to keep, and the logs of one over their probabilities ``min(1, w / c)``.

    ``c`` is such that these add up to ``n``. All stay if there are no more than ``n``.
    """
    w = np.exp(log_weights - log_weights.max())
    if len(w) <= n:
        return np.arange(len(w)), np.zeros(len(w))
    largest = np.sort(w)[::-1]
    c = largest[::-1].cumsum()[::-1][:n] / (n - np.arange(n))  # if those before each are certain
    c = c[np.argmax(largest[:n] <= c)]
    others = np.flatnonzero(w <= c)
    n_others = n - (len(w) - len(others))
    ends = w[others].cumsum()
    points = (rng.random() + np.arange(n_others)) / n_others * ends[-1]
    drawn = others[np.unique(np.searchsorted(ends, points).clip(max=len(others) - 1))]
    kept = np.sort(np.concatenate([np.flatnonzero(w > c), drawn]))
    return kept, np.log(np.maximum(c, w[kept]) / w[kept])


def _rank(which: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each element the number of equal ones before it."""
    order = np.argsort(which, kind="stable")
    counts = np.bincount(which)
    rank = np.empty_like(which)
    rank[order] = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank


def _repeat(f: Potentials, n: int) -> Potentials:
    return Potentials.batch([f] * n)


def _log_sum(values: Floats) -> Floats:
    top = values.max(axis=-1, keepdims=True)
    return np.asarray((top + np.log(np.exp(values - top).sum(axis=-1, keepdims=True)))[..., 0])
