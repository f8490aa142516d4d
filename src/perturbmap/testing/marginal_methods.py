"""The check of marginal methods: probabilities, and how they move with the potentials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perturbmap.inference import MarginalMethod, PerturbedMethod, marginals
from perturbmap.noise import PLAIN, gumbel_noise, perturb
from perturbmap.potentials import Floats, Potentials
from perturbmap.structures import BruteForce, Chain
from perturbmap.structures.base import Structure
from perturbmap.testing.differences import directions, inner, is_slope, moved, nearest_slope
from perturbmap.testing.failure import Trial
from perturbmap.testing.instances import SIZES, Case, Make, batches, chains, single_cases
from perturbmap.testing.parts import check_part

_N_DRAWS = 3
_CLOSE = 1e-9


def check_marginal_method(
    method: MarginalMethod,
    structure: Structure | None = None,
    make: Make = chains,
    definition: Structure | None = None,
    *,
    is_differentiable: bool = True,
    sizes: Sequence[tuple[int, int]] = SIZES,
    n_repeats: int = 2,
    seed: int = 0,
) -> None:
    """Checks that a marginal method gives probabilities and their true gradient.

    They must be the same by ``statistic`` and by ``with_pullback``. `ConformanceError` says what is wrong.

    method : the `MarginalMethod` to check
    structure, make, definition, sizes : as in `check_structure`; chains by default
    is_differentiable : whether the marginals move smoothly with the potentials; counts jump
    n_repeats, seed : the number of random instances of each size, and their seed

    >>> pm.testing.check_marginal_method(pm.INTEGRATED)
    """
    check_part(method, MarginalMethod)
    shape = Chain() if structure is None else structure
    listed = BruteForce() if definition is None else definition
    method.check(shape)
    rng = np.random.default_rng(seed)
    for case in single_cases(rng, make, listed, sizes, n_repeats):
        with Trial(method, case.describe) as trial:
            _check_probabilities(trial, method, shape, case)
            _check_pullback(trial, method, shape, case.f, rng, is_differentiable)
    for case in batches(rng, make, listed, sizes, n_repeats):
        with Trial(method, case.describe) as trial:
            whole = marginals(shape, case.f, method=method, given=case.given, n_perturbations=5, rng=1).mean
            for n in range(len(case.f)):
                sites = case.f.layout.sites(n)
                given = None if case.given is None else case.given[sites]
                alone = marginals(shape, case.f[n], method=method, given=given, n_perturbations=5, rng=1).mean
                trial.equal("the marginals of an example are the same bits in every batch", whole[sites], alone)


def _check_probabilities(trial: Trial, method: MarginalMethod, structure: Structure, case: Case) -> None:
    q = marginals(structure, case.f, method=method, given=case.given, n_perturbations=5, rng=0).mean
    trial.equal("marginals have the shape of the unary potentials", q.shape, case.f.unary.shape)
    trial.holds("no marginal is negative", q >= 0, f"found: {q.tolist()}")
    trial.close("the marginals of a site sum to one", q.sum(axis=1), np.ones(len(q)), _CLOSE, _CLOSE)
    if case.given is not None:
        fixed = np.flatnonzero(case.given >= 0)
        trial.close(
            "a given label has probability one", q[fixed, case.given[fixed]], np.ones(len(fixed)), _CLOSE, _CLOSE
        )


def _check_pullback(
    trial: Trial,
    method: MarginalMethod,
    structure: Structure,
    f: Potentials,
    rng: np.random.Generator,
    is_differentiable: bool,
) -> None:
    noise = gumbel_noise(f, seed=3, n_draws=_N_DRAWS) if method.is_perturbed else None
    q, pullback = method.with_pullback(structure, f, noise)
    expected = _by_statistic(method, structure, f, noise)
    trial.close("`with_pullback` gives the marginals of the same noise", q, expected, _CLOSE, _CLOSE)
    g = rng.normal(size=q.shape)
    moments = pullback(g)
    trial.equal("the pullback has the shape of the unary potentials", moments.unary.shape, f.unary.shape)
    if not is_differentiable:
        return
    for name, unary, pairwise in directions(f, rng):
        slope = inner(moments, unary, pairwise)

        def value(t: float, unary: Floats = unary, pairwise: Floats | None = pairwise) -> float:
            return float((g * method.with_pullback(structure, moved(f, t, unary, pairwise), noise)[0]).sum())

        found = nearest_slope(value, slope)
        trial.holds(
            f"the pullback is the gradient of the marginals, by finite differences: {name}",
            is_slope(found, slope, 1.0),
            f"difference quotient: {found}\nfrom the pullback:   {slope}",
        )


def _by_statistic(method: MarginalMethod, structure: Structure, f: Potentials, noise: Floats | None) -> Floats:
    """As `marginals` does it, with the noise at hand."""
    if noise is None or not isinstance(method, PerturbedMethod):
        return method.estimate(structure, f, None, _N_DRAWS, 3, PLAIN).mean
    free, values = structure.pinned_values(perturb(f, noise))
    impossible = values[0] == -np.inf
    statistic = method.statistic(free, values - noise)
    return method.link(np.where(impossible, 0.0, statistic).mean(axis=0), impossible)
