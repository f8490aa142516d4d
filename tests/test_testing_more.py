"""As `test_testing`, for losses, solvers, marginal methods and what all parts share."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.potentials import Floats, Labels, Mask
from perturbmap.solvers import Averaging, Problem, State
from tests.own_parts import Ascent, RootHamming, Smoothed
from tests.test_testing import assert_caught

# Losses.


class NeverNan(RootHamming):
    def value(self, known: pm.SiteLabels, predicted: Labels) -> Floats:
        return self.example_losses(known, predicted)


class UnknownCosts(RootHamming):
    def example_losses(self, known: pm.SiteLabels, predicted: Labels) -> Floats:
        return super().example_losses(known, predicted) + known.layout.sums(~known.is_known & (predicted > 0))


class SharesTheBatch(RootHamming):
    def site_weights(self, known: pm.SiteLabels) -> Floats:
        return np.asarray(super().site_weights(known) / known.sizes[0])


class AnotherLoss(RootHamming):
    def example_losses(self, known: pm.SiteLabels, predicted: Labels) -> Floats:
        return np.sqrt(super().example_losses(known, predicted))


@pytest.mark.parametrize(
    ("loss", "claim"),
    [
        (NeverNan(), "`value` is NaN exactly where no label of the example is known"),
        (UnknownCosts(), "what is predicted where no label is known makes no difference"),
        (SharesTheBatch(), "of an example is the same in every batch"),
        (AnotherLoss(), "`value` is sum_d theta[d, y_d] [y_d != yhat_d]"),
    ],
    ids=repr,
)
def test_a_wrong_loss_is_caught(loss: pm.TaskLoss, claim: str) -> None:
    """With the labels on which it is wrong."""
    assert_caught(pm.testing.check_task_loss, loss, claim, "labels", "predicted", "sizes", "site_offsets")


def test_a_loss_that_is_not_its_definition_is_caught() -> None:
    """The definition that the caller gives decides."""

    def by_size(truth: Labels, predicted: Labels, sizes: Floats) -> float:
        return float(sizes[truth != predicted].sum())

    pm.testing.check_task_loss(RootHamming(1.0), by_size)
    assert_caught(
        lambda loss: pm.testing.check_task_loss(loss, by_size), RootHamming(0.5), "by its definition", "labels"
    )


# Solvers.


class ForgetsWhereItWas(Ascent):
    def restore(self, problem: Problem, arrays: Mapping[str, Any], iteration: int) -> State:
        return State(np.zeros(problem.n_weights), arrays["average"], iteration)


class Stateful(Ascent):
    """Its momentum is no part of its state."""

    def start(self, problem: Problem, w: Floats | None = None) -> State:
        self.velocity = np.zeros(problem.n_weights)
        return super().start(problem, w)

    def restore(self, problem: Problem, arrays: Mapping[str, Any], iteration: int) -> State:
        self.velocity = np.zeros(problem.n_weights)
        return super().restore(problem, arrays, iteration)

    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        while state.iteration < (self.max_iter if n_iter is None else n_iter):
            _, gradient = problem.value_and_grad(state.w)
            self.velocity = 0.5 * self.velocity + self.step * (gradient - problem.l2 * state.w)
            state.w = state.average = problem.project(state.w + self.velocity)
            state.iteration += 1
            if on_step is not None and on_step(state):
                break
        return state


class IgnoresSigns(Ascent):
    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        while state.iteration < (self.max_iter if n_iter is None else n_iter):
            state.iteration += 1
            _, gradient = problem.value_and_grad(state.w, draw=state.iteration)
            state.w = state.average = state.w + self.step * (gradient - problem.l2 * state.w)
            if on_step is not None and on_step(state):
                break
        return state


class NeverStops(Ascent):
    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        return super().run(problem, state, lambda s: bool(on_step is not None and on_step(s) and False), n_iter)


class IgnoresIterations(Ascent):
    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        return super().run(problem, state, on_step)


class DoesNothing(Ascent):
    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        return state


class Descent(Ascent):
    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        return Ascent(-self.step, self.max_iter).run(problem, state, on_step, n_iter)


class FreshNoise(Ascent):
    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        state.w = state.w + 1e-9 * np.random.default_rng().normal(size=len(state.w))
        return super().run(problem, state, on_step, n_iter)


@pytest.mark.parametrize(
    ("solver", "claim"),
    [
        (ForgetsWhereItWas(), "`restore` brings back w"),
        (Stateful(), "a run that is stopped and restored ends with the bits of one that is not"),
        (IgnoresSigns(), "weights that must not be negative are not"),
        (NeverStops(), "a run stops when `on_step` returns True"),
        (IgnoresIterations(), "a run stops at step `n_iter`"),
        (DoesNothing(), "a run ends with a higher objective than it begins with"),
        (Descent(), "a run ends with a higher objective than it begins with"),
        (FreshNoise(), "the same problem and seed give the same weights"),
    ],
    ids=repr,
)
def test_a_wrong_solver_is_caught(solver: pm.Solver[Any], claim: str) -> None:
    """With the problem on which it is wrong."""
    assert_caught(pm.testing.check_solver, solver, claim, "objective", "features", "labels", "l2")


def test_a_solver_that_stops_early_is_caught_where_the_maximum_is_asked_for() -> None:
    """A tolerance asks for it."""
    few = Ascent(max_iter=3)
    pm.testing.check_solver(few, [pm.testing.small_problem()])
    assert_caught(
        lambda solver: pm.testing.check_solver(solver, [pm.testing.small_problem()], tolerance=0.01),
        few,
        "within 0.01 of the maximum",
    )


# Marginal methods.


class NotNormalised(Smoothed):
    def link(self, mean: Floats, impossible: Mask) -> Floats:
        return 0.9 * mean


class WrongPullback(Smoothed):
    def with_pullback(self, structure: pm.Structure, f: pm.Potentials, noise: Floats | None) -> Any:
        q, pullback = super().with_pullback(structure, f, noise)
        return q, lambda g: pullback(2 * g)


class OtherMarginals(Smoothed):
    def with_pullback(self, structure: pm.Structure, f: pm.Potentials, noise: Floats | None) -> Any:
        return pm.PINNED.with_pullback(structure, f, noise)


@pytest.mark.parametrize(
    ("method", "claim"),
    [
        (NotNormalised(), "the marginals of a site sum to one"),
        (WrongPullback(), "the pullback is the gradient of the marginals, by finite differences"),
        (OtherMarginals(), "`with_pullback` gives the marginals of the same noise"),
    ],
    ids=repr,
)
def test_a_wrong_marginal_method_is_caught(method: pm.MarginalMethod, claim: str) -> None:
    """With the potentials on which it is wrong."""
    assert_caught(pm.testing.check_marginal_method, method, claim, "unary", "pairwise", "edges")


# What all parts share.


class Rounds(Averaging):
    def __init__(self, keep: float = 0.123) -> None:
        self.keep = round(keep, 1)

    def rate(self, h: int, n_iter: int) -> float:
        return self.keep


class HidesItsParameter(Averaging):
    def __init__(self, keep: float = 0.1) -> None:
        self._keep = keep

    def __repr__(self) -> str:
        return "HidesItsParameter()"

    def rate(self, h: int, n_iter: int) -> float:
        return self._keep


class EqualsAll(Averaging):
    def __init__(self, keep: float = 0.1) -> None:
        self.keep = keep

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = Averaging.__hash__

    def rate(self, h: int, n_iter: int) -> float:
        return self.keep


@pytest.mark.parametrize(
    ("part", "claim"),
    [
        (Rounds(), "its constructor stores the argument keep as self.keep"),
        (HidesItsParameter(), "must store its parameter as self.keep"),
        (EqualsAll(), "parts that differ in keep are not equal"),
    ],
    ids=repr,
)
def test_a_part_that_is_not_its_parameters_is_caught(part: Averaging, claim: str) -> None:
    """With the parameters of its constructor."""
    assert_caught(pm.testing.check_part, part, claim, "parameters")


def test_a_part_of_another_kind_is_refused() -> None:
    """Each check says what its part must derive from."""
    with pytest.raises(TypeError, match="must derive from Structure"):
        pm.testing.check_structure(RootHamming(), pm.testing.chains)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must derive from Solver"):
        pm.testing.check_solver(RootHamming())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two examples at least"):
        pm.testing.check_model(pm.SequenceModel(), [np.eye(2)], 2)
