"""The log-partition function in an interval: an estimate that converges, between a lower and an upper bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.inference.answer import Answer
from perturbmap.inference.converging import Converging
from perturbmap.inference.draws import check_question
from perturbmap.inference.estimate import Estimate
from perturbmap.inference.upper_bound import upper_bound
from perturbmap.noise import Rng, seed_of
from perturbmap.potentials import Floats, Mask, Potentials
from perturbmap.structures.base import Structure
from perturbmap.support.checks import check_count

#: How often the interval is to hold log Z.
CONFIDENCE = 0.95
# Labellings of conditioned sites whose bounds are combined.
_MOST_CONDITIONS = 1024


class LogPartition(NamedTuple):
    """log Z of each example, as `log_partition` finds it: an estimate, a lower bound, an upper bound, an interval.

    estimate : converges to log Z with the number of particles
    lower : its mean is not above log Z
    upper : its mean is not below log Z; infinite where the structure is approximate and bounds no maximum
    interval : (n_examples, 2), which holds log Z with a probability of about 95 %, if no mode was missed
    is_exact : (n_examples,), whether nothing was sampled; then all of them are log Z
    marginals : those of `CONVERGING`, which come with it

    Each `Estimate` has its standard error with it.
    """

    estimate: Estimate
    lower: Estimate
    upper: Estimate
    interval: Floats
    is_exact: Mask
    marginals: Estimate


def log_partition(
    structure: Structure,
    f: Potentials,
    *,
    given: ArrayLike | None = None,
    n_particles: int = 64,
    n_groups: int = 8,
    tolerance: float | None = None,
    max_seconds: float | None = None,
    callback: Callable[[int, float], Any] | None = None,
    n_perturbations: int = 100,
    n_conditioned: int = 1,
    rng: Rng = None,
) -> LogPartition:
    """``log Z = log sum_y exp f(y)`` of each example, over the labellings with the ``given`` labels.

    It is exact where the structure can sum over all labellings, or where the tables stay small when sites are summed
    out one by one. Elsewhere it is an estimate from particles, which are weighted labellings, between two bounds. The
    lower bound is the mean logarithm of the groups' unbiased estimates of Z; the upper bound is that of
    perturb-and-MAP.

    given : a label for each site, or -1 where it is free
    n_particles, n_groups, max_seconds, callback : how long to go on, as in `CONVERGING`
    tolerance : the standard error of log Z, in nats (natural logarithms), at which the estimate is accurate enough
    n_perturbations : draws of noise for the upper bound, 16 at least
    n_conditioned : sites over whose labels the upper bound sums: every further one makes it tighter, and multiplies
        its time by the number of labels
    rng : an integer seed, a numpy Generator, or None for other noise each time

    >>> f = pm.Potentials([[0, 2], [0.5, 0], [0.5, 0]], pm.potts(0.8), edges=[(0, 1), (1, 2), (2, 0)])
    >>> found = pm.log_partition(pm.BinaryGraph(), f)
    >>> found.estimate.mean.round(3), found.is_exact
    (array([5.393]), array([ True]))
    """
    known = check_question(structure, f, given)
    seed, n_draws = seed_of(rng), check_count("n_perturbations", n_perturbations)
    n_sites = check_count("n_conditioned", n_conditioned)
    if f.n_labels ** (n_sites - 1) > _MOST_CONDITIONS:
        raise ValueError(
            f"n_conditioned must leave at most {_MOST_CONDITIONS:,} bounds to combine, but {n_sites} sites of "
            f"{f.n_labels} labels have more: condition on fewer."
        )
    method = Converging(n_particles, n_groups, tolerance=tolerance, max_seconds=max_seconds, callback=callback)
    answers = method.answers(structure, f, known, seed, wants_log_z=True)
    is_exact = np.array([a.is_exact for a in answers], dtype=bool)
    estimate = _estimates([(a.log_z, a.log_z_error) for a in answers])
    lower = _estimates([_lower(a) for a in answers])
    upper = [(a.log_z, 0.0) for a in answers]
    for i in np.flatnonzero(~is_exact).tolist():
        part = None if known is None else known[f.layout.sites(i)]
        upper[i] = upper_bound(structure, f[i], part, n_draws, seed, n_sites)
    interval = np.array([_interval(a, u) for a, u in zip(answers, upper, strict=True)]).reshape(-1, 2)
    q = [(a.marginals, a.marginal_errors) for a in answers]
    none = np.empty((0, f.n_labels))
    marginals = Estimate(np.concatenate([none, *(m for m, _ in q)]), np.concatenate([none, *(e for _, e in q)]))
    return LogPartition(estimate, lower, _estimates(upper), interval, is_exact, marginals)


def _estimates(pairs: list[tuple[float, float]]) -> Estimate:
    array = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return Estimate(array[:, 0], array[:, 1])


def _lower(answer: Answer) -> tuple[float, float]:
    if answer.is_exact:
        return answer.log_z, 0.0
    log_zs = answer.log_zs
    n = len(log_zs)
    error = float(np.sqrt(log_zs.var(ddof=1) / n + answer.unseen**2)) if n > 1 else np.inf
    return float(log_zs.mean()), error


def _interval(answer: Answer, upper: tuple[float, float]) -> tuple[float, float]:
    """Where log Z is with the stated confidence.

    Two groups or more have a spread. A single one says this: an estimate whose mean is Z exceeds Z / a with a
    probability of at most a (Markov's inequality); above there is the upper bound.
    """
    from scipy import stats  # inference without particles does without it

    if answer.is_exact:
        return answer.log_z, answer.log_z
    n, tail = len(answer.groups), (1 - CONFIDENCE) / 2
    if n < 2:
        return answer.log_z + float(np.log(tail)), upper[0] + float(stats.norm.isf(tail)) * upper[1]
    half = float(stats.t.isf(tail, n - 1)) * answer.log_z_error
    return answer.log_z - half, answer.log_z + half
