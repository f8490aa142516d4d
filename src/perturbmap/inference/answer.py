"""What groups of labellings say together: log Z and marginals, with standard errors from their spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perturbmap.inference.particles import Group
from perturbmap.potentials import Floats, Labels, Mask


@dataclass(frozen=True)
class Answer:
    """Log Z and marginals of one example, exact or from groups of labellings.

    Chains say nothing of log Z; where there are some, marginals are theirs, and there need be no other groups.
    """

    log_z: float
    marginals: Floats
    groups: tuple[Group, ...] = ()
    chains: tuple[Group, ...] = ()
    is_given: Mask | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the sums are exact: nothing was sampled."""
        return not self.groups and not self.chains

    @property
    def log_zs(self) -> Floats:
        """The estimate of each group."""
        return np.array([g.log_z for g in self.groups])

    @property
    def unseen(self) -> float:
        """What no particle has met does not show: that may have a probability of one in the number of particles."""
        return _unseen(self.groups)

    @property
    def log_z_error(self) -> float:
        """The standard error of log Z: a jackknife over the groups, and what is unseen; infinite for a single one."""
        n = len(self.groups)
        if n < 2:
            return np.inf if n else 0.0
        left_out = np.log(_all_but_one(_weights(self.groups)) / (n - 1))
        return float(np.sqrt(_jackknife(left_out) + self.unseen**2))

    def sample(self, n: int, rng: np.random.Generator) -> Labels:
        """Labellings of the groups, (n, n_sites), each with a probability in proportion to its weight."""
        groups = self.chains or self.groups
        w = _weights(groups)
        which = rng.choice(len(w), n, p=w / w.sum())
        labels = [g.labels.reshape(-1, len(self.marginals)) for g in groups]
        sizes = np.array([len(y) for y in labels])
        number = (rng.random(n) * sizes[which]).astype(np.intp)
        return np.asarray(np.concatenate(labels)[(sizes.cumsum() - sizes)[which] + number])

    @property
    def marginal_errors(self) -> Floats:
        """The standard errors of the marginals, in the same way."""
        groups = self.chains or self.groups
        n = len(groups)
        if n < 2:
            return np.full_like(self.marginals, np.inf if n else 0.0)
        w = _weights(groups)[:, None, None]
        left_out = _all_but_one(w * np.stack([g.marginals for g in groups])) / _all_but_one(w)
        errors = np.sqrt(_jackknife(left_out) + _unseen(groups) ** 2)
        if self.is_given is not None:
            errors[self.is_given] = 0.0
        return np.asarray(errors)


def _weights(groups: tuple[Group, ...]) -> Floats:
    """What each group counts for: its estimate of Z, over the largest."""
    log_zs = np.array([g.log_z for g in groups])
    return np.asarray(np.exp(log_zs - log_zs.max()))


def _unseen(groups: tuple[Group, ...]) -> float:
    return 1.0 / sum(g.n_different for g in groups)


def _all_but_one(terms: Floats) -> Floats:
    """For each term the sum of the others, along the first axis, without differences that may be all rounding."""
    sums = np.zeros_like(terms)
    sums[1:] = terms[:-1].cumsum(axis=0)
    sums[:-1] += terms[:0:-1].cumsum(axis=0)[::-1]
    return sums


def _jackknife(left_out: Floats) -> Floats:
    """The variance that the estimates without one group each tell."""
    n = len(left_out)
    return np.asarray((n - 1) / n * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0))


def combine(groups: tuple[Group, ...], chains: tuple[Group, ...], given: Labels | None) -> Answer:
    """The mean of Z over the groups, NaN if there are chains alone; marginals in proportion to it, or the chains'."""
    log_z = np.nan
    if groups:
        log_z = max(g.log_z for g in groups) + float(np.log(_weights(groups).mean()))
    w = _weights(chains or groups)
    marginals = np.tensordot(w / w.sum(), np.stack([g.marginals for g in chains or groups]), axes=1)
    return Answer(log_z, marginals, groups, chains, None if given is None else given >= 0)
