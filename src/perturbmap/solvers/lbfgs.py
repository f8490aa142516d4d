"""L-BFGS on all examples at once: to a certificate, or under a growing number of draws of the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.solvers.base import Solver, warn_of_gap
from perturbmap.solvers.climb import REPORT, Climb, LBFGSState
from perturbmap.solvers.everything import Everything
from perturbmap.solvers.problem import Problem
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_count, check_number


@final
class LBFGS(Solver[LBFGSState]):
    """SciPy's L-BFGS-B, with bounds where the model has them; or L-BFGS under an L1 penalty.

    Each iteration looks at all examples: it suits exact objectives, and objectives under noise with few examples.

    tolerance : stops when the objective is within this part of its maximum. By default 0.001, and 0.005 under noise.
    max_iter : iterations at most
    memory : past gradients from which the curvature is estimated
    n_draws, max_draws : draws of each example's noise, at first and at most; more are more accurate, and take longer
    l1 : above 0, ``l1 ||w||_1`` is a penalty beside that of ``l2``: weights that gain little become zero, and the
        model's file becomes smaller. (crfsuite's ``c1``, divided by the number of examples.)

    An exact objective ends with a certificate. The penalty makes the problem strongly concave, so that the gradient g
    at w bounds how far the objective is from its maximum: for weights without bounds, ``||g||^2 / (2 l2)``. (Where
    the objective is not concave in w, as with `ExactMarginalLogLikelihood`, partly known labels or a model that is
    not linear, this is only a rule to stop.)

    An objective under noise is maximised for a fixed set of draws, until it rises by less than half of ``tolerance``
    in ten iterations. Then the draws are doubled, and it goes on from there: until that has changed the objective by
    less than ``tolerance`` under fresh draws, which are never learned from, or there are ``max_draws``. What fits the
    draws and not the examples shrinks as one over their number: doubling gains about as much as is left to gain,
    which is the ``gap`` of ``history_``.

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
        *,
        l1: float = 0.0,
    ) -> None:
        self.tolerance = tolerance
        self.max_iter = max_iter
        self.memory = memory
        self.n_draws = n_draws
        self.max_draws = max_draws
        self.l1 = l1

    def check(self, problem: Problem) -> None:
        if self.tolerance is not None:
            check_number("tolerance", self.tolerance, 0, 1)
        check_count("max_iter", self.max_iter)
        check_count("memory", self.memory)
        check_count("n_draws", self.n_draws)
        if check_count("max_draws", self.max_draws) < self.n_draws:
            raise ValueError(f"max_draws must be at least n_draws, {self.n_draws}, but is {self.max_draws}.")
        check_number("l1", self.l1, or_equal=True)
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
        return state.iteration % REPORT == 0

    def start(self, problem: Problem, w: Floats | None = None) -> LBFGSState:
        """See `Solver.start`; at zero by default."""
        if w is None:
            zeros = partial(np.zeros, problem.n_weights)  # which are many, and soon forgotten
            return LBFGSState(zeros, zeros, n_draws=self.n_draws)
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
            climb = Climb(problem, everything, state, on_step, last, self.memory, tolerance, self.l1)
            is_done = climb.under_more_and_more_noise(self.max_draws) if is_perturbed else climb.to_certificate()
        state.w = state.average = state.w  # in full: what the climb has kept is given back
        if not is_done and not climb.is_stopped:
            what = f"LBFGS ended after {state.iteration} iterations"
            warn_of_gap(what, state.gap / max(1e-300, abs(state.objective)), tolerance)
        return state
