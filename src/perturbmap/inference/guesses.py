"""What particles are guessed by: how much of Z each label of the next sites has, given what is fixed already.

A guess decides the variance of an estimate, never its mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.noise import Domain, Purpose, gumbel_noise, perturb
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures.base import Structure
from perturbmap.structures.fixing import Fixing
from perturbmap.support.threads import threads

PARTICLES = Domain(Purpose.PARTICLES)
# Perturbations of a step, for each particle: at least, at most, and of all together for each that is to be kept.
_FEWEST, _MOST, _EACH = 10, 400, 16
# Numbers of perturbed potentials that are worked on at once.
_CHUNK = 2**22


class Guesses(ABC):
    """Guesses of the logarithms of sums over the rest, for each label of some sites.

    curiosity : every label that is possible has a share of this probability in what is guessed, because a mode that
        is thought too little of must be met, to be weighed
    sites_a_step : sites that are fixed by one set of guesses, once particles are many
    """

    curiosity: float
    sites_a_step: int

    @abstractmethod
    def __call__(self, given: Labels, sites: NDArray[np.intp]) -> Floats:
        """Those of particles with labels ``given`` (n, n_sites), -1 where free: (n, len(sites), n_labels)."""

    def branch(self, site: int, parents: NDArray[np.intp], labels: NDArray[np.intp]) -> None:  # noqa: B027
        """Told of the particles that are left: what the parent of each was, and its label of the site."""


def _noise(f: Potentials, seed: int, n: int, group: int, n_threads: int) -> Floats:
    """The perturbations of a group, (n, n_sites, n_labels); of two labels every other one with labels exchanged.

    How much better one labelling is than another is their difference and the noise of the labels that differ, whose
    sign is the opposite when labels are exchanged: what it adds to the difference of two modes cancels.
    """
    if f.n_labels != 2:
        return gumbel_noise(f, seed, n, group * _MOST, n_threads, domain=PARTICLES)
    noise = np.empty((n, f.n_sites, 2))
    noise[::2] = gumbel_noise(f, seed, -(-n // 2), group * _MOST, n_threads, domain=PARTICLES)
    noise[1::2] = noise[: n - n % 2 : 2, :, ::-1]
    return noise


@final
class PinnedGuesses(Guesses):
    """Mean pinned values given what is fixed; all particles see the same perturbations, at every step.

    With fresh ones, a difference would be noise. While particles are few, and the first sites decide the most, there
    are as many more perturbations for each. Once they are many, what is left is hardly coupled, and one set of pinned
    values serves several sites.
    """

    curiosity = 0.1
    sites_a_step = 3

    def __init__(self, structure: Structure, f: Potentials, seed: int, group: int, n_particles: int) -> None:
        self._structure, self._f, self._seed, self._group, self._n = structure, f, seed, group, n_particles

    @staticmethod
    def work(f: Potentials, n_steps: int, n_particles: int) -> int:
        """Sites of all perturbed problems of all steps."""
        return n_steps * n_particles * _EACH * f.n_sites

    def __call__(self, given: Labels, sites: NDArray[np.intp]) -> Floats:
        """See `Guesses`."""
        f, k, n = self._f, self._f.n_labels, len(given)
        n_draws = int(np.clip(_EACH * self._n // n, _FEWEST, _MOST))
        n_threads = threads(self._structure.n_threads)
        noise = _noise(f, self._seed, n_draws, self._group, n_threads)
        mask = np.zeros((f.n_sites, k), dtype=bool)
        mask[sites] = True
        means = np.empty((n, len(sites), k))
        size = max(1, _CHUNK // max(1, noise.size))
        for first in range(0, n, size):
            some = given[first : first + size]
            known = some.ravel()
            own = np.where(known[:, None] >= 0, 0.0, np.tile(noise, (1, len(some), 1)))
            perturbed = perturb(Potentials.batch([f] * len(some)), own)
            pinned = self._structure.pinned(perturbed, pins=np.tile(mask, (len(some), 1)), given=known)
            mean = (pinned.values - own).mean(axis=0).reshape(len(some), f.n_sites, k)
            means[first : first + size] = mean[:, sites]
        return means


@final
class KeptGuesses(Guesses):
    """The same, of a structure that keeps its maxima from site to site (`Structure.fixing`): they cost far less.

    So every site has pinned values of its own.
    """

    curiosity = 0.1
    sites_a_step = 1

    def __init__(self, fixing: Fixing, noise: Floats) -> None:
        self._fixing, self._noise = fixing, noise
        self._fixed = np.zeros((1, len(noise)))  # the noise of what is fixed, of each particle and perturbation
        self._pinned = -1
        self._later: list[tuple[int, NDArray[np.intp], NDArray[np.intp]]] = []

    @classmethod
    def of(
        cls, structure: Structure, f: Potentials, given: Labels | None, seed: int, group: int, n_particles: int
    ) -> KeptGuesses | None:
        """Those of so many particles at most; None where the structure keeps nothing."""
        n_threads = threads(structure.n_threads)
        noise = _noise(f, seed, _EACH, group, n_threads)
        if given is not None:
            noise[:, given >= 0] = 0.0
        fixing = structure.fixing(perturb(f, noise), given, n_particles)
        return None if fixing is None else cls(fixing, noise)

    def __call__(self, given: Labels, sites: NDArray[np.intp]) -> Floats:
        """See `Guesses`; the particles are those that it was told of."""
        for fixed, parents, labels in self._later:
            if self._pinned != fixed:  # nobody has asked for a guess
                self._pin(fixed)
            self._fixing.branch(parents, labels)
            self._fixed = self._fixed[parents] + self._noise[:, fixed, labels].T
        self._later.clear()
        (site,) = sites.tolist()
        values = self._pin(site) - self._fixed[:, :, None] - self._noise[:, site]
        return np.asarray(values.mean(axis=1)[:, None])

    def branch(self, site: int, parents: NDArray[np.intp], labels: NDArray[np.intp]) -> None:
        """See `Guesses.branch`; nothing is done before the next guess is asked for, which may never be."""
        self._later.append((site, parents, labels))

    def _pin(self, site: int) -> Floats:
        self._pinned = site
        return self._fixing.pin(site)


@final
class FittedGuesses(Guesses):
    """Labels of two by linear regression on those fixed before, fitted to labellings of the Gibbs distribution.

    With the covariance ``L L'`` of the sites in their order, the prediction of each from those before it differs from
    it by ``diag(L) L^-1`` times the deviations from the means.

    f : the potentials, whose forbidden labels no particle gets
    labels : (n_labellings, n_sites)
    order : the sites that will be fixed, in their order
    """

    curiosity = 0.02
    sites_a_step = 1

    def __init__(self, f: Potentials, labels: Labels, order: NDArray[np.intp]) -> None:
        self._is_forbidden = np.isneginf(f.unary)
        drawn = labels[:, order].astype(np.float64)
        self._order, self._mean = order, drawn.mean(axis=0)
        drawn -= self._mean
        # As if each label had been drawn once more for each site, independently: sites may never have changed theirs.
        covariance = drawn.T @ drawn / len(drawn) + np.eye(len(order)) / (4 * len(drawn))
        root = np.linalg.cholesky(covariance)
        self._weights = np.eye(len(order)) - np.diag(root)[:, None] * np.linalg.inv(root)

    def __call__(self, given: Labels, sites: NDArray[np.intp]) -> Floats:
        """See `Guesses`; the sites are those that come next."""
        first = int(np.flatnonzero(self._order == sites[0])[0])
        last = first + len(sites)
        fixed = given[:, self._order[:first]]
        p = self._mean[:last] + (fixed - self._mean[:first]) @ self._weights[:last, :first].T
        p = np.clip(p, self.curiosity / 2, 1 - self.curiosity / 2)
        log_sums = np.log(np.where(fixed == 1, p[:, :first], 1 - p[:, :first])).sum(axis=1)
        values = log_sums[:, None, None] + np.log(np.stack([1 - p, p], axis=2))[:, first:]
        return np.where(self._is_forbidden[sites], -np.inf, values)
