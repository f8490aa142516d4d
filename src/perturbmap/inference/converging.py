"""Sums that converge to those of the Gibbs distribution: exact where tables are small, else by chains or particles.

Groups of labellings are independent of each other, so that their spread says how far off their mean may be.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, final

import numpy as np

from perturbmap.inference.answer import Answer, combine
from perturbmap.inference.chains import Chains, start_chains
from perturbmap.inference.elimination import sample_out, sum_out
from perturbmap.inference.estimate import Estimate
from perturbmap.inference.marginal_methods import FromMarginals, MarginalMethod
from perturbmap.inference.particles import Group, OutOfTimeError, run_group
from perturbmap.noise import Domain
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.structures.base import Structure
from perturbmap.structures.summable import SummableStructure
from perturbmap.support.checks import check_count, check_number
from perturbmap.support.threads import threads

# Labellings of chains that the guesses of particles are fitted to, at least.
_FITTED = 2048
# Any odd number that is not small.
_ODD = 0x9E3779B97F4A7C15


class NotConvergedWarning(UserWarning):
    """Warns that an estimate ended before it was as accurate as it was asked to be."""


@final
class Converging(MarginalMethod):
    """Marginals of the Gibbs distribution itself, as exact as there is time for.

    The Gibbs distribution gives a labelling y the probability ``exp f(y) / Z``. Its marginals, the probabilities of
    the labels of each site, are exact where the structure can sum over all labellings, or where the tables stay small
    when sites are summed out one by one. Elsewhere they come from random labellings, in independent groups.

    n_particles : labellings in a group; more of them make each group more accurate
    n_groups : groups at least
    tolerance : the standard error that is small enough: groups are added until no marginal has a larger one. None:
        no groups are added
    max_seconds : time for an example, after which a `NotConvergedWarning` says how far the estimate got. None: no
        limit
    callback : a function that gets the number of groups and the largest standard error after each group; if it
        returns True, that is the end

    Labellings come from chains of Gibbs sampling where these provably forget where they started, as they do on
    attractive graphs of weak coupling (`perturbmap.inference.chains`); elsewhere they come from particles, which take
    longer (`perturbmap.inference.particles`). Log Z comes from particles, which chains guide where there are some.

    Standard errors are those of a jackknife over the groups, or over the chains, which are independent too. With
    particles they are right unless all groups have missed the same mode (a region of likely labellings), and for a
    solver of your own if it finds a labelling for every pin (a site held at a label) that has one.

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
        answers = self.answers(structure, f, given, other, wants_log_z=False)
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

        They are exact and independent where sums are exact. Elsewhere they are drawn from chains, which are exact
        too, or from particles, in proportion to their groups' estimates of Z, which converge to the distribution;
        neither are independent.
        """
        if isinstance(structure, SummableStructure):
            return structure.sample(f, n, given=given, rng=seed)
        labels = np.empty((n, f.n_sites), dtype=np.int32)
        wanted = Converging(
            self.n_particles, max(self.n_groups, -(-n // self.n_particles)), max_seconds=self.max_seconds
        )
        answers = wanted.answers(structure, f, given, seed, wants_log_z=False)
        for i, answer in enumerate(answers):
            sites = f.layout.sites(i)
            known = None if given is None else given[sites]
            rng = np.random.default_rng([seed, int(f.layout.streams[i]), len(answer.groups)])
            if answer.is_exact:
                labels[:, sites] = _exact_samples(structure, f[i], known, rng.random((n, sites.stop - sites.start)))
                continue
            labels[:, sites] = answer.sample(n, rng)
        return labels

    def answers(
        self, structure: Structure, f: Potentials, given: Labels | None, seed: int, *, wants_log_z: bool
    ) -> list[Answer]:
        """One answer for each example; the tolerance is for log Z where it is wanted, and else for the marginals."""
        check_count("n_particles", self.n_particles)
        check_count("n_groups", self.n_groups)
        if self.tolerance is not None:
            check_number("tolerance", self.tolerance)
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds)
        exact = exact_answers(structure, f, given)
        found = []
        for i, answer in enumerate(exact):
            known = None if given is None else given[f.layout.sites(i)]
            found.append(answer or self._by_groups(structure, f[i], known, seed, wants_log_z))
        return found

    def _by_groups(
        self, structure: Structure, f: Potentials, given: Labels | None, seed: int, wants_log_z: bool
    ) -> Answer:
        deadline = np.inf if self.max_seconds is None else time.monotonic() + self.max_seconds
        groups: tuple[Group, ...] = ()
        chains: Chains | None = None
        n_done = 0

        def one_more() -> Group:
            labels = None if chains is None else chains.met.reshape(-1, f.n_sites)
            return run_group(structure, f, given, seed, n_done, self.n_particles, deadline, labels)

        while True:
            is_late = False
            try:
                if n_done == 0:
                    chains = start_chains(structure, f, given, seed, self.n_particles, deadline)
                if chains is not None:
                    chains.advance(deadline)
                    while wants_log_z and chains.met[:, :, 0].size < _FITTED:
                        chains.advance(deadline)
                if chains is None or wants_log_z:
                    groups += (one_more(),)
                n_done += 1
            except OutOfTimeError:
                is_late = True
                if n_done == 0:
                    raise ValueError(
                        f"not one group of {self.n_particles} labellings of an example of {f.n_sites:,} sites was "
                        f"complete after max_seconds={self.max_seconds:g}: allow more, or use PINNED and "
                        "log_partition_bound."
                    ) from None
            answer = combine(groups, () if chains is None else chains.groups(), given)
            now = answer.log_z_error if wants_log_z else float(answer.marginal_errors.max())
            is_stopped = self.callback is not None and not is_late and bool(self.callback(n_done, now))
            is_enough = n_done >= self.n_groups and (self.tolerance is None or now <= self.tolerance)
            if not (is_enough or is_late or is_stopped):
                continue
            if not is_enough and not is_stopped:
                wanted = f"n_groups={self.n_groups}" if self.tolerance is None else f"tolerance={self.tolerance:g}"
                warnings.warn(
                    f"an estimate ended after {n_done} groups of {self.n_particles} labellings, with a standard "
                    f"error of {now:.2g}, short of {wanted}: allow more time (max_seconds=).",
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


def _exact_samples(structure: Structure, f: Potentials, given: Labels | None, uniform: Floats) -> Labels:
    """Independent samples of one example: of a narrow graph, or of the one labelling that is left."""
    if structure.is_plain:
        return sample_out(f, given, uniform, threads(structure.n_threads))[1]
    return np.tile(structure.argmax(f, given), (len(uniform), 1))


#: The marginals of the Gibbs distribution: exact where that is possible, by chains or particles elsewhere.
CONVERGING = Converging()
