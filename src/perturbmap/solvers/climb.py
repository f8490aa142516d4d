"""One run of L-BFGS: from some weights upwards, to a certificate or under more and more draws of the noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from perturbmap.potentials import Floats
from perturbmap.solvers.base import State
from perturbmap.solvers.everything import Everything
from perturbmap.solvers.orthants import orthant_wise, shrunk
from perturbmap.solvers.problem import FRESH, Problem

#: Iterations between two reports; an objective under noise is at rest when it rises no more over as many.
REPORT = 10
_Loss = Callable[[Floats], tuple[float, Floats]]


class LBFGSState(State):
    """The weights, their objective with its penalty, and how far below the maximum it may lie.

    Of an objective under noise also the number of draws, the weights when it was last doubled, and the objective
    under draws that were not learned from.
    """

    def __init__(
        self,
        w: Floats | Callable[[], Floats],
        average: Floats | Callable[[], Floats],
        iteration: int = 0,
        *,
        n_draws: int = 0,
        before: Floats | None = None,
    ) -> None:
        super().__init__(w, average, iteration)
        self.n_draws, self.before = n_draws, before
        self.objective = self.gap = self.fresh = np.nan

    def arrays(self) -> dict[str, NDArray[Any]]:
        before = {} if self.before is None else {"before": self.before}
        return {**super().arrays(), "n_draws": np.array(self.n_draws), **before}


@final
class Climb:
    """One run: from the weights of a state upwards, each iteration kept in the state."""

    def __init__(
        self,
        problem: Problem,
        everything: Everything,
        state: LBFGSState,
        on_step: Callable[[LBFGSState], bool] | None,
        last: int,
        memory: int,
        tolerance: float,
        l1: float,
    ) -> None:
        self._problem, self._everything, self._state, self._on_step = problem, everything, state, on_step
        self._last, self._memory, self._tolerance, self._l1 = last, memory, tolerance, l1
        self._at = everything.at  # the weights that are learned, of which all below are vectors
        signed = problem.is_nonnegative
        self._signed = None if signed is None else signed[self._at]
        self._point = self._gradient = np.zeros(0)  # the last, and the gradient of the loss, evaluated there
        self.is_stopped = False

    def to_certificate(self) -> bool:
        """Climbs until the certificate is small enough; whether it is."""
        state = self._state

        def look() -> bool:
            state.gap = self._suboptimality(self._point)
            return state.gap <= self._tolerance * abs(state.objective)

        return self._climb(look)

    def under_more_and_more_noise(self, max_draws: int) -> bool:
        """Climbs to rest, doubles the draws, and so on, until that gains next to nothing; whether it was."""
        state = self._state
        while True:
            values: list[float] = []

            def look(values: list[float] = values) -> bool:
                values.append(state.objective)
                gained = values[-1] - values[-1 - REPORT] if len(values) > REPORT else np.inf
                return gained <= 0.5 * self._tolerance * abs(values[-1])

            self._climb(look)
            if self.is_stopped:
                return False
            state.fresh = self._fresh(state.w, state.n_draws)
            if state.iteration >= self._last:
                return False
            if state.before is not None:
                state.gap = abs(state.fresh - self._fresh(state.before, state.n_draws))
            is_enough = state.gap <= self._tolerance * abs(state.fresh)  # never, while there is no gap
            if is_enough or state.n_draws >= max_draws:
                return True
            state.before, state.n_draws = state.w, min(2 * state.n_draws, max_draws)

    def _fresh(self, w: Floats, n_draws: int) -> float:
        """The objective under draws that are never learned from."""
        return -self._loss(w[self._at], FRESH, n_draws)[0]

    def _loss(self, w: Floats, draw: int, n_draws: int) -> tuple[float, Floats]:
        """The loss with its penalties, and its gradient without that of L1, which has jumps."""
        value, gradient = self._everything.value_and_grad(w, draw, n_draws)
        penalty = self._problem.penalty(w) + (self._l1 * float(np.abs(w).sum()) if self._l1 else 0.0)
        gradient *= -1.0
        gradient += self._problem.l2 * w
        return penalty - value, gradient

    def _climb(self, look: Callable[[], bool]) -> bool:
        """L-BFGS until ``look`` says that it is enough, or nothing more can be gained; whether it was enough."""
        state, problem = self._state, self._problem
        is_enough = False
        self._point = state.w[self._at]
        first_value, self._gradient = self._loss(self._point, 0, state.n_draws)
        is_first = True

        def loss(w: Floats) -> tuple[float, Floats]:
            nonlocal is_first
            if is_first and np.array_equal(w, self._point):  # which SciPy asks for again
                return first_value, self._gradient.copy()
            is_first = False
            value, self._gradient = self._loss(w, 0, state.n_draws)
            return value, self._gradient.copy()

        def keep(w: Floats, value: float) -> bool:
            state.w = state.average = partial(self._everything.all_weights, w)
            state.objective, self._point = -value, w
            return look()

        def on_iteration(w: Floats, value: float) -> bool:
            nonlocal is_enough
            state.iteration += 1
            is_enough = keep(w, value)  # which was evaluated last
            if problem.objective.is_perturbed and state.iteration % REPORT == 0:
                state.fresh = self._fresh(state.w, max(1, state.n_draws // 2))  # a twentieth of the time
            self.is_stopped = self._on_step is not None and self._on_step(state)
            return self.is_stopped or is_enough

        left = self._last - state.iteration
        is_enough = keep(self._point, first_value)
        if not is_enough and left > 0:
            climb = self._by_orthants if self._l1 else self._by_scipy
            climb(loss, left, on_iteration)
        return is_enough

    def _by_orthants(self, loss: _Loss, left: int, on_iteration: Callable[[Floats, float], bool]) -> None:
        signed, memory = self._signed, self._memory
        orthant_wise(
            loss,
            self._point,
            self._l1,
            memory=memory,
            max_iter=left,
            on_iteration=on_iteration,
            is_nonnegative=signed,
        )

    def _by_scipy(self, loss: _Loss, left: int, on_iteration: Callable[[Floats, float], bool]) -> None:
        bounds = None
        if self._signed is not None:
            bounds = np.full((len(self._point), 2), [-np.inf, np.inf])
            bounds[self._signed, 0] = 0.0

        def callback(intermediate_result: Any) -> None:
            if on_iteration(np.array(intermediate_result.x), float(intermediate_result.fun)):
                raise StopIteration

        minimize(
            loss,
            self._point,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=callback,
            # The callback stops it; ftol only where rounding lets it get no further.
            options={"maxiter": left, "maxfun": 20 * left, "maxcor": self._memory, "ftol": 1e-14, "gtol": 0.0},
        )

    def _suboptimality(self, w: Floats) -> float:
        """How far above its minimum the loss may be, by convexity.

        ``- min_v g . (v - w) + l2/2 ||v - w||^2 + l1 (||v||_1 - ||w||_1)``
        """
        l1, l2 = self._l1, self._problem.l2
        v = shrunk(w - self._gradient / l2, l1 / l2, self._signed)
        step = v - w
        penalties = l1 * float(np.abs(v).sum() - np.abs(w).sum()) if l1 else 0.0
        return -float(self._gradient @ step + 0.5 * l2 * (step @ step) + penalties)
