"""Steps of stochastic gradients: their formulas, their scales, and how far they get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.noise import Domain, Purpose
from perturbmap.solvers import Problem

from .stored import graphs
from .test_estimator import words


def problem_of(X: Any, y: Any, **parameters: Any) -> Problem:
    settings = {"l2": 0.01, "random_state": 0, **parameters}
    return pm.StructuredPredictor(**settings).problem(X, y)


def fresh_objective(problem: Problem, w: Any) -> float:
    """The objective on noise that no step has seen."""
    other = replace(problem, domain=Domain(Purpose.TRAINING, 4095))
    return float(np.mean([other.objective_at(w, draw) for draw in range(20)]))


def test_the_plain_step_is_the_papers() -> None:
    """One over l2 (h + offset), the first of the length that was asked for."""
    problem = problem_of(*words(10))
    rule = pm.PlainStep(0.5).rule(problem, n_iter=100)
    w, g = np.ones(3), np.array([1.0, -2.0, 0.0])
    for h, step in ((1, 0.5), (101, 1 / (0.01 * 100 + 1 / 0.5))):
        moved = rule.shrink(h) * w + rule.change(w, g, h, np.zeros((0, 3)))
        np.testing.assert_allclose(moved, w + step * (g - 0.01 * w))


def test_the_adaptive_step_is_adam() -> None:
    """Against a plain transcription of Kingma and Ba (2015), with steps that shorten."""
    rng = np.random.default_rng(0)
    rule = pm.AdaptiveStep(0.1).rule(problem_of(*words(10)), n_iter=200)
    w, memory = np.zeros(4), np.zeros((2, 4))
    expected, m, v = np.zeros(4), np.zeros(4), np.zeros(4)
    for h in range(1, 50):
        g = rng.normal(size=4) * [1e-6, 1.0, 1e6, 0.0]
        w = w + rule.change(w, g + 0.01 * w, h, memory)  # the gradient of the examples, without the penalty's
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        step = 0.1 * (1 - h / 201)
        expected = expected + step * (m / (1 - 0.9**h)) / (np.sqrt(v / (1 - 0.999**h)) + 1e-12)
    np.testing.assert_allclose(w, expected, rtol=1e-9)
    assert w[3] == 0


def test_the_adaptive_step_does_not_depend_on_the_scale_of_features_or_loss() -> None:
    """Features in other units, without a penalty to speak of, give the same scores; so does a loss times a number."""
    X, y = words(30)
    scores = []
    for scale, cost in ((1.0, 1.0), (1000.0, 1.0), (1.0, 50.0)):
        loss = pm.MarginalLogLikelihood(pm.WeightedHamming([cost] * 3))
        problem = problem_of([scale * np.hstack([x, np.ones((len(x), 1))]) for x in X], y, objective=loss, l2=1e-9)
        w = pm.DoubleSGD(3).run(problem, pm.DoubleSGD().start(problem)).average
        scores.append(problem.data.features @ problem.model.unpack(w, problem.data, 3)["features"])
    np.testing.assert_allclose(scores[2], scores[0], atol=1e-3 * np.abs(scores[0]).max())
    # With the bias as a feature of the same scale, nothing but the model's own bias and edges differ.
    assert np.corrcoef(scores[1].ravel(), scores[0].ravel())[0, 1] > 0.99


def test_the_adaptive_step_comes_further_where_weights_have_different_scales() -> None:
    """The feature that tells the labels is small: in as many passes, on noise that neither has seen, by far."""
    X, y = graphs(60)
    scaled = [pm.Example(x.features * [0.03, 1, 1, 1, 1, 1], x.edges, x.edge_features, sizes=x.sizes) for x in X]
    problem = problem_of(
        scaled, y, model=pm.GraphModel(), structure=pm.BinaryGraph(), objective=pm.MarginalLogLikelihood(), l2=1e-4
    )
    found = []
    for step in (pm.PlainStep(), pm.AdaptiveStep()):
        solver = pm.DoubleSGD(30, step=step)
        found.append(fresh_objective(problem, solver.run(problem, solver.start(problem)).average))
    assert found[1] > found[0] + 0.1


def test_the_memory_of_the_steps_is_part_of_the_state() -> None:
    """A run that is taken up again, from its arrays, ends with the same bits."""
    problem = problem_of(*words(20))
    solver = pm.DoubleSGD(10)
    whole = solver.run(problem, solver.start(problem))
    half = solver.run(problem, solver.start(problem), n_iter=7)
    arrays = {name: array.copy() for name, array in half.arrays().items()}
    again = solver.run(problem, solver.restore(problem, arrays, 7))
    np.testing.assert_array_equal(again.average, whole.average)
    assert whole.memory.shape == (2, problem.n_weights)


def test_what_is_no_step_is_refused() -> None:
    """By name, before the fit; and so is a length that is none."""
    X, y = words(6)
    for step, message in ((0.1, "step must be a Step"), (pm.AdaptiveStep(0), "first_step must be a number above 0")):
        with pytest.raises((TypeError, ValueError), match=message):
            pm.StructuredPredictor(solver=pm.DoubleSGD(step=step)).fit(X, y)  # type: ignore[arg-type]
