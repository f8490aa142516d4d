"""L-BFGS under an L1 penalty: the optimum, its certificate, zeros, signs, noise, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import perturbmap as pm
from perturbmap.solvers import Problem
from perturbmap.solvers.orthants import shrunk

from .test_lbfgs import graph_problem
from .test_steps import problem_of


def chains(n: int = 12, n_features: int = 9) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Labels that the first features tell of, and the others do not."""
    rng = np.random.default_rng(1)
    y = [rng.integers(3, size=size) for size in rng.integers(3, 9, size=n)]
    X = [
        np.pad(np.eye(3)[labels], ((0, 0), (0, n_features - 3))) + rng.normal(0, 0.5, (len(labels), n_features))
        for labels in y
    ]
    return X, y


def crf_problem(l2: float = 0.02) -> Problem:
    return problem_of(*chains(), objective=pm.ExactLogLikelihood(), structure=pm.Chain(), l2=l2)


def best(problem: Problem, l1: float) -> tuple[float, np.ndarray]:
    """The optimum by other means: weights as differences of two vectors that are not negative, and bounds on both."""
    n = problem.n_weights

    def loss(both: np.ndarray) -> tuple[float, np.ndarray]:
        w = both[:n] - both[n:]
        value, gradient = problem.value_and_grad(w)
        slope = problem.l2 * w - gradient
        return problem.penalty(w) - value + l1 * both.sum(), np.concatenate([slope + l1, l1 - slope])

    options = {"maxiter": 5000, "maxfun": 50000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(
        loss, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * n), options=options
    )
    return -float(found.fun), found.x[:n] - found.x[n:]


@pytest.mark.parametrize("l1", [0.003, 0.03])
def test_it_ends_at_the_optimum_and_its_certificate_holds(l1: float) -> None:
    """The objective of another method, the same weights, and at every look no further below it than the gap says."""
    problem, solver = crf_problem(), pm.LBFGS(1e-6, l1=l1)
    value, weights = best(problem, l1)
    gaps = []

    def look(state: object) -> bool:
        gaps.append((value - state.objective, state.gap))  # type: ignore[attr-defined]  # an LBFGSState
        return False

    state = solver.run(problem, solver.start(problem), look)
    assert len(gaps) > 5
    assert all(-1e-9 <= below <= gap + 1e-9 for below, gap in gaps)
    assert state.objective == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(state.w, weights, atol=2e-2 * np.abs(weights).max())
    assert 0 < np.count_nonzero(state.w) < problem.n_weights


def test_more_of_it_leaves_fewer_weights_and_enough_none() -> None:
    """Without features that tell nothing; beyond the largest slope at zero, all is zero."""
    problem = crf_problem()
    counts = []
    for l1 in (0.0, 0.01, 0.1, 10.0):
        solver = pm.LBFGS(l1=l1)
        counts.append(np.count_nonzero(solver.run(problem, solver.start(problem)).w))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == problem.n_weights
    assert counts[1] < 0.9 * counts[0]
    assert counts[-1] == 0


def test_weights_that_must_not_be_negative_are_not_under_noise() -> None:
    """With the draws of a perturbed objective; with more of it, some are zero."""
    problem = graph_problem(10, l2=0.01)
    plain, sparse = (solver.run(problem, solver.start(problem)) for solver in (pm.LBFGS(), pm.LBFGS(l1=0.3)))
    assert (sparse.w[problem.nonnegative] >= 0).all()
    assert np.count_nonzero(sparse.w) < np.count_nonzero(plain.w)
    assert np.abs(sparse.w).sum() < np.abs(plain.w).sum()
    assert sparse.objective < plain.objective


def test_shrinking_is_the_minimiser() -> None:
    """Against a fine grid, with and without a sign."""
    grid = np.linspace(-4, 4, 80001)
    for w in (-2.3, -0.4, 0.0, 0.7, 3.1):
        cost = 0.5 * (grid - w) ** 2 + 0.6 * np.abs(grid)
        assert shrunk(np.array([w]), 0.6)[0] == pytest.approx(grid[cost.argmin()], abs=1e-4)
        best_of_sign = grid[np.where(grid < 0, np.inf, cost).argmin()]
        assert shrunk(np.array([w]), 0.6, np.array([True]))[0] == pytest.approx(best_of_sign, abs=1e-4)


def test_a_fit_is_saved_with_its_zeros(tmp_path: Path) -> None:
    """And a penalty that is none is an error."""
    X, y = chains()
    crf = pm.StructuredPredictor(objective=pm.ExactLogLikelihood(), l2=0.02, solver=pm.LBFGS(l1=0.03)).fit(X, y)
    assert 0 < np.count_nonzero(crf.coef_) < crf.coef_.size
    crf.save(tmp_path / "crf.pm")
    np.testing.assert_array_equal(pm.StructuredPredictor.load(tmp_path / "crf.pm").coef_, crf.coef_)
    with pytest.raises(ValueError, match="l1 must be"):
        crf.set_params(solver=pm.LBFGS(l1=-1)).fit(X, y)
