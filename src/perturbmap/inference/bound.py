"""The Gumbel bound on the log-partition function (equation 2 of the paper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.inference.draws import check_question, draws, parts, perturb_in_place
from perturbmap.inference.estimate import Estimate
from perturbmap.noise import Domain, Purpose, Rng, seed_of
from perturbmap.potentials import Potentials
from perturbmap.structures.base import Structure
from perturbmap.support.checks import check_count

BOUND = Domain(Purpose.BOUND)


def log_partition_bound(
    structure: Structure,
    f: Potentials,
    *,
    given: ArrayLike | None = None,
    n_perturbations: int = 100,
    rng: Rng = None,
) -> Estimate:
    """``A_G(f) = E max_y f(y) + sum_d z_d(y_d)``, an upper bound on log Z(f), one for each example.

    ``log Z(f) = log sum_y exp f(y)`` is what turns scores into probabilities. The mean E is over the noise z
    (`gumbel_noise`), and is estimated from ``n_perturbations`` draws of it: four times as many halve the standard
    error.

    ``given`` holds a label for each site, or -1 where it is free. The maximum is then over the labellings that have
    these labels, and the bound is called ``B_G``. Sites with a given label get no noise, which would only add
    variance. Where the structure's maximum is approximate, its upper bounds on the maximum are averaged, so that the
    result is a bound all the same; a structure without such bounds is refused.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> bound = pm.log_partition_bound(pm.Chain(), f, n_perturbations=2000, rng=0)
    >>> bound.mean.round(2), bound.standard_error.round(2)
    (array([2.93]), array([0.04]))
    >>> pm.Chain().log_partition(f)[0].round(2)
    array([2.85])
    """
    known = check_question(structure, f, given)
    seed, n = seed_of(rng), check_count("n_perturbations", n_perturbations)
    values = np.empty((len(f), n))
    for part, examples, _, given_part in parts(f, known):
        for first, noise in draws(structure, part, given_part, seed, n, BOUND):
            bounds = structure.maximise_with_bound(perturb_in_place(part, noise), given_part).bounds
            values[examples, first : first + len(noise)] = bounds.T
    if not np.isfinite(values).all():
        raise ValueError(
            f"{type(structure).__name__} is approximate and gives no upper bound on the maximum "
            "(maximise_with_bound), so that nothing here bounds log Z: write one, or use an exact structure."
        )
    # Row by row: the order of a sum must not depend on the batch.
    mean = np.array([row.mean() for row in values], dtype=np.float64)
    spread = np.array([row.std(ddof=1) if n > 1 else np.nan for row in values], dtype=np.float64)
    return Estimate(mean, spread / np.sqrt(n))
