"""Sums that converge to those of the Gibbs distribution: exact where tables are small, by particles elsewhere.

Groups of particles are independent of each other, so that their spread says how far off their mean may be.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from perturbmap.inference.elimination import sample_out, sum_out
from perturbmap.inference.estimate import Estimate
from perturbmap.inference.marginal_methods import FromMarginals, MarginalMethod
from perturbmap.inference.particles import Group, OutOfTimeError, run_group
from perturbmap.noise import Domain
from perturbmap.potentials import Floats, Labels, Mask, Potentials
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.structures.base import Structure, SummableStructure
from perturbmap.support.checks import check_count, check_number
from perturbmap.support.threads import threads

# Any odd number that is not small.
_ODD = 0x9E3779B97F4A7C15


class NotConvergedWarning(UserWarning):
    """Said where an estimate ended before it was as accurate as it was asked to be."""


@dataclass(frozen=True)
class Answer:
    """log Z and marginals of one example, exact or from groups of particles."""

    log_z: float
    marginals: Floats
    groups: tuple[Group, ...] = ()
    is_given: Mask | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the sums are exact: nothing was sampled."""
        return not self.groups

    @property
    def log_zs(self) -> Floats:
        """The estimate of each group."""
        return np.array([g.log_z for g in self.groups])

    @property
    def log_z_error(self) -> float:
        """The standard error of log Z: a jackknife over the groups; infinite for a single one.

        What no particle has met does not show in it: that may have a probability of one in the number of particles.
        """
        n = len(self.groups)
        if n < 2:
            return np.inf if n else 0.0
        left_out = np.log(self._others.sum(axis=1) / (n - 1))
        return float(np.sqrt(_jackknife(left_out) + self._unseen**2))

    @property
    def marginal_errors(self) -> Floats:
        """The standard errors of the marginals, in the same way."""
        n = len(self.groups)
        if n < 2:
            return np.full_like(self.marginals, np.inf if n else 0.0)
        others = self._others / self._others.sum(axis=1, keepdims=True)
        left_out = np.tensordot(others, np.stack([g.marginals for g in self.groups]), axes=1)
        errors = np.sqrt(_jackknife(left_out) + self._unseen**2)
        if self.is_given is not None:
            errors[self.is_given] = 0.0
        return np.asarray(errors)

    @property
    def _others(self) -> Floats:
        """For each group the weights of the others, zero for itself."""
        return np.asarray(np.exp(self.log_zs - self.log_zs.max()) * (1 - np.eye(len(self.groups))))

    @property
    def _unseen(self) -> float:
        return 1.0 / sum(g.n_different for g in self.groups)


def _jackknife(left_out: Floats) -> Floats:
    """The variance that the estimates without one group each tell."""
    n = len(left_out)
    return np.asarray((n - 1) / n * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0))


def combine(groups: tuple[Group, ...], given: Labels | None) -> Answer:
    """The mean of Z over the groups, and their marginals in proportion to it."""
    log_zs = np.array([g.log_z for g in groups])
    top = log_zs.max()
    w = np.exp(log_zs - top)
    marginals = np.tensordot(w / w.sum(), np.stack([g.marginals for g in groups]), axes=1)
    return Answer(float(top + np.log(w.mean())), marginals, groups, None if given is None else given >= 0)


