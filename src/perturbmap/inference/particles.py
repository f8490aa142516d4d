"""Weighted labellings that converge to the Gibbs distribution: particles from pinned values.

Sites are fixed a few at a time, in every particle, drawn from their pinned marginals given what is fixed already. The
particle's weight makes up for the difference: its mean is Z. What is left is summed exactly as soon as its tables are
small (a cutset; Bidyuk and Dechter, JAIR 2007), and where weights become uneven, particles are drawn anew (sequential
Monte Carlo; Doucet, de Freitas and Gordon 2001).

Two things make it work. All particles see the same perturbations, at every step: with fresh ones, a weight would be
noise. And pinned values are computed once for all particles that agree so far: while these are few, and the first
sites decide the most, there are as many more perturbations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perturbmap.inference.elimination import cut_sites, sample_out
from perturbmap.inference.sweeps import sweeps
from perturbmap.noise import Domain, Purpose, gumbel_noise, perturb
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.structures.base import Structure
from perturbmap.support.threads import threads

PARTICLES = Domain(Purpose.PARTICLES)

# Sites that are fixed in one step where most particles differ: sites are then hardly coupled, and one set of pinned
# values serves all of them. Elsewhere, one.
_SITES_A_STEP = 3
# Perturbations of a step: at least, at most, and of all different particles together for each particle.
_FEWEST, _MOST, _EACH = 10, 400, 16
# Entries of the table of one site of the rest, which is summed out for every particle.
_SMALL_TABLE = 2**14
# Every label that is possible is drawn with a share of this probability: a mode that pinned values think too little
# of must be met, to be weighed; particles that lead nowhere are dropped at the next steps.
_CURIOSITY = 0.1
# Sites of all perturbed problems of all steps: beyond this, a group would take hours.
_MOST_WORK = 3 * 10**10
# Numbers of perturbed potentials that are worked on at once.
_CHUNK = 2**22
# Sweeps of Gibbs sampling after the particles are complete, and how many of them are averaged.
_BURN, _KEPT = 20, 300


@dataclass(frozen=True)
class Group:
    """Independent of all other groups: an unbiased estimate of Z, and labellings of the Gibbs distribution.

    log_z : the logarithm of the estimate; zero where it is not known, and all groups weigh the same
    marginals : (n_sites, n_labels)
    labels : (n_particles, n_sites), equally weighted
    ess : the effective number of particles before they were made equal
    """

    log_z: float
    marginals: Floats
    labels: Labels
    ess: float


class _Step(NamedTuple):
    values: Floats  # (n_particles, n_sites of the step, n_labels): mean pinned values
    bound: Floats  # (n_particles,): what they say of the log of the sum over the rest


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
        self.known, self.given = given, np.tile(known, (n_particles, 1))
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
        self.log_weights = np.zeros(n_particles)
        self.log_z = 0.0

    def run(self, deadline: float) -> Group:
        """All steps, the sum over the rest, and sweeps that even out what the particles left open."""
        before, first = np.zeros(self.n), 0
        while first < len(self.order):
            if time.monotonic() > deadline:
                raise OutOfTimeError
            different, which = np.unique(self.given, axis=0, return_inverse=True)
            is_one = not self.structure.allows_every_labelling or 2 * len(different) < self.n
            sites = self.order[first : first + (1 if is_one else _SITES_A_STEP)]
            first += len(sites)
            step = self._pinned(sites, different, which.ravel())
            self.log_weights += step.bound - before
            kept = self._resample_if_uneven()
            before = step.bound[kept] + self._fix(sites, step.values[kept], which.ravel()[kept])
        self.log_weights += self._complete() - before
        ess = self._effective()
        self._resample()
        return Group(self.log_z, *self._sweep(), ess)

    def _pinned(self, sites: NDArray[np.intp], different: Labels, which: NDArray[np.intp]) -> _Step:
        """Mean pinned values of some sites given what is fixed: the same noise for all, once for equal particles."""
        f, k = self.f, self.f.n_labels
        n_draws = int(np.clip(_EACH * self.n // len(different), _FEWEST, _MOST))
        noise = gumbel_noise(f, self.seed, n_draws, self.group * _MOST, self.n_threads, domain=PARTICLES)
        mask = np.zeros((f.n_sites, k), dtype=bool)
        mask[sites] = True
        means = np.empty((len(different), len(sites), k))
        size = max(1, _CHUNK // max(1, noise.size))
        for first in range(0, len(different), size):
            some = different[first : first + size]
            known = some.ravel()
            own = np.where(known[:, None] >= 0, 0.0, np.tile(noise, (1, len(some), 1)))
            perturbed = perturb(_repeat(f, len(some)), own)
            pinned = self.structure.pinned(perturbed, pins=np.tile(mask, (len(some), 1)), given=known)
            mean = (pinned.values - own).mean(axis=0).reshape(len(some), f.n_sites, k)
            means[first : first + size] = mean[:, sites]
        values = means[which]
        return _Step(values, _log_sum(values[:, 0]))

    def _fix(self, sites: NDArray[np.intp], values: Floats, which: NDArray[np.intp]) -> Floats:
        """Draws labels of the sites in every particle; returns the log-probability of what was drawn.

        Equal particles share the unit interval out among them: how many get a label is left to chance as little as
        can be.
        """
        possible = ~np.isneginf(values)
        p = (1 - _CURIOSITY) * np.exp(values - _log_sum(values)[..., None])
        p += _CURIOSITY * possible / possible.sum(axis=-1, keepdims=True)
        u = np.stack([self._shared_out(which) for _ in sites], axis=1)
        last = p.shape[-1] - 1 - possible[..., ::-1].argmax(axis=-1)  # which rounding must not go beyond
        y = np.minimum((u[..., None] >= p.cumsum(axis=-1)).sum(axis=-1), last)
        self.given[:, sites] = y
        return np.asarray(np.log(np.take_along_axis(p, y[..., None], axis=-1))[..., 0].sum(axis=1))

    def _shared_out(self, which: NDArray[np.intp]) -> Floats:
        """A uniform number for each particle; those of equal ones lie in different parts of the unit interval."""
        counts, order = np.bincount(which), self.rng.permutation(self.n)
        rank = np.empty(self.n)
        rank[order] = _rank(which[order])
        return np.asarray((rank + self.rng.random(len(counts))[which]) / counts[which])

    def _effective(self) -> float:
        """How many equally weighted particles would be worth as much."""
        w = np.exp(self.log_weights - self.log_weights.max())
        return float(w.sum() ** 2 / (w**2).sum())

    def _resample_if_uneven(self) -> NDArray[np.intp]:
        return self._resample() if self._effective() < self.n / 2 else np.arange(self.n)

    def _resample(self) -> NDArray[np.intp]:
        """Particles in proportion to their weights, by one uniform number; all weights are equal afterwards."""
        total = float(_log_sum(self.log_weights))
        self.log_z += total - np.log(self.n)
        ends = np.exp(self.log_weights - total).cumsum()
        kept = np.searchsorted(ends, (self.rng.random() + np.arange(self.n)) / self.n * ends[-1]).clip(max=self.n - 1)
        self.given, self.log_weights = self.given[kept], np.zeros(self.n)
        return np.asarray(kept)

    def _complete(self) -> Floats:
        """Draws what is not fixed, exactly, given what is; returns the log of the sum over it, of every particle."""
        if not self.structure.is_plain:
            return np.array([self.structure.evaluate(self.f, y)[0] for y in self.given])
        different, which = np.unique(self.given, axis=0, return_inverse=True)
        which = which.ravel()
        rank = _rank(which)
        uniform = self.rng.random((int(rank.max()) + 1, different.size))
        totals, labels = sample_out(_repeat(self.f, len(different)), different.ravel(), uniform, self.n_threads)
        self.given = labels.reshape(len(uniform), *different.shape)[rank, which]
        return totals[which]

    def _sweep(self) -> tuple[Floats, Labels]:
        """Mean probabilities of Gibbs sweeps, where these are possible, and the labellings at their end."""
        f = self.f
        if self.structure.sweeps is None:
            return one_hot(self.given, f.n_labels).mean(axis=0), self.given
        labels, p = sweeps(self.structure, f, self.known, self.given, self.seed, self.group * self.n, _BURN, _KEPT)
        return p.mean(axis=0), labels


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
