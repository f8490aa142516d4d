"""A structure that says it is not exact is believed: by the bound on log Z, and by the certificate of BCFW."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import perturbmap as pm
from perturbmap.solvers import Problem
from tests.own_parts import Greedy


def test_the_bound_on_log_z_uses_the_bounds_of_an_approximate_structure(rng: np.random.Generator) -> None:
    """It is above log Z within four standard errors; without bounds it is refused."""
    f = pm.Potentials.batch([pm.testing.forests(rng, 5, 3, False) for _ in range(4)])
    exact, _ = pm.BruteForce().log_partition(f)
    bound = pm.log_partition_bound(Greedy(), f, n_perturbations=200, rng=0)
    assert (bound.mean + 4 * bound.standard_error >= exact).all()
    with pytest.raises(ValueError, match="gives no upper bound"):
        pm.log_partition_bound(Greedy(with_bound=False), f, n_perturbations=3, rng=0)


def hinge_problem(structure: pm.Structure) -> Problem:
    return pm.testing.small_problem(pm.StructuredHinge(), structure=structure, n_labels=3)


def run_bcfw(structure: pm.Structure, tolerance: float = 0.01) -> tuple[dict[str, float], list[Any]]:
    solver, problem = pm.BCFW(tolerance, n_passes=200), hinge_problem(structure)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = solver.run(problem, solver.start(problem))
    return solver.progress(problem, state), [w.category for w in caught]


def test_the_certificate_of_bcfw_is_honest_about_an_approximate_structure() -> None:
    """Its primal value is no lower than the optimum, its dual no higher, and a loose bound certifies nothing."""
    best, _ = run_bcfw(pm.Chain(), 1e-4)
    loose, warned = run_bcfw(Greedy())
    assert loose["primal"] >= best["dual"]
    assert loose["dual"] <= best["primal"]
    assert loose["gap"] > 0.01 * loose["primal"]
    assert warned == [ConvergenceWarning]
    unknown, warned = run_bcfw(Greedy(with_bound=False))
    assert unknown["gap"] == np.inf
    assert warned == [ConvergenceWarning]


class SaysSo(pm.Structure):
    """Chain, but says that it is not exact; its bound is the maximum."""

    is_exact = False

    def maximise(self, f: pm.Potentials, given: Any = None) -> Any:
        return pm.Chain().maximise(f, given)

    def maximise_with_bound(self, f: pm.Potentials, given: Any = None) -> pm.Maximum:
        return pm.Chain().maximise_with_bound(f, given)


def test_a_tight_bound_certifies() -> None:
    """An approximate structure whose bound meets its value is as good as an exact one."""
    certified, warned = run_bcfw(SaysSo(), 0.05)
    assert certified["gap"] <= 0.05 * certified["primal"]
    assert not warned


def test_a_heuristic_of_the_users_makes_no_bound() -> None:
    """FromSolver says whether its solver is exact."""
    f = pm.Potentials(np.zeros((3, 2)))

    def always_zero(unary: Any) -> Any:
        return np.zeros(len(unary), dtype=int)

    with pytest.raises(ValueError, match="FromSolver is approximate and gives no upper bound"):
        pm.log_partition_bound(pm.FromSolver(always_zero, is_exact=False), f, n_perturbations=5, rng=0)
