"""Weighted labellings that converge to the Gibbs distribution: particles from pinned values.

Sites are fixed a few at a time. Every particle branches into one for each label, and where these are too many, some
are kept: those whose share of Z is large for certain, the others with a probability in proportion to it, and one over
that probability is their weight (Fearnhead and Clifford, JRSS B 2003). So no two particles are equal, and what
decides Z is not left to chance. How large a share is, pinned values given what is fixed guess. What is left is summed
exactly as soon as its tables are small (a cutset; Bidyuk and Dechter, JAIR 2007). The weighted sum of these sums has
the mean Z, whatever was guessed.

Two things make the guesses good. All particles see the same perturbations, at every step: with fresh ones, a
difference would be noise. And while particles are few, and the first sites decide the most, there are as many more
perturbations for each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perturbmap.inference.elimination import cut_sites, most_entries, sample_out, sum_out
from perturbmap.inference.sweeps import sweeps
from perturbmap.noise import Domain, Purpose, gumbel_noise, perturb
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.structures.base import Structure
from perturbmap.support.threads import threads

PARTICLES = Domain(Purpose.PARTICLES)

# Sites that are fixed in one step once particles are many: what is left is then hardly coupled, and one set of pinned
# values serves all of them. Before, one.
_SITES_A_STEP = 3
# Perturbations of a step, for each particle: at least, at most, and of all together for each that is to be kept.
_FEWEST, _MOST, _EACH = 10, 400, 16
# Entries of the table of one site of the rest, which is summed out for every particle.
_SMALL_TABLE = 2**14
# Every label that is possible has a share of this probability in what is guessed: a mode that pinned values think too
# little of must be met, to be weighed.
_CURIOSITY = 0.1
# Sites of all perturbed problems of all steps: beyond this, a group would take hours.
_MOST_WORK = 3 * 10**10
# Numbers of perturbed potentials that are worked on at once.
_CHUNK = 2**22
# Sweeps of Gibbs sampling after the particles are complete, and how many of them are averaged.
_BURN, _KEPT = 20, 300
# With fewer effective particles than one in so many, marginals are the exact ones given what is fixed, in proportion
# to the weights, without sweeps: where coupling is strong, these would not come from mode to mode.
_UNEVEN = 3


@dataclass(frozen=True)
class Group:
    """Independent of all other groups: an unbiased estimate of Z, and labellings of the Gibbs distribution.

    log_z : the logarithm of the estimate; zero where it is not known, and all groups weigh the same
    marginals : (n_sites, n_labels)
    labels : (..., n_sites), equally weighted
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
) -> Group:
    """One group of particles of one example; the deadline is one of ``time.monotonic``."""
    return _Run(structure, f, given, seed, group, n_particles).run(deadline)