@final
class Converging(MarginalMethod):
    """Marginals of the Gibbs distribution itself, as exact as there is time for.

    Exact where the structure can sum, or the tables stay small when sites are summed out one by one; elsewhere from
    ``n_groups`` independent groups of ``n_particles`` (`perturbmap.inference.particles`), and of as many more as it
    takes to bring the standard errors down to ``tolerance``, or until ``max_seconds`` are over for an example; then a
    `NotConvergedWarning` says how far it got. A callback gets the number of groups and the largest standard error
    after each; if it returns True, that is the end.

    Standard errors are those of a jackknife over the groups. They are true as far as not all groups have missed the
    same mode, and for a solver of your own if it finds a labelling for every pin that has one.

    >>> f = pm.Potentials([[0, 2], [0.5, 0], [0.5, 0]], pm.potts(0.8), edges=[(0, 1), (1, 2), (2, 0)])
    >>> pm.marginals(pm.BinaryGraph(), f, method=pm.CONVERGING).mean.round(2)
    array([[0.18, 0.82],
           [0.48, 0.52],
           [0.48, 0.52]])
    """

    is_perturbed = False

    def __init__(
        self,
        n_particles: int = 64,
        n_groups: int = 8,
        *,
        tolerance: float | None = None,
        max_seconds: float | None = None,
        callback: Callable[[int, float], Any] | None = None,
    ) -> None:
        self.n_particles = n_particles
        self.n_groups = n_groups
        self.tolerance = tolerance
        self.max_seconds = max_seconds
        self.callback = callback

    def estimate(
        self, structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int, domain: Domain
    ) -> Estimate:
        """See `MarginalMethod.estimate`; the number of perturbations plays no part."""
        other = (seed + domain.code * _ODD) % 2**64  # no two purposes share their particles
        mean, error = np.empty((f.n_sites, f.n_labels)), np.empty((f.n_sites, f.n_labels))
        answers = self.answers(structure, f, given, other, lambda a: float(a.marginal_errors.max()))
        for i, answer in enumerate(answers):
            sites = f.layout.sites(i)
            mean[sites], error[sites] = answer.marginals, answer.marginal_errors
        return Estimate(mean, error)

    def with_pullback(
        self, structure: Structure, f: Potentials, noise: Floats | None
    ) -> tuple[Floats, FromMarginals]:
        raise ValueError("CONVERGING has no gradient: use PINNED in a layer, or EXACT where the structure can sum.")

    def sample(self, structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int) -> Labels:
        """Labellings of the Gibbs distribution, ``(n, n_sites)``.

        Exact and independent where sums are exact. Else particles, drawn from groups in proportion to their estimates
        of Z: they converge to the distribution, but are not independent.
        """
        labels = np.empty((n, f.n_sites), dtype=np.int32)
        wanted = Converging(
            self.n_particles, max(self.n_groups, -(-n // self.n_particles)), max_seconds=self.max_seconds
        )
        answers = wanted.answers(structure, f, given, seed, lambda a: a.log_z_error)
        for i, answer in enumerate(answers):
            sites = f.layout.sites(i)
            known = None if given is None else given[sites]
            rng = np.random.default_rng([seed, int(f.layout.streams[i]), len(answer.groups)])
            if answer.is_exact:
                labels[:, sites] = exact_samples(structure, f[i], known, n, rng)
                continue
            w = np.exp(answer.log_zs - answer.log_zs.max())
            group = rng.choice(len(w), n, p=w / w.sum())
            particle = rng.integers(self.n_particles, size=n)
            labels[:, sites] = np.stack([g.labels for g in answer.groups])[group, particle]
        return labels

    def answers(
        self, structure: Structure, f: Potentials, given: Labels | None, seed: int, error: Callable[[Answer], float]
    ) -> list[Answer]:
        """One for each example; ``error`` is what the tolerance is for."""
        n_particles, n_groups = check_count("n_particles", self.n_particles), check_count("n_groups", self.n_groups)
        if self.tolerance is not None:
            check_number("tolerance", self.tolerance)
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds)
        exact = exact_answers(structure, f, given)
        found = []
        for i, answer in enumerate(exact):
            if answer is not None:
                found.append(answer)
                continue
            known = None if given is None else given[f.layout.sites(i)]
            found.append(self._by_particles(structure, f[i], known, seed, n_particles, n_groups, error))
        return found

    def _by_particles(
        self,
        structure: Structure,
        f: Potentials,
        given: Labels | None,
        seed: int,
        n_particles: int,
        n_groups: int,
        error: Callable[[Answer], float],
    ) -> Answer:
        deadline = np.inf if self.max_seconds is None else time.monotonic() + self.max_seconds
        groups: list[Group] = []
        while True:
            is_late = False
            try:
                groups.append(run_group(structure, f, given, seed, len(groups), n_particles, deadline))
            except OutOfTimeError:
                is_late = True
                if not groups:
                    raise ValueError(
                        f"not one group of {n_particles} particles of an example of {f.n_sites:,} sites was complete "
                        f"after max_seconds={self.max_seconds:g}: allow more, or use PINNED and log_partition_bound."
                    ) from None
            answer = combine(tuple(groups), given)
            now = error(answer)
            is_stopped = self.callback is not None and not is_late and bool(self.callback(len(groups), now))
            is_enough = len(groups) >= n_groups and (self.tolerance is None or now <= self.tolerance)
            if not (is_enough or is_late or is_stopped):
                continue
            if not is_enough and not is_stopped:
                wanted = f"n_groups={n_groups}" if self.tolerance is None else f"tolerance={self.tolerance:g}"
                warnings.warn(
                    f"an estimate ended after {len(groups)} groups of particles, with a standard error of {now:.2g}, "
                    f"short of {wanted}: allow more time (max_seconds=).",
                    NotConvergedWarning,
                    stacklevel=4,
                )
            return answer


def exact_answers(structure: Structure, f: Potentials, given: Labels | None) -> list[Answer | None]:
    """The exact answer of each example, None where there is no way to it."""
    if isinstance(structure, SummableStructure):
        values, moments = structure.log_partition(f, given)
        sums, q = values, moments.unary
    elif structure.is_plain:
        structure.maximise(f, given)  # refuses what the structure does not take
        sums, q = sum_out(f, given, threads(structure.n_threads))
    else:
        return [_if_all_is_given(structure, f[i], given, f.layout.sites(i)) for i in range(len(f))]
    return [None if np.isnan(sums[i]) else Answer(float(sums[i]), q[f.layout.sites(i)]) for i in range(len(f))]


def _if_all_is_given(structure: Structure, f: Potentials, given: Labels | None, sites: slice) -> Answer | None:
    """The answer where one labelling is left."""
    known = np.full(f.n_sites, -1, dtype=np.int32) if given is None else given[sites]
    if (known < 0).any():
        return None
    labels, values = structure.maximise(f, known)
    return Answer(float(values[0]), one_hot(labels, f.n_labels))


def exact_samples(
    structure: Structure, f: Potentials, given: Labels | None, n: int, rng: np.random.Generator
) -> Labels:
    """Independent samples of one example whose sums are exact."""
    if structure.is_plain:
        return sample_out(f, given, rng.random((n, f.n_sites)), threads(structure.n_threads))[1]
    labels = np.tile(np.full(f.n_sites, -1) if given is None else given, (n, 1)).astype(np.int32)
    # One site after another, from its exact marginal given those before it; once for equal samples.
    for d in range(f.n_sites):
        for row in np.unique(labels, axis=0):
            same = np.flatnonzero((labels == row).all(axis=1))
            p = exact_answers(structure, f, row)[0]
            assert p is not None
            labels[same, d] = rng.choice(f.n_labels, len(same), p=p.marginals[d] / p.marginals[d].sum())
    return labels


#: The marginals of the Gibbs distribution: exact where that is possible, by particles elsewhere.
CONVERGING = Converging()
