"""Double stochastic gradient: over the data and over the perturbations (Algorithms 1, 2 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from perturbmap.examples import Dataset
from perturbmap.models.base import Model
from perturbmap.objectives.base import Objective, Targets
from perturbmap.perturbation import gumbel_noise
from perturbmap.potentials import Floats
from perturbmap.solvers.averaging import Averaging, PolynomialAveraging
from perturbmap.structures.base import Structure


@lru_cache(maxsize=4)
def _shuffle(seed: int, number: int, n: int) -> NDArray[np.intp]:
    return np.random.default_rng([seed, number]).permutation(n)


@dataclass(frozen=True, eq=False)
class Problem:
    """``maximise sum_n weights[n] objective_n(w) / N - l2/2 ||w||^2`` over the N examples of ``data``."""

    data: Dataset
    targets: Targets
    n_labels: int
    model: Model
    structure: Structure
    objective: Objective
    l2: float
    seed: int

    def batch(self, indices: NDArray[np.intp]) -> tuple[Dataset, Targets]:
        """Some of the examples."""
        sites, t = self.data.sites_of(indices), self.targets
        part = Targets(t.labels[sites], t.label_weights[sites], t.is_complete[indices], t.weights[indices])
        return self.data.take(indices), part

    def value_and_grad(self, w: Floats, indices: NDArray[np.intp], draw: int) -> tuple[float, Floats]:
        """The mean over some examples, under one draw of each one's noise; without the penalty."""
        batch, targets = self.batch(indices)
        f = self.model.potentials(w, batch, self.n_labels)
        noise = gumbel_noise(f, self.seed, first_draw=draw, n_threads=self.structure.n_threads)[0]
        values, moments = self.objective.value_and_grad(f, targets, self.structure, noise)
        gradient = self.model.pullback(batch, self.n_labels, moments)
        return float(targets.weights @ values) / len(indices), gradient / len(indices)

    def objective_at(self, w: Floats, n_draws: int = 4, max_examples: int = 500) -> float:
        """The objective itself, on a fixed set of perturbations, so that two iterates can be compared.

        The draws are counted down from 2**32, where no step gets; of more examples than ``max_examples``, evenly
        spaced ones stand for all.
        """
        n = len(self.data)
        some = np.unique(np.linspace(0, n - 1, min(n, max_examples)).astype(np.intp))
        total = sum(self.value_and_grad(w, some, 2**32 - 1 - draw)[0] for draw in range(n_draws))
        return total / n_draws - 0.5 * self.l2 * float(w @ w)


@dataclass(eq=False)
class SGDState:
    """All that a run needs to go on as if it had never stopped."""

    w: Floats
    average: Floats
    iteration: int = 0


@final
class DoubleSGD(BaseEstimator):
    """``w <- project(w + step * (gradient - l2 w))`` with ``step = 1 / (l2 (h + offset))``.

    n_passes : passes over the data
    batch_size : examples a step; each gets one fresh perturbation a step
    first_step : the step at h = 1, which fixes ``offset = 1 / (l2 first_step) - 1``; at most 1 / l2. None takes
        10 / (the mean of ``||x_d||^2 + 1`` over sites, times the mean weight of an example)
    averaging : of the iterates

    The examples of a step and their noise depend on the seed and the step alone.
    """

    def __init__(
        self,
        n_passes: float = 50,
        batch_size: int = 16,
        first_step: float | None = None,
        averaging: Averaging | None = None,
    ) -> None:
        self.n_passes = n_passes
        self.batch_size = batch_size
        self.first_step = first_step
        self.averaging = averaging

    def n_iter(self, n_examples: int) -> int:
        """Steps in all."""
        return max(1, int(np.ceil(self.n_passes * n_examples / min(self.batch_size, n_examples))))

    def check(self) -> None:
        """Raises ValueError where a parameter makes no sense."""
        if not 0 < self.n_passes < np.inf:
            raise ValueError(f"n_passes must be positive and finite, but is {self.n_passes}.")
        if not isinstance(self.batch_size, (int, np.integer)) or self.batch_size < 1:
            raise ValueError(f"batch_size must be an integer of at least 1, but is {self.batch_size}.")
        if self.first_step is not None and not self.first_step > 0:
            raise ValueError(f"first_step must be positive, but is {self.first_step}.")

    def run(
        self,
        problem: Problem,
        state: SGDState,
        on_step: Callable[[SGDState], bool] | None = None,
        n_iter: int | None = None,
    ) -> SGDState:
        """Goes on from ``state`` to step ``n_iter``; ``on_step`` may stop it by returning True."""
        self.check()
        averaging = PolynomialAveraging() if self.averaging is None else self.averaging
        n = len(problem.data)
        n_iter = self.n_iter(n) if n_iter is None else n_iter
        offset = 1.0 / (problem.l2 * self._first_step(problem)) - 1.0
        size = min(self.batch_size, n)
        while state.iteration < n_iter:
            h = state.iteration + 1
            _, gradient = problem.value_and_grad(state.w, self._indices(problem, h, size), h)
            step = 1.0 / (problem.l2 * (h + offset))
            w = state.w + step * (gradient - problem.l2 * state.w)
            state.w = problem.model.project(w, problem.data, problem.n_labels)
            state.average = state.average + averaging.rate(h, n_iter) * (state.w - state.average)
            state.iteration = h
            if on_step is not None and on_step(state):
                break
        return state

    def _indices(self, problem: Problem, h: int, size: int) -> NDArray[np.intp]:
        """The examples of step h: the next ones of a fresh shuffle for every pass."""
        n = len(problem.data)
        first, last = (h - 1) * size, h * size - 1
        order = _shuffle(problem.seed, first // n, n)
        if last // n == first // n:
            return order[first % n : last % n + 1]
        return np.concatenate([order[first % n :], _shuffle(problem.seed, last // n, n)[: last % n + 1]])

    def _first_step(self, problem: Problem) -> float:
        step = self.first_step
        if step is None:
            data, t = problem.data, problem.targets
            weights = t.label_weights.sum(axis=1) * np.repeat(t.weights, data.site_counts)
            curvature = float(weights.sum()) / len(data) * (data.features.mean_squared_norm() + 1.0)
            step = 10.0 / max(1e-300, curvature)
        return min(step, 1.0 / problem.l2)
