"""Monte-Carlo estimates with their standard errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from perturbmap.potentials import Floats


class Estimate(NamedTuple):
    """A Monte-Carlo estimate and its standard error (NaN for a single perturbation), of the same shape.

    The standard error says how far off the estimate may be because the number of draws is finite.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> q = pm.marginals(pm.Chain(), f, method=pm.COUNTED, n_perturbations=400, rng=0)
    >>> q.mean[0].round(2), q.standard_error[0].round(2)
    (array([0.36, 0.64]), array([0.03, 0.03]))
    """

    mean: Floats
    standard_error: Floats


def jackknife(sums: Floats, n: int, link: Callable[[Floats], Floats]) -> Estimate:
    """``link`` of the mean of n draws, and its standard error by leaving out one group of draws at a time.

    ``sums[g]`` is the sum over the draws g, g + G, g + 2 G, ... of n.
    """
    n_groups = len(sums)
    total = np.zeros_like(sums[0])
    for group in sums:
        total += group
    if n_groups == 1:
        return Estimate(link(total / n), np.full_like(total, np.nan))
    counts = np.bincount(np.arange(n) % n_groups)
    centre, spread = np.zeros_like(total), np.zeros_like(total)
    for g in range(n_groups):  # Welford's update: one pass, no array of all replicates
        replicate = link((total - sums[g]) / (n - int(counts[g])))
        step = replicate - centre
        centre += step / (g + 1)
        spread += step * (replicate - centre)
    return Estimate(link(total / n), np.sqrt(spread * (n_groups - 1) / n_groups))
