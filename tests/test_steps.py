"""Steps of stochastic gradients: their formulas, their scales, and how far they get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.noise import Domain, Purpose
from perturbmap.solvers import Problem
from perturbmap.solvers.best_length import best_length
from perturbmap.solvers.iterate import Iterate
from perturbmap.solvers.passes import Passes
from perturbmap.solvers.reflection import Reflection
from perturbmap.solvers.steps import take_step

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
    """Against a plain transcription of Kingma and Ba (2015), with steps that shorten, where nothing is reflected."""
    rng = np.random.default_rng(0)
    rule = replace(pm.AdaptiveStep(0.1).rule(problem_of(*words(10)), n_iter=200), reflection=None)
    w, memory = np.zeros(4), np.zeros((2, 4))
    expected, m, v = np.zeros(4), np.zeros(4), np.zeros(4)
    for h in range(1, 50):
        g = rng.normal(size=4) * [1e-6, 1.0, 1e6, 0.0]
        w = w + rule.change(w, g + 0.01 * w, h, memory)  # the gradient of the examples, without the penalty's
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
        step = 0.1 * (1 - h / 201)
        expected = expected + step * (m / (1 - 0.9**h)) / (np.sqrt(v / (1 - 0.99**h)) + 1e-12)
    np.testing.assert_allclose(w, expected, rtol=1e-9)
    assert w[3] == 0


def test_the_adaptive_step_does_not_depend_on_the_scale_of_features_or_loss() -> None:
    """Features in other units, without a penalty to speak of, give the same scores; so does a loss times a number."""
    X, y = words(30)
    scores = []
    for scale, cost in ((1.0, 1.0), (1000.0, 1.0), (1.0, 50.0)):
        loss = pm.MarginalLogLikelihood(pm.WeightedHamming([cost] * 3))
        problem = problem_of([scale * np.hstack([x, np.ones((len(x), 1))]) for x in X], y, objective=loss, l2=1e-9)
        w = pm.DoubleSGD(10).run(problem, pm.DoubleSGD().start(problem)).average
        scores.append(problem.model.potentials(w, problem.data, 3).unary)
    np.testing.assert_allclose(scores[2], scores[0], atol=1e-3 * np.abs(scores[0]).max())
    # A bias is a feature of the same scale too; nothing but the units of the model's own bias and edges differ.
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


def reflected_models() -> list[Problem]:
    """Weights of sites that lie together, those of one score, and those of several."""
    X, y = graphs(10)
    many = [labels + (np.arange(len(labels)) % 2) for labels in y]
    cut: Any = {"model": pm.GraphModel(), "structure": pm.BinaryGraph()}
    graph: Any = {"model": pm.GraphModel("symmetric"), "structure": pm.Graph()}
    return [problem_of(*words(10)), problem_of(X, y, **cut), problem_of(X, many, **graph)]


@pytest.mark.parametrize("number", range(3))
def test_the_reflection_makes_a_coordinate_of_what_all_sites_share(number: int) -> None:
    """It is its own inverse, keeps lengths, and turns the mean of the features into the bias alone."""
    problem = reflected_models()[number]
    reflection = Reflection.of(problem)
    positions = problem.model.site_weights(problem.data, problem.n_labels)
    assert reflection is not None
    assert positions is not None
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    np.testing.assert_allclose(reflection(reflection(w)), w, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(reflection(w)), np.linalg.norm(w))
    x = problem.data.features @ np.eye(problem.data.n_features)
    shared = np.zeros(problem.n_weights)
    shared[positions[:, -1]] = [*x.mean(axis=0), 1.0]
    alone = np.zeros(problem.n_weights)
    alone[positions[-1, -1]] = np.linalg.norm(shared)
    np.testing.assert_allclose(reflection(shared), alone, atol=1e-6)  # graphs have features in single precision


def test_adaptive_steps_are_taken_in_the_coordinates_of_the_reflection() -> None:
    """The change is the reflection of what Adam makes of the reflected gradient, penalty and all."""
    problem = problem_of(*words(10))
    rule = pm.AdaptiveStep(0.1).rule(problem, n_iter=200)
    assert rule.reflection is not None
    plain, memories = replace(rule, reflection=None), np.zeros((2, 2, problem.n_weights))
    rng = np.random.default_rng(0)
    for h in range(1, 5):
        w, g = rng.normal(size=(2, problem.n_weights))
        expected = plain.change(rule.reflection(w), rule.reflection(g), h, memories[0])
        np.testing.assert_allclose(rule.change(w, g, h, memories[1]), rule.reflection(expected), atol=1e-9)


def test_the_reflection_comes_further_where_features_share_a_mean() -> None:
    """In as many steps of the same lengths, on noise that neither has seen."""
    X, y = words(60)
    problem = problem_of([x + 3.0 for x in X], y, l2=1e-4)
    rule = pm.AdaptiveStep(0.03).rule(problem, n_iter=400)
    found = []
    for kind in (replace(rule, reflection=None), rule):
        iterate, memory = Iterate.of(*np.zeros((2, problem.n_weights))), rule.memory(problem.n_weights, 0)
        passes = Passes(problem)
        for h in range(1, 401):
            take_step(problem, kind, iterate, memory, passes.batch(h, 16), h, rate=1.0)
        found.append(fresh_objective(problem, iterate.weights()))
    assert found[1] > found[0] + 0.1


def test_the_first_length_is_found_from_guesses_that_are_far_off() -> None:
    """A guess that is 27 times too long or too short ends where a good one does, within one factor of three."""
    problem = problem_of(*words(60), l2=1e-4)
    rule = pm.AdaptiveStep(1.0).rule(problem, n_iter=1)
    guess = pm.AdaptiveStep().find_length(problem, 0)

    def found(start: float) -> float:
        return best_length(problem, start, 2000, lambda length, n: replace(rule, first_step=length, n_iter=n))

    lengths = np.array([found(guess * factor) for factor in (1.0, 1 / 27, 27.0)])
    assert (np.abs(np.log(lengths / lengths[0])) <= np.log(3) + 1e-9).all()


def test_the_first_length_is_tried_out_where_that_costs_little_and_kept() -> None:
    """Few steps begin with the guess; a run that goes on, and a later pass, have the length that was found."""
    X, y = words(20)
    problem = problem_of(X, y)
    guess = pm.AdaptiveStep().find_length(problem, 0)
    assert pm.AdaptiveStep().find_length(problem, 1599) == guess
    assert pm.AdaptiveStep(0.7).find_length(problem, 10**6) == 0.7
    solver = pm.DoubleSGD(1)
    state = solver.start(problem)
    state.length = 9 * guess
    solver.run(problem, state, n_iter=3)
    assert solver.restore(problem, state.arrays(), 3).length == 9 * guess
    with pytest.raises(ValueError, match="the length of the first step"):
        solver.restore(problem, {**state.arrays(), "length": np.array(np.nan)}, 3)


def test_many_steps_are_shorter_from_the_first() -> None:
    """As one over the root of their number, unless the user says how long they are."""
    problem = problem_of(*words(10))
    lengths = [pm.AdaptiveStep().rule(problem, n, 0.5).first_step for n in (100, 1500, 6000)]
    np.testing.assert_allclose(lengths, [0.5, 0.5, 0.25])
    assert pm.AdaptiveStep(0.3).rule(problem, 6000, 0.5).first_step == 0.3


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
