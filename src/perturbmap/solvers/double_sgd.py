"""Double stochastic gradient: over the data and over the perturbations (Algorithms 1, 2 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.checks import check_count, check_number
from perturbmap.objectives.base import Objective
from perturbmap.potentials import Floats
from perturbmap.solvers.averaging import Averaging, PolynomialAveraging, check_averaging
from perturbmap.solvers.base import Problem, Solver, State

#: Reports that a fit makes to its callback, and looks that it takes at validation data.
N_REPORTS = 20


class Passes:
    """The order of the examples in each pass: shuffled.

    On disk, shards are shuffled, and the examples of each, so that disks see long reads.
    """

    def __init__(self, problem: Problem) -> None:
        self._seed, self._n, self._shards = problem.seed, len(problem.data), problem.data.shards
        self._orders: dict[int, NDArray[np.intp]] = {}

    def order(self, number: int) -> NDArray[np.intp]:
        """Of one pass; kept while its steps may ask again."""
        if number not in self._orders:
            self._orders = {n: order for n, order in self._orders.items() if n == number - 1}
            order = np.random.default_rng([self._seed, number]).permutation(self._n)
            if self._shards is not None:
                names = np.unique(self._shards)
                place = np.random.default_rng([self._seed, number, 1]).permutation(len(names))
                rank = place[np.searchsorted(names, self._shards[order])]
                order = order[np.argsort(rank, kind="stable")]
            self._orders[number] = order
        return self._orders[number]

    def indices(self, h: int, size: int) -> NDArray[np.intp]:
        """The examples of step h, the first being 1: the next ones, from one pass into the next."""
        first, last = (h - 1) * size, h * size - 1
        order = self.order(first // self._n)
        if last // self._n == first // self._n:
            return order[first % self._n : last % self._n + 1]
        return np.concatenate([order[first % self._n :], self.order(last // self._n)[: last % self._n + 1]])


def take_step(problem: Problem, w: Floats, indices: NDArray[np.intp], h: int, offset: float) -> Floats:
    """Step h from w, by the gradient of some examples under fresh noise."""
    _, gradient = problem.value_and_grad(w, indices, h)
    step = 1.0 / (problem.l2 * (h + offset))
    return problem.model.project(w + step * (gradient - problem.l2 * w), problem.data, problem.n_labels)


@final
class DoubleSGD(Solver[State]):
    """``w <- project(w + step * (gradient - l2 w))`` with ``step = 1 / (l2 (h + offset))``.

    n_passes, min_steps : passes over the data, but so many steps at least: few examples want many passes
    batch_size : examples a step; each gets one fresh perturbation a step
    first_step : the step at h = 1, which fixes ``offset = 1 / (l2 first_step) - 1``; at most 1 / l2. None takes
        10 / (`Model.squared_length`, ``||x||^2 + 1`` of a site on average, times the mean weight of an example)
    averaging : of the iterates

    The examples of a step and their noise depend on the seed and the step alone.

    >>> pm.DoubleSGD(n_passes=20, batch_size=16).n_iter(n_examples=100)
    125
    """

    def __init__(
        self,
        n_passes: float = 50,
        batch_size: int = 16,
        first_step: float | None = None,
        averaging: Averaging | None = None,
        *,
        min_steps: int = 0,
    ) -> None:
        self.n_passes = n_passes
        self.batch_size = batch_size
        self.first_step = first_step
        self.averaging = averaging
        self.min_steps = min_steps

    def n_iter(self, n_examples: int) -> int:
        """Steps in all."""
        return max(1, self.min_steps, int(np.ceil(self.n_passes * n_examples / min(self.batch_size, n_examples))))

    def is_due(self, state: State, n_examples: int) -> bool:
        """After every twentieth of all steps."""
        return state.iteration % max(1, self.n_iter(n_examples) // N_REPORTS) == 0

    def check(self, objective: Objective) -> None:
        """See `Solver.check`; any objective will do."""
        check_number("n_passes", self.n_passes)
        check_count("batch_size", self.batch_size)
        if self.min_steps != 0:
            check_count("min_steps", self.min_steps)
        if self.first_step is not None:
            check_number("first_step", self.first_step)
        check_averaging(self.averaging)

    def start(self, problem: Problem, w: Floats | None = None) -> State:
        """See `Solver.start`; zeros by default."""
        w = np.zeros(problem.n_weights) if w is None else w
        return State(w.copy(), w.copy())

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> State:
        """See `Solver.restore`."""
        return State(arrays["w"], arrays["average"], iteration)

    def progress(self, problem: Problem, state: State) -> dict[str, float]:
        """The objective, on a fixed set of perturbations."""
        return {"objective": problem.objective_at(state.average)}

    def run(
        self,
        problem: Problem,
        state: State,
        on_step: Callable[[State], bool] | None = None,
        n_iter: int | None = None,
    ) -> State:
        """See `Solver.run`."""
        averaging = PolynomialAveraging() if self.averaging is None else self.averaging
        n = len(problem.data)
        n_iter = self.n_iter(n) if n_iter is None else n_iter
        offset = self.offset(problem)
        size, passes = min(self.batch_size, n), Passes(problem)
        while state.iteration < n_iter:
            h = state.iteration + 1
            state.w = take_step(problem, state.w, passes.indices(h, size), h, offset)
            state.average = state.average + averaging.rate(h, n_iter) * (state.w - state.average)
            state.iteration = h
            if on_step is not None and on_step(state):
                break
        return state

    def offset(self, problem: Problem) -> float:
        """Of the step sizes."""
        return 1.0 / (problem.l2 * self._first_step(problem)) - 1.0

    def _first_step(self, problem: Problem) -> float:
        step = self.first_step
        if step is None:
            data, t = problem.data, problem.targets
            weights = t.label_weights.sum(axis=1) * np.repeat(t.weights, data.site_counts)
            curvature = float(weights.sum()) / len(data) * problem.model.squared_length(data)
            step = 10.0 / max(1e-300, curvature)
        return min(step, 1.0 / problem.l2)