class _Run:
    def __init__(
        self, structure: Structure, f: Potentials, given: Labels | None, seed: int, group: int, n_particles: int
    ) -> None:
        self.structure, self.f, self.n = structure, f, n_particles
        self.n_threads = threads(structure.n_threads)
        self.seed, self.group = seed, group
        known = np.full(f.n_sites, -1, dtype=np.int32) if given is None else given
        self.known, self.given = given, known[None].astype(np.int32)
        if structure.is_plain:
            width = int(np.log(_SMALL_TABLE) / np.log(max(2, f.n_labels))) - 1
            self.order = cut_sites(f, given, max(1, width))
        else:
            self.order = np.flatnonzero(known < 0)
        if len(self.order) * n_particles * _EACH * f.n_sites > _MOST_WORK:
            raise ValueError(
                f"an example of {f.n_sites:,} sites, of which {len(self.order):,} must be fixed before the rest can "
                f"be summed, is too large for {n_particles} particles. PINNED marginals and log_partition_bound are "
                "quick for graphs of any size."
            )
        self.rng = np.random.default_rng([seed, int(f.layout.streams[0]), group])
        self.log_weights = np.zeros(1)

    def run(self, deadline: float) -> Group:
        """All steps, the sum over the rest, and sweeps that even out what the particles left open."""
        first = 0
        while first < len(self.order):
            if time.monotonic() > deadline:
                raise OutOfTimeError
            is_one = not self.structure.allows_every_labelling or 2 * len(self.given) < self.n
            sites = self.order[first : first + (1 if is_one else _SITES_A_STEP)]
            first += len(sites)
            self._branch(sites, self._pinned(sites))
        totals, marginals = self._sum_rest()
        self.log_weights += totals
        log_z = float(_log_sum(self.log_weights))
        w = np.exp(self.log_weights - log_z)
        labels = self._complete(w)
        if self.structure.sweeps is not None and 1 / (w**2).sum() > self.n / _UNEVEN:
            chain = self.group * self.n
            labels, p, _ = sweeps(self.structure, self.f, self.known, labels, self.seed, chain, _BURN, _KEPT)
            return Group(log_z, p.mean(axis=0), labels, len(w))
        return Group(log_z, np.tensordot(w / w.sum(), marginals, axes=1), labels, len(w))

    def _pinned(self, sites: NDArray[np.intp]) -> Floats:
        """Mean pinned values (n, n_sites of the step, n_labels) given what is fixed; the same noise for all."""
        f, k, n = self.f, self.f.n_labels, len(self.given)
        n_draws = int(np.clip(_EACH * self.n // n, _FEWEST, _MOST))
        noise = gumbel_noise(f, self.seed, n_draws, self.group * _MOST, self.n_threads, domain=PARTICLES)
        mask = np.zeros((f.n_sites, k), dtype=bool)
        mask[sites] = True
        means = np.empty((n, len(sites), k))
        size = max(1, _CHUNK // max(1, noise.size))
        for first in range(0, n, size):
            some = self.given[first : first + size]
            known = some.ravel()
            own = np.where(known[:, None] >= 0, 0.0, np.tile(noise, (1, len(some), 1)))
            perturbed = perturb(_repeat(f, len(some)), own)
            pinned = self.structure.pinned(perturbed, pins=np.tile(mask, (len(some), 1)), given=known)
            mean = (pinned.values - own).mean(axis=0).reshape(len(some), f.n_sites, k)
            means[first : first + size] = mean[:, sites]
        return means

    def _branch(self, sites: NDArray[np.intp], values: Floats) -> None:
        """Every particle becomes one for each label of each site, and not too many are kept."""
        k = self.f.n_labels
        log_sums = _log_sum(values[:, 0])  # what pinned values say of the sum over the rest
        for s, site in enumerate(sites):
            possible = ~np.isneginf(values[:, s])
            p = (1 - _CURIOSITY) * np.exp(values[:, s] - _log_sum(values[:, s])[:, None])
            p += _CURIOSITY * possible / possible.sum(axis=-1, keepdims=True)
            branches = np.flatnonzero(possible)
            guesses = (log_sums[:, None] + np.log(np.where(possible, p, 1.0))).ravel()[branches]
            weights = np.repeat(self.log_weights, k)[branches]
            kept, log_inverse = keep(weights + guesses, self.n, self.rng)
            parent, label = np.divmod(branches[kept], k)
            self.given = self.given[parent]
            self.given[:, site] = label
            self.log_weights = weights[kept] + log_inverse
            log_sums, values = guesses[kept], values[parent]

    def _sum_rest(self) -> tuple[Floats, Floats]:
        """For every particle the log of the sum over what is not fixed, and the marginals given what is."""
        f, k = self.f, self.f.n_labels
        if not self.structure.is_plain:
            return np.array([self.structure.evaluate(f, y)[0] for y in self.given]), one_hot(self.given, k)
        totals, q = sum_out(_repeat(f, len(self.given)), self.given.ravel(), self.n_threads, most_entries(f))
        return totals, q.reshape(*self.given.shape, k)

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
