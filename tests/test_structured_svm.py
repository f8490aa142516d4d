"""The structured SVM: the optimum of its quadratic program, whatever the variant of Frank-Wolfe."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from perturbmap import (
    BCFW,
    DoubleSGD,
    Hamming,
    PlainStep,
    PolynomialAveraging,
    StructuredHinge,
    WeightedHamming,
)
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem
from perturbmap.solvers.dual_state import BCFWState
from perturbmap.solvers.line_search import line_search

from .instances import is_injective
from .test_learning import CASES, problem

ALPHABET = list("abcdefghijklmnopqrstuvwxyz")

VARIANTS = [
    BCFW(gap_sampling=gap_sampling, pairwise_steps=pairwise, cache=cache)
    for gap_sampling, pairwise, cache in itertools.product([False, True], repeat=3)
]
VARIANTS += [BCFW(batch_size=2), BCFW(batch_size=2, cache=True), BCFW(batch_size=100, gap_sampling=False)]


def hinge_problem(name: str, rng: np.random.Generator) -> Problem:
    loss = WeightedHamming([1.0, 2.0]) if name in ("graph", "sparse tree") else Hamming()
    return problem(name, StructuredHinge(loss), rng)[0]


def quadratic_program(p: Problem) -> float:
    """The optimum of the primal, with one constraint for each labelling, by SciPy's SLSQP."""
    n, n_weights = len(p.data), p.n_weights
    rows, bounds = [], []
    for i in range(n):
        one = p.data.take(np.array([i]))
        sites = p.data.layout.sites_of(np.array([i]))
        truth, c = p.targets.labels[sites], p.targets.label_weights[sites]
        f, pullback = p.model.apply(np.zeros(n_weights), one, p.n_labels)
        for y in itertools.product(range(p.n_labels), repeat=len(sites)):
            labels = np.array(y, dtype=np.int32)
            if f.score(labels)[0] < 0 or (f.pairwise is None and not is_injective(labels)):
                continue  # no labelling of this matching
            psi = pullback(f.indicators(truth) - f.indicators(labels))
            slack = np.zeros(n)
            slack[i] = 1.0
            rows.append(np.concatenate([psi, slack]))
            bounds.append((c.sum(axis=1, keepdims=True) - c)[np.arange(len(sites)), labels].sum())
    a, b = np.array(rows), np.array(bounds)
    scale = p.targets.weights / n
    lower = np.full(n_weights + n, -np.inf)
    lower[p.nonnegative] = 0.0
    upper = np.full(n_weights + n, np.inf)
    if p.learned is not None:  # the others stay zero
        lower[:n_weights][~p.learned] = upper[:n_weights][~p.learned] = 0.0

    def primal(x: Floats) -> tuple[float, Floats]:
        w, slack = x[:n_weights], x[n_weights:]
        return float(0.5 * p.l2 * w @ w + scale @ slack), np.concatenate([p.l2 * w, scale])

    start = np.concatenate([np.zeros(n_weights), np.full(n, b.max())])
    solved = minimize(
        primal,
        start,
        jac=True,
        method="SLSQP",
        bounds=list(zip(lower, upper, strict=True)),
        constraints={"type": "ineq", "fun": lambda x: a @ x - b, "jac": lambda x: a},
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    assert solved.success
    return float(solved.fun)


def test_a_pass_in_batches_has_fewer_steps_and_looks_at_every_example() -> None:
    """The last batch of a pass may be smaller; no step looks at an example twice."""
    p = hinge_problem("chain", np.random.default_rng(0))
    n = len(p.data)
    assert n % 2 == 1
    for gap_sampling in (False, True):
        solver = BCFW(1e-9, 1, batch_size=2, gap_sampling=gap_sampling)
        assert (solver.n_iter(n), solver.examples_per_step(n)) == ((n + 1) // 2, 2)
        with pytest.warns(ConvergenceWarning):
            state = solver.run(p, solver.start(p))
        assert np.isfinite(state.gaps).all()
    with pytest.raises(ValueError, match="batch_size"):
        BCFW(batch_size=0).check(p)


@pytest.mark.parametrize("name", CASES)
def test_every_variant_ends_at_the_optimum_of_the_quadratic_program(name: str, rng: np.random.Generator) -> None:
    """The optimum lies between dual and primal all along; the dual never falls; the gap closes; signs are kept."""
    p = hinge_problem(name, rng)
    optimum = quadratic_program(p)
    for solver in VARIANTS:
        # With plain steps, as those of several examples are, the gap closes like 1 / passes.
        tolerance = 1e-4 if solver.pairwise_steps and solver.batch_size == 1 else 5e-2
        solver = BCFW(**{**solver.get_params(), "tolerance": tolerance, "n_passes": 20000})
        duals: list[float] = []

        def watch(state: BCFWState, duals: list[float] = duals) -> bool:
            dual = state.dual(p.l2)
            assert dual <= optimum + 1e-9
            assert not duals or dual >= duals[-1] - 1e-12
            if state.certified_at == state.iteration:
                assert state.primal >= optimum - 1e-9
                assert state.primal == pytest.approx(-p.objective_at(state.w), rel=1e-12)
            duals.append(dual)
            return False

        state = solver.run(p, solver.start(p), watch)
        assert state.gap(p.l2) <= tolerance * state.primal, solver
        assert state.primal - optimum <= state.gap(p.l2) + 1e-9
        assert (state.w[p.nonnegative] >= 0).all()
        assert all(block.alpha.sum() == pytest.approx(1.0) and (block.alpha >= 0).all() for block in state.blocks)


def test_the_signs_matter_in_the_graph_case(rng: np.random.Generator) -> None:
    """A case in which A alpha has a negative weight that w must not have: else the test above says little."""
    p = hinge_problem("graph", rng)
    solver = BCFW(1e-4, 20000)
    state = solver.run(p, solver.start(p))
    assert (state.a_alpha[p.nonnegative] < -1e-3).any()


def test_the_line_search_finds_the_top_of_a_piecewise_quadratic(rng: np.random.Generator) -> None:
    """Against a fine grid."""
    l2 = 0.7
    for _ in range(200):
        v, d = rng.normal(size=8), rng.normal(size=8)
        loss, longest = rng.normal() * 2, rng.uniform(0.1, 3)
        nonnegative = (np.arange(8) >= 2) & (np.arange(8) < rng.integers(2, 9))

        def project(x: Floats, nonnegative: Any = nonnegative) -> Floats:
            x = x.copy()
            x[nonnegative] = np.maximum(0, x[nonnegative])
            return x

        def dual(t: float, v: Floats = v, d: Floats = d, loss: float = loss, project: Any = project) -> float:
            return float(-0.5 * l2 * (project(v + t * d) ** 2).sum() + t * loss)

        gain = loss - l2 * float(project(v) @ d)
        t = line_search(v, d, loss, max(0.0, gain), l2, nonnegative, longest)
        assert 0 <= t <= longest
        assert dual(t) >= max(dual(s) for s in np.linspace(0, longest, 2001)) - 1e-12


def test_the_average_is_certified_too(rng: np.random.Generator) -> None:
    """With averaging, primal and gap are those of the average, which is what is returned."""
    p = hinge_problem("chain", rng)
    optimum = quadratic_program(p)
    solver = BCFW(1e-2, 5000, averaging=PolynomialAveraging(1))
    state = solver.run(p, solver.start(p))
    assert not np.array_equal(state.average, state.w)
    assert state.primal == pytest.approx(-p.objective_at(state.average), rel=1e-12)
    assert 0 <= state.primal - optimum <= state.gap(p.l2) <= 1e-2 * state.primal


def test_the_subgradient_method_agrees(rng: np.random.Generator) -> None:
    """The same hinge by DoubleSGD with the paper's step ends near the same optimum, from above."""
    p = hinge_problem("chain", rng)
    optimum = quadratic_program(p)
    solver = DoubleSGD(n_passes=3000, batch_size=3, step=PlainStep())
    w = solver.run(p, solver.start(p)).average
    assert optimum <= -p.objective_at(w) <= 1.01 * optimum
