"""L-BFGS on all examples at once: to a certificate, or under a growing number of draws of the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from perturbmap.models.base import project
from perturbmap.potentials import Floats
from perturbmap.solvers.base import Solver, State, warn_of_gap
from perturbmap.solvers.everything import Everything
from perturbmap.solvers.problem import FRESH, Problem
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_count, check_number

# Iterations between two reports; an objective under noise is at rest when it rises no more over as many.
_REPORT = 10


class LBFGSState(State):
    """The weights, their objective with its penalty, and how far below the maximum it may lie.

    Of an objective under noise also the number of draws, the weights when it was last doubled, and the objective
    under draws that were not learned from.
    """

    def __init__(
        self, w: Floats, average: Floats, iteration: int = 0, *, n_draws: int = 0, before: Floats | None = None
    ) -> None:
        super().__init__(w, average, iteration)
        self.n_draws, self.before = n_draws, before
        self.objective = self.gap = self.fresh = np.nan

    def arrays(self) -> dict[str, NDArray[Any]]:
        before = {} if self.before is None else {"before": self.before}
        return {**super().arrays(), "n_draws": np.array(self.n_draws), **before}


@final
class LBFGS(Solver[LBFGSState]):
    """SciPy's L-BFGS-B, with bounds where the model has them.

    tolerance : stops when the objective is within this part of its maximum. By default 0.001, and 0.005 under noise.
    max_iter : iterations at most
    memory : past gradients from which the curvature is estimated
    n_draws, max_draws : draws of each example's noise, at first and at most

    What is exact ends with a certificate. The penalty makes the problem strongly concave, so that the gradient g at w
    bounds what is left: for weights without bounds, ``||g||^2 / (2 l2)``. (Where the objective is not concave in w,
    as `ExactMarginalLogLikelihood`, the likelihood of partly known labels and models that are not linear are not, it
    is a rule to stop, no more.)

    What is estimated under noise is solved for a fixed set of draws, until it rises by less than half of
    ``tolerance`` in ten iterations. Then the draws are doubled, and it goes on from there: until that has changed the
    objective by less than ``tolerance`` under fresh draws, which are never learned from, or there are ``max_draws``.
    What fits the draws and not the examples shrinks as one over their number: doubling gains about as much as is left
    to gain, which is the ``gap`` of ``history_``.

    A run that is taken up again begins at its last weights with an empty memory: it ends at the same maximum, by
    other steps.

    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(2, size=n) for n in (5, 3, 8, 6)]
    >>> X = [np.eye(2)[labels] + rng.normal(0, 0.3, (len(labels), 2)) for labels in y]
    >>> crf = pm.StructuredPredictor(objective=pm.ExactLogLikelihood(), l2=0.1, solver=pm.LBFGS(1e-4)).fit(X, y)
    >>> sorted(crf.history_[-1])
    ['gap', 'iteration', 'n_iter', 'objective', 'passes', 'phase', 'seconds']
    """

    ends_by_rule = True

    def __init__(
        self,
        tolerance: float | None = None,
        max_iter: int = 1000,
        memory: int = 10,
        n_draws: int = 4,
        max_draws: int = 64,
    ) -> None:
        self.tolerance = tolerance
        self.max_iter = max_iter
        self.memory = memory
        self.n_draws = n_draws
        self.max_draws = max_draws

    def check(self, problem: Problem) -> None:
        if self.tolerance is not None:
            check_number("tolerance", self.tolerance, 0, 1)
        check_count("max_iter", self.max_iter)
        check_count("memory", self.memory)
        check_count("n_draws", self.n_draws)
        if check_count("max_draws", self.max_draws) < self.n_draws:
            raise ValueError(f"max_draws must be at least n_draws, {self.n_draws}, but is {self.max_draws}.")
        objective = problem.objective
        if not (objective.is_smooth or objective.is_smooth_on_average):
            better = "BCFW()" if objective.is_hinge else "DoubleSGD()"
            raise ValueError(
                "LBFGS needs an objective whose gradient has no jumps, such as ExactLogLikelihood(), or few under "
                f"noise, such as MarginalLogLikelihood(); {objective!r} is solved by {better}."
            )

    def n_iter(self, n_examples: int) -> int:
        """The number of iterations, at most."""
        return self.max_iter

    def is_due(self, state: LBFGSState, n_examples: int) -> bool:
        """Whether it is time for a report: after every ten iterations."""
        return state.iteration % _REPORT == 0

    def start(self, problem: Problem, w: Floats | None = None) -> LBFGSState:
        """See `Solver.start`; at zero by default."""
        w = np.zeros(problem.n_weights) if w is None else w
        return LBFGSState(w.copy(), w.copy(), n_draws=self.n_draws)

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> LBFGSState:
        n_draws, before = int(arrays["n_draws"]), arrays.get("before")
        check_count("n_draws", n_draws)
        if before is not None and (before.shape != arrays["w"].shape or not np.isfinite(before).all()):
            raise ValueError("the weights before the last doubling must be finite, and as many as there are.")
        return LBFGSState(arrays["w"], arrays["average"], iteration, n_draws=n_draws, before=before)

    def progress(self, problem: Problem, state: LBFGSState) -> dict[str, float]:
        """The objective, and how far below its maximum it may lie.

        Under noise, the objective is that of fresh draws, beside that of the draws that are learned from.
        """
        if not problem.objective.is_perturbed:
            return {"objective": state.objective, "gap": state.gap}
        gap = {} if np.isnan(state.gap) else {"gap": state.gap}
        return {"objective": state.fresh, "objective_of_draws": state.objective, "n_draws": state.n_draws, **gap}

    def run(
        self,
        problem: Problem,
        state: LBFGSState,
        on_step: Callable[[LBFGSState], bool] | None = None,
        n_iter: int | None = None,
    ) -> LBFGSState:
        is_perturbed = problem.objective.is_perturbed
        tolerance = self.tolerance if self.tolerance is not None else 0.005 if is_perturbed else 0.001
        with one_blas_thread(), Everything(problem) as everything:
            last = self.max_iter if n_iter is None else n_iter
            climb = _Climb(problem, everything, state, on_step, last, self.memory, tolerance)
            is_done = climb.under_more_and_more_noise(self.max_draws) if is_perturbed else climb.to_certificate()
        if not is_done and not climb.is_stopped:
            what = f"LBFGS ended after {state.iteration} iterations"
            warn_of_gap(what, state.gap / max(1e-300, abs(state.objective)), tolerance)
        return state


@final
class _Climb:
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
    ) -> None:
        self._problem, self._everything, self._state, self._on_step = problem, everything, state, on_step
        self._last, self._memory, self._tolerance = last, memory, tolerance
        self._at = everything.at  # the weights that are learned, of which all below are vectors
        signed = problem.is_nonnegative
        self._signed = np.zeros(0, np.intp) if signed is None else np.flatnonzero(signed[self._at])
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
                gained = values[-1] - values[-1 - _REPORT] if len(values) > _REPORT else np.inf
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
        value, gradient = self._everything.value_and_grad(w, draw, n_draws)
        return self._problem.penalty(w) - value, self._problem.l2 * w - gradient

    def _climb(self, look: Callable[[], bool]) -> bool:
        """L-BFGS until ``look`` says that it is enough, or nothing more can be gained; whether it was enough."""
        state, problem = self._state, self._problem
        is_enough = False
        first, first_value = state.w[self._at], 0.0

        def loss(w: Floats) -> tuple[float, Floats]:
            if w is not first and np.array_equal(w, first):  # which SciPy asks for again
                return first_value, first_gradient.copy()
            value, self._gradient = self._loss(w, 0, state.n_draws)
            return value, self._gradient.copy()

        def keep(w: Floats, value: float) -> bool:
            state.w = state.average = partial(self._everything.all_weights, w)
            state.objective, self._point = -value, w
            return look()

        def on_iteration(intermediate_result: Any) -> None:
            nonlocal is_enough
            state.iteration += 1
            # SciPy has evaluated the accepted point last.
            is_enough = keep(np.array(intermediate_result.x), float(intermediate_result.fun))
            if problem.objective.is_perturbed and state.iteration % _REPORT == 0:
                state.fresh = self._fresh(state.w, max(1, state.n_draws // 2))  # a twentieth of the time
            self.is_stopped = self._on_step is not None and self._on_step(state)
            if self.is_stopped or is_enough:
                raise StopIteration

        bounds = None
        if self._signed.size:
            bounds = np.full((len(first), 2), [-np.inf, np.inf])
            bounds[self._signed, 0] = 0.0
        left = self._last - state.iteration
        first_value, first_gradient = loss(first)
        is_enough = keep(first, first_value)
        if not is_enough and left > 0:
            minimize(
                loss,
                first.copy(),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=on_iteration,
                # The callback stops it; ftol only where rounding lets it get no further.
                options={"maxiter": left, "maxfun": 20 * left, "maxcor": self._memory, "ftol": 1e-14, "gtol": 0.0},
            )
        return is_enough

    def _suboptimality(self, w: Floats) -> float:
        """How far above its minimum the loss may be: ``- min_v g . (v - w) + l2/2 ||v - w||^2``, by convexity."""
        l2 = self._problem.l2
        step = project(w - self._gradient / l2, self._signed) - w
        return -float(self._gradient @ step + 0.5 * l2 * (step @ step))
