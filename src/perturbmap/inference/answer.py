"""What groups of labellings say together: log Z and marginals, with standard errors from their spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perturbmap.inference.particles import Group
from perturbmap.potentials import Floats, Labels, Mask


@dataclass(frozen=True)
class Answer:
    """Log Z and marginals of one example, exact or from groups of labellings; chains say nothing of log Z."""

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
        left_out = np.log(_all_but_one(self._weights) / (n - 1))
        return float(np.sqrt(_jackknife(left_out) + self._unseen**2))

    @property
    def marginal_errors(self) -> Floats:
        """The standard errors of the marginals, in the same way."""
        n = len(self.groups)
        if n < 2:
            return np.full_like(self.marginals, np.inf if n else 0.0)
        w = self._weights[:, None, None]
        left_out = _all_but_one(w * np.stack([g.marginals for g in self.groups])) / _all_but_one(w)
        errors = np.sqrt(_jackknife(left_out) + self._unseen**2)
        if self.is_given is not None:
            errors[self.is_given] = 0.0
        return np.asarray(errors)

    @property
    def _weights(self) -> Floats:
        """What each group counts for, up to a factor."""
        return np.asarray(np.exp(self.log_zs - self.log_zs.max()))

    @property
    def _unseen(self) -> float:
        return 1.0 / sum(g.n_different for g in self.groups)


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


def combine(groups: tuple[Group, ...], given: Labels | None) -> Answer:
    """The mean of Z over the groups, and their marginals in proportion to it."""
    log_zs = np.array([g.log_z for g in groups])
    top = log_zs.max()
    w = np.exp(log_zs - top)
    marginals = np.tensordot(w / w.sum(), np.stack([g.marginals for g in groups]), axes=1)
    return Answer(float(top + np.log(w.mean())), marginals, groups, None if given is None else given >= 0)
