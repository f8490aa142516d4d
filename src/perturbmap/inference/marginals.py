"""Marginals of potentials, by whatever method."""

from __future__ import annotations

from numpy.typing import ArrayLike

from perturbmap.inference.draws import check_question
from perturbmap.inference.estimate import Estimate
from perturbmap.inference.marginal_methods import PINNED, MarginalMethod
from perturbmap.noise import Domain, Purpose, Rng, seed_of
from perturbmap.potentials import Potentials
from perturbmap.structures.base import Structure
from perturbmap.support.checks import check_count

MARGINALS = Domain(Purpose.MARGINALS)


def marginals(
    structure: Structure,
    f: Potentials,
    *,
    method: MarginalMethod = PINNED,
    given: ArrayLike | None = None,
    n_perturbations: int = 100,
    rng: Rng = None,
    domain: Domain = MARGINALS,
) -> Estimate:
    """Estimates of ``P(y_d = k)``, shape ``(n_sites, n_labels)``, conditional on the ``given`` labels.

    method : `PINNED`, `INTEGRATED` or `COUNTED`, which are perturb-and-MAP; `EXACT` for structures that can be summed
        over, such as `Chain` and `Tree`; `CONVERGING`, which has no bias and takes longer; or one of your own
    given : a label for each site, or -1 where it is free
    n_perturbations : draws of noise for the first three methods; four times as many halve the standard error
    rng : an integer seed, a numpy Generator, or None for other noise each time
    domain : what the noise is for (`perturbmap.noise`): two purposes never share a draw

    Standard errors of the first three methods are those of a jackknife over at most 32 groups of perturbations; they
    measure the noise of the estimate, not the distance of perturb-and-MAP from the Gibbs distribution, in which a
    labelling y has the probability ``exp f(y) / Z``.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> pm.marginals(pm.Chain(), f, n_perturbations=2000, rng=0).mean.round(2)
    array([[0.31, 0.69],
           [0.51, 0.49]])
    >>> pm.marginals(pm.Chain(), f, method=pm.EXACT).mean.round(2)
    array([[0.32, 0.68],
           [0.52, 0.48]])
    """
    known = check_question(structure, f, given)
    seed, n = seed_of(rng), check_count("n_perturbations", n_perturbations)
    if not isinstance(method, MarginalMethod):
        raise TypeError(f"method must be a MarginalMethod, such as PINNED, but is {method!r}.")
    method.check(structure)
    return method.estimate(structure, f, known, n, seed, domain)
