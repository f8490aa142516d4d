"""Whether a fit has come to rest: if going on the way of its last quarter would gain nothing."""

from __future__ import annotations

import warnings
from typing import final

import numpy as np

from perturbmap.potentials import Floats
from perturbmap.solvers import Problem, State
from perturbmap.solvers.problem import FRESH

# A gain of which a user wants to know, as a part of the objective. On handwriting, 13 of 16 fits by plain steps that
# ended more than 10 % below the best known objective would have gained 1 to 8 %; all fits within 5 % of it, less than
# 0.2 %. (Steps that shorten to nothing come to rest even where more of them would find better: of five such fits by
# adaptive steps, two are told.)
_WORTH_KNOWING = 0.01
# How far it would go on, as a part of that way: far, where steps are much too short. And the examples that are looked
# at.
_FURTHER, _N_EXAMPLES = (0.25, 1.0, 4.0, 16.0), 64


@final
class AtRest:
    """Watches the steps of one solve; `warn` at its end."""

    def __init__(self, problem: Problem, n_iter: int) -> None:
        self._problem, self._mark = problem, (3 * n_iter) // 4
        self._before: Floats | None = None

    def look(self, state: State) -> None:
        """Keeps the weights of three quarters of all steps; a fit that is taken up later, its first."""
        if self._before is None and state.iteration >= self._mark:
            self._before = state.average.copy()

    def warn(self, state: State) -> None:
        """Warns where the objective, under noise that was not learned from, would go on rising."""
        gain = self.gain(state.average)
        if gain > _WORTH_KNOWING:
            from sklearn.exceptions import ConvergenceWarning  # takes long to load

            warnings.warn(
                f"the fit ended while its objective still rose: going on as in its last quarter would gain {gain:.1%}"
                " of it. Allow more steps, as DoubleSGD(n_passes=200) does, or longer ones: step=AdaptiveStep(0.1).",
                ConvergenceWarning,
                stacklevel=2,
            )

    def gain(self, w: Floats) -> float:
        """What the objective of some examples would gain, as a part of it."""
        if self._before is None:
            return 0.0
        problem, n = self._problem, len(self._problem.data)
        some = np.unique(np.linspace(0, n - 1, min(n, _N_EXAMPLES)).astype(np.intp))
        further = (problem.project(w + part * (w - self._before)) for part in _FURTHER)
        here, *there = (problem.value_and_grad(v, some, FRESH)[0] - problem.penalty(v) for v in (w, *further))
        return float((max(there) - here) / max(1e-300, abs(here)))
