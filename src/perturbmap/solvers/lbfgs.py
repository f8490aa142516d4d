"""L-BFGS on all examples at once, for objectives that need no sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from perturbmap.potentials import Floats
from perturbmap.solvers.base import Solver, State, warn_of_gap
from perturbmap.solvers.problem import Problem
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_count, check_number
from perturbmap.support.threads import threads

# Examples in a chunk: its arrays stay in a thread's cache, and each has enough to do.
_CHUNK = 512


@dataclass(eq=False)
class LBFGSState(State):
    """The weights, their objective with its penalty, and how far below the maximum it may lie."""

    objective: float = np.nan
    gap: float = np.nan


@final
class LBFGS(Solver[LBFGSState]):
    """SciPy's L-BFGS-B, with bounds where the model has them.

    tolerance : stops when the objective is certainly within this part of its maximum. The penalty makes the problem
        strongly concave, so that the gradient g at w bounds what is left: for weights without bounds,
        ``||g||^2 / (2 l2)``. (Where the objective is not concave in w, as `ExactMarginalLogLikelihood`, the
        likelihood of partly known labels and models that are not linear are not, it is a rule to stop, no more.)
    max_iter : iterations at most
    memory : past gradients from which the curvature is estimated

    A run that is taken up again begins at its last weights with an empty memory: it ends at the same maximum, by
    other steps.

    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(2, size=n) for n in (5, 3, 8, 6)]
    >>> X = [np.eye(2)[labels] + rng.normal(0, 0.3, (len(labels), 2)) for labels in y]
    >>> crf = pm.StructuredPredictor(objective=pm.ExactLogLikelihood(), l2=0.1, solver=pm.LBFGS(1e-4)).fit(X, y)
    >>> sorted(crf.history_[-1])
    ['gap', 'iteration', 'n_iter', 'objective', 'passes', 'phase', 'seconds']
    """

    def __init__(self, tolerance: float = 1e-3, max_iter: int = 1000, memory: int = 10) -> None:
        self.tolerance = tolerance
        self.max_iter = max_iter
        self.memory = memory

    def check(self, problem: Problem) -> None:
        check_number("tolerance", self.tolerance, 0, 1)
        check_count("max_iter", self.max_iter)
        check_count("memory", self.memory)
        objective = problem.objective
        if objective.is_perturbed or not objective.is_smooth:
            better = "BCFW()" if objective.is_hinge else "DoubleSGD()"
            raise ValueError(
                f"LBFGS needs an objective with an exact gradient everywhere, such as ExactLogLikelihood(); "
                f"{type(objective).__name__} is solved by {better}."
            )

    def n_iter(self, n_examples: int) -> int:
        """The number of iterations, at most."""
        return self.max_iter

    def is_due(self, state: LBFGSState, n_examples: int) -> bool:
        """Whether it is time for a report: after every ten iterations."""
        return state.iteration % 10 == 0

    def start(self, problem: Problem, w: Floats | None = None) -> LBFGSState:
        """See `Solver.start`; at zero by default."""
        w = np.zeros(problem.n_weights) if w is None else w
        return LBFGSState(w.copy(), w.copy())

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> LBFGSState:
        return LBFGSState(arrays["w"], arrays["average"], iteration)

    def progress(self, problem: Problem, state: LBFGSState) -> dict[str, float]:
        """The objective, and how far below its maximum it may lie."""
        return {"objective": state.objective, "gap": state.gap}

    def run(
        self,
        problem: Problem,
        state: LBFGSState,
        on_step: Callable[[LBFGSState], bool] | None = None,
        n_iter: int | None = None,
    ) -> LBFGSState:
        everything, stopped, done = _Everything(problem), False, False
        gradient = np.zeros_like(state.w)  # at the point that was evaluated last, which is the one accepted

        def loss(w: Floats) -> tuple[float, Floats]:
            value, grad = everything.value_and_grad(w)
            gradient[:] = problem.l2 * w - grad
            return 0.5 * problem.l2 * float(w @ w) - value, gradient.copy()

        def look(w: Floats, value: float) -> bool:
            state.w, state.average, state.objective = w, w, -value
            state.gap = _suboptimality(problem, w, gradient)
            return state.gap <= self.tolerance * abs(state.objective)

        def on_iteration(intermediate_result: Any) -> None:
            nonlocal stopped, done
            state.iteration += 1
            done = look(np.array(intermediate_result.x), float(intermediate_result.fun))
            stopped = on_step is not None and on_step(state)
            if stopped or done:
                raise StopIteration

        lower = np.full(len(state.w), -np.inf)
        lower[problem.nonnegative] = 0.0
        left = (self.max_iter if n_iter is None else n_iter) - state.iteration
        with one_blas_thread(), everything:
            done = look(state.w, loss(state.w)[0])
            if not done and left > 0:
                minimize(
                    loss,
                    state.w,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=np.stack([lower, np.full(len(lower), np.inf)], axis=1),
                    callback=on_iteration,
                    # The callback stops it; ftol only where rounding lets it get no further.
                    options={"maxiter": left, "maxfun": 20 * left, "maxcor": self.memory, "ftol": 1e-14, "gtol": 0.0},
                )
        if not stopped and not done:
            what = f"LBFGS ended after {state.iteration} iterations"
            warn_of_gap(what, state.gap / max(1e-300, abs(state.objective)), self.tolerance)
        return state


class _Everything:
    """The whole problem, its examples shared out to threads in chunks.

    Everything of a chunk - products with the features, sums over labellings - runs on one thread, in arrays that stay
    in its cache. Chunks are added up in order: the number of threads changes nothing.
    """

    def __init__(self, problem: Problem) -> None:
        n, structure = len(problem.data), problem.structure
        n_workers = threads(structure.n_threads) if structure.is_thread_safe else 1
        if structure.is_thread_safe:
            problem = replace(problem, structure=structure.with_threads(1))
        self._chunks = [problem.part(np.arange(a, min(a + _CHUNK, n))) for a in range(0, n, _CHUNK)]
        self._pool = ThreadPoolExecutor(min(n_workers, len(self._chunks)))

    def __enter__(self) -> None:
        """Starts the threads, which then wait for work."""

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def value_and_grad(self, w: Floats) -> tuple[float, Floats]:
        """What `Problem.value_and_grad` gives for all examples."""
        value, gradient, n = 0.0, np.zeros(len(w)), 0
        parts = self._pool.map(lambda chunk: chunk.value_and_grad(w), self._chunks)
        for chunk, (part, part_gradient) in zip(self._chunks, parts, strict=True):
            value += part * len(chunk.data)
            gradient += part_gradient * len(chunk.data)
            n += len(chunk.data)
        return value / n, gradient / n


def _suboptimality(problem: Problem, w: Floats, gradient: Floats) -> float:
    """How far the loss at w may lie above its minimum: ``- min_v g . (v - w) + l2/2 ||v - w||^2``, by convexity."""
    step = problem.project(w - gradient / problem.l2) - w
    return -float(gradient @ step + 0.5 * problem.l2 * (step @ step))
