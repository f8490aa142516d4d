"""Table 5: every way of finding the pins finds the same, and the sums add up."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from perturbmap import BinaryGraph, Example, GraphModel, StructuredPredictor
from perturbmap.experiments.horses import pin_ways
from perturbmap.experiments.horses.pin_timing import time_pins
from perturbmap.objectives import MarginalLogLikelihood, Targets
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.solvers import DoubleSGD, Problem
from perturbmap.solvers.passes import Passes
from perturbmap.structures import Structure
from perturbmap.task_losses import BalancedHamming

OURS = ["basic", "one graph", "dynamic", "reduction", "both"]
SOLVER = DoubleSGD(batch_size=1)


@pytest.fixture
def problem(rng: np.random.Generator) -> Problem:
    """Small graphs of different sizes; of some sites the label is not known."""
    X, y = [], []
    for n in (7, 12, 9, 15):
        edges = np.array([(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.4])
        labels = rng.integers(0, 2, n)
        features = np.column_stack([labels + rng.normal(0, 1, n), rng.normal(0, 1, n)])
        X.append(Example(features, edges, rng.random((len(edges), 2)), sizes=rng.integers(1, 9, n)))
        y.append(np.where(rng.random(n) < 0.1, -1, labels))
    est = StructuredPredictor(
        GraphModel(),
        BinaryGraph(n_threads=1),
        MarginalLogLikelihood(BalancedHamming()),
        l2=1e-2,
        solver=SOLVER,
        classes=[0, 1],
        random_state=3,
    )
    return est.problem(X, y)


def test_every_row_has_its_sums(problem: Problem) -> None:
    """A row for every way, sums that increase, no error where all was timed, the last column extrapolated."""
    result = time_pins(problem, SOLVER, n_iter=1500, n_samples=180)
    assert result["iterations"] == [100, 1000, 1500, 15000]
    assert result["is_extrapolated"] == [False, False, False, True]
    assert [decade["n_timed"] for decade in result["decades"]] == [100, 40, 40]
    assert set(OURS) <= set(result["seconds"])
    for name, seconds in result["seconds"].items():
        assert (np.diff([0, *seconds]) > 0).all()
        errors = result["standard_errors"][name]
        assert errors[0] == 0
        assert (np.diff(errors) > 0).all()
        rate = result["decades"][-1]["microseconds"][name]
        assert seconds[-1] == pytest.approx(seconds[-2] + 13_500 * 1e-6 * rate)
        assert result["microseconds_at_end"][name] > 0
    assert result["ratio"] == pytest.approx(result["seconds"]["basic"][2] / result["seconds"]["both"][2])
    for decade in result["decades"]:
        assert decade["flipped"] >= 1
        assert 0 < decade["unsatisfied"] < 15


def test_a_short_run_is_timed_throughout(problem: Problem) -> None:
    """Below a hundred iterations there is one column beside the extrapolated one."""
    result = time_pins(problem, SOLVER, n_iter=20)
    assert result["iterations"] == [20, 200]
    assert result["decades"][0]["n_timed"] == 20


def test_pins_are_those_of_the_step(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Example, weights and noise are what the solver's own step gets."""
    seen: list[tuple[Floats, Floats]] = []
    original = MarginalLogLikelihood.value_and_grad

    def spy(
        self: Any, f: Potentials, targets: Targets, structure: Structure, noise: Floats
    ) -> tuple[Floats, Moments]:
        seen.append((f.unary + noise, targets.label_weights))
        return original(self, f, targets, structure, noise)

    monkeypatch.setattr(MarginalLogLikelihood, "value_and_grad", spy)
    state = SOLVER.start(problem)
    for h in range(1, 8):
        pins = pin_ways.Pins.of_step(problem, Passes(problem), state.w, h)
        state = SOLVER.run(problem, state, n_iter=h)
        np.testing.assert_array_equal(pins.f.unary, seen[-1][0])
        np.testing.assert_array_equal(pins.label_weights, seen[-1][1])


def test_ways_that_disagree_are_refused(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of different answers are not compared."""
    honest = pin_ways._both
    monkeypatch.setattr(pin_ways, "_both", lambda p: (1.0, honest(p)[1] + 1e-6))
    with pytest.raises(RuntimeError, match="both and basic must find the same maxima"):
        time_pins(problem, SOLVER, n_iter=3)


def test_pymaxflow_is_optional(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed, its rows are left out."""
    monkeypatch.setitem(sys.modules, "maxflow", None)
    assert list(time_pins(problem, SOLVER, n_iter=3)["seconds"]) == OURS


def test_pymaxflow_finds_the_same(problem: Problem) -> None:
    """Where it is installed, it has its rows; `time_pins` compares their values."""
    pytest.importorskip("maxflow")
    rows = list(time_pins(problem, SOLVER, n_iter=30)["seconds"])
    assert rows == [*OURS, "PyMaxflow", "PyMaxflow, re-used"]


def test_steps_of_several_examples_are_refused(problem: Problem) -> None:
    """The table counts iterations of one example."""
    with pytest.raises(ValueError, match="batch_size is 16"):
        time_pins(problem, DoubleSGD())
