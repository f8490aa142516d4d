"""Double stochastic gradient: over the data and over the perturbations (Algorithms 1, 2 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.solvers.adaptive_step import AdaptiveStep
from perturbmap.solvers.averaging import Averaging, check_averaging
from perturbmap.solvers.base import Solver, State
from perturbmap.solvers.iterate import Iterate
from perturbmap.solvers.passes import Passes
from perturbmap.solvers.problem import Problem
from perturbmap.solvers.steps import Rule, Step, take_step
from perturbmap.support.checks import check_count, check_number


class SGDState(State):
    """The weights, their average, the memory of the steps, and the objective as they saw it since the last report.

    ``length`` is what `Step.find_length` found, 0 before it was asked.
    """

    def __init__(self, iterate: Iterate, iteration: int = 0, memory: Floats | None = None) -> None:
        super().__init__(lambda: self.iterate.weights(), lambda: self.iterate.average(), iteration)
        self.iterate = iterate
        self.memory = np.zeros((0, 0)) if memory is None else memory
        self.length = 0.0
        self.objective, self.n_seen, self.is_reported = 0.0, 0, False

    def see(self, objective: float) -> None:
        """Counts what one more step saw."""
        if self.is_reported:
            self.objective, self.n_seen, self.is_reported = 0.0, 0, False
        self.objective, self.n_seen = self.objective + objective, self.n_seen + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            **self.iterate.arrays(),
            "memory": self.memory,
            "length": np.array(self.length),
            "seen": np.array([self.objective, self.n_seen, self.is_reported]),
        }

    def report(self) -> dict[str, float]:
        """The mean objective since the last report; the next begins with the next step."""
        self.is_reported = True
        return {"objective": self.objective / self.n_seen} if self.n_seen else {}


def start_sgd(problem: Problem, w: Floats | None) -> SGDState:
    """The state before the first step, at w or at zero."""
    w = np.zeros(problem.n_weights) if w is None else w
    if problem.learned is not None:
        w = np.where(problem.learned, w, 0.0)
    return SGDState(Iterate.of(w, w))


def restore_sgd(problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> SGDState:
    """The state whose arrays these are."""
    memory = np.array(arrays["memory"], dtype=np.float64)
    if memory.ndim != 2 or not np.isfinite(memory).all():
        raise ValueError("the memory of the steps must be rows of finite numbers.")
    state = SGDState(Iterate.from_arrays(arrays, problem.n_weights), iteration, memory)
    state.length = float(arrays["length"])
    if not 0 <= state.length < np.inf:
        raise ValueError("the length of the first step must be a finite number, and not negative.")
    objective, n_seen, is_reported = arrays["seen"].tolist()
    state.objective, state.n_seen, state.is_reported = objective, int(n_seen), bool(is_reported)
    return state


def remember(state: SGDState, rule: Rule, n_weights: int) -> None:
    """Makes room for what the rule remembers, where the state has none of it yet."""
    if state.memory.shape != (rule.n_memory, n_weights):
        state.memory = rule.memory(n_weights, state.iteration)


@final
class DoubleSGD(Solver[SGDState]):
    """Steps by the gradient of a few examples under fresh noise: ``w <- project(step of gradient - l2 w)``.

    It is stochastic gradient ascent twice over, over the examples and over the random perturbations of each. The
    projection keeps the weights to their signs where the model asks for it.

    n_passes : passes over the data; more if the objective still rises at the end
    min_steps : steps to take at least, whatever the passes: few examples need many passes
    batch_size : examples in a step; each gets one fresh perturbation in every step
    step : how a gradient becomes a step; `AdaptiveStep` by default, `PlainStep` is the paper's
    averaging : how the iterates (the weights after each step) are averaged; by default as suits the step, a
        `PolynomialAveraging`

    The examples of a step and their noise depend on the seed and the step alone. The ``objective`` in ``history_`` is
    the mean of what the steps since the entry before saw at their weights, each with its own examples and noise.

    >>> pm.DoubleSGD(n_passes=20, batch_size=16).n_iter(n_examples=100)
    125
    """

    is_incremental = True

    def __init__(
        self,
        n_passes: float = 50,
        batch_size: int = 16,
        step: Step | None = None,
        averaging: Averaging | None = None,
        *,
        min_steps: int = 0,
    ) -> None:
        self.n_passes = n_passes
        self.batch_size = batch_size
        self.step = step
        self.averaging = averaging
        self.min_steps = min_steps

    @property
    def _step(self) -> Step:
        return AdaptiveStep() if self.step is None else self.step

    @property
    def chosen_averaging(self) -> Averaging:
        """The averaging that was given, or that which suits the step."""
        return self._step.averaging if self.averaging is None else self.averaging

    def n_iter(self, n_examples: int) -> int:
        """The number of steps in all."""
        return max(1, self.min_steps, math.ceil(self.n_passes * n_examples / self.examples_per_step(n_examples)))

    def examples_per_step(self, n_examples: int) -> int:
        """The size of a batch, or the number of examples where they are fewer."""
        return min(self.batch_size, n_examples)

    def check(self, problem: Problem) -> None:
        """See `Solver.check`; any problem can be solved."""
        check_number("n_passes", self.n_passes)
        check_count("batch_size", self.batch_size)
        if self.min_steps != 0:
            check_count("min_steps", self.min_steps)
        if not isinstance(self._step, Step):
            raise TypeError(f"step must be a Step, such as AdaptiveStep() or PlainStep(0.1), but is {self.step!r}.")
        self._step.check()
        check_averaging(self.averaging)

    def start(self, problem: Problem, w: Floats | None = None) -> SGDState:
        return start_sgd(problem, w)

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> SGDState:
        return restore_sgd(problem, arrays, iteration)

    def progress(self, problem: Problem, state: SGDState) -> dict[str, float]:
        """See `Solver.progress`: the objective as the steps saw it."""
        return state.report()

    def run(
        self,
        problem: Problem,
        state: SGDState,
        on_step: Callable[[SGDState], bool] | None = None,
        n_iter: int | None = None,
    ) -> SGDState:
        averaging = self.chosen_averaging
        n = len(problem.data)
        n_iter = self.n_iter(n) if n_iter is None else n_iter
        rule = self.rule(problem, state, n_iter)
        size, passes = self.examples_per_step(n), Passes(problem)
        remember(state, rule, problem.n_weights)
        while state.iteration < n_iter:
            h = state.iteration + 1
            rate = averaging.rate(h, n_iter)
            batch = passes.batch(h, size)
            objective = take_step(problem, rule, state.iterate, state.memory, batch, h, rate)
            state.iteration = h
            state.see(objective)
            if on_step is not None and on_step(state):
                break
        return state

    def rule(self, problem: Problem, state: SGDState, n_iter: int = 0) -> Rule:
        """The rule of the steps, which shorten as the number of all of them asks; of more, where more are taken.

        The first length is found once, at the start, for as many steps as are to be taken at once.
        """
        in_all = self.n_iter(len(problem.data))
        if state.length == 0:
            state.length = self._step.find_length(problem, (n_iter or in_all) - state.iteration)
        return self._step.rule(problem, max(n_iter, in_all), state.length)
