"""Which examples stochastic steps look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem
from perturbmap.solvers.passes import Passes
from perturbmap.solvers.pieces import Piece

from .stored import graphs
from .test_steps import problem_of


def weighted(weights: Floats) -> Problem:
    """As many small graphs, with these weights."""
    X, y = graphs(len(weights))
    problem = problem_of(X, y, model=pm.GraphModel(), structure=pm.BinaryGraph(1))
    return replace(problem, targets=problem.targets.weighted(weights))


def heavy(n: int, n_heavy: int, share: float) -> Floats:
    """Weights with mean one, of which the first few have this share together: what Algorithm 3 makes of kappa."""
    weights = np.full(n, (1 - share) * n / (n - n_heavy))
    weights[:n_heavy] = share * n / n_heavy
    return weights


def test_equal_weights_change_nothing() -> None:
    """Every example once in a pass, with a weight of its own, in the order of a fit without weights."""
    plain, doubled = Passes(weighted(np.ones(12))), Passes(weighted(np.full(12, 2.0)))
    for h in range(1, 7):
        assert doubled.batch(h, 5).weights is None
        np.testing.assert_array_equal(plain.batch(h, 5).indices, doubled.batch(h, 5).indices)
    assert sorted(plain.order(0).tolist()) == list(range(12))


@pytest.mark.parametrize("size", [1, 5, 39])
def test_a_pass_has_an_example_as_often_as_it_counts(size: int) -> None:
    """Rounded up or down; what a step has twice is there once, with twice the weight."""
    weights = heavy(40, 4, 0.5)
    passes = Passes(weighted(weights))
    for number in range(5):
        counts = np.bincount(passes.order(number), minlength=40)
        assert (np.abs(counts - weights) < 1).all()
    for h in range(1, 9):
        batch = passes.batch(h, size)
        assert len(np.unique(batch.indices)) == len(batch.indices)
        assert batch.weights is not None
        assert batch.weights.sum() == pytest.approx(weights.mean() * len(batch.indices))


def test_the_gradient_of_steps_has_the_mean_of_all_examples_and_less_variance() -> None:
    """Within four standard errors over 400 passes; examples drawn evenly, times their weights, vary far more."""
    weights = heavy(40, 2, 0.5)
    problem = weighted(weights)
    passes, size = Passes(problem), 8
    w = problem.project(np.random.default_rng(0).normal(size=problem.n_weights))
    # One gradient for each example, under fixed noise, so that nothing but the choice of examples is at random.
    each = np.stack([Piece.of(problem, np.array([i]), np.ones(1)).value_and_grad(w, draw=1)[1] for i in range(40)])
    whole = weights @ each / 40

    def seen(indices: Any, its_weights: Floats) -> Floats:
        return np.asarray(its_weights @ each[indices] / len(indices))

    batches = [passes.batch(h, size) for h in range(1, 2001)]
    drawn = np.stack([seen(b.indices, b.weights) for b in batches if b.weights is not None])
    by_pass = drawn.reshape(400, 5, -1).mean(axis=1)
    error = by_pass.std(axis=0, ddof=1) / np.sqrt(400)
    assert (np.abs(by_pass.mean(axis=0) - whole) <= 4 * error + 1e-12).all()
    rng = np.random.default_rng(1)
    evenly = np.stack([seen(i, weights[i]) for i in (rng.permutation(40)[:size] for _ in range(2000))])
    assert drawn.var(axis=0).sum() < 0.5 * evenly.var(axis=0).sum()


def test_a_step_of_all_examples_leaves_nothing_to_chance() -> None:
    """Its gradient is that of all: each example is there once, with its own weight."""
    batch = Passes(weighted(heavy(40, 4, 0.5))).batch(3, 40)
    assert batch.weights is None
    np.testing.assert_array_equal(batch.indices, np.arange(40))


def test_an_example_without_weight_is_never_looked_at() -> None:
    weights = np.array([0.0, 1.0, 3.0, 0.0, 2.0])
    passes = Passes(weighted(weights))
    assert set(np.concatenate([passes.order(n) for n in range(20)]).tolist()) == {1, 2, 4}
