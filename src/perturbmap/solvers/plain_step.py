"""The paper's step: one length for all weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from perturbmap.potentials import Floats
from perturbmap.solvers.problem import Problem
from perturbmap.solvers.steps import Rule, Step
from perturbmap.support.checks import check_number

# The default first step of the paper's rule, over the curvature that the model tells of. Measured at 1, 3, 10, 30 and
# 100: on handwriting (20 passes) it ends at an objective of -13.4, -9.2, -6.2, -5.0 and -10.4, thrown off; on horses
# (weighted, 50 passes) at -.48, -.39, -.33, -.31 and -.30. Ten is a third of the best, a tenth of what is too much.
_OVER_CURVATURE = 10.0


@final
@dataclass(frozen=True)
class PlainRule(Rule):
    """``w + (gradient - l2 w) / (l2 (h + offset))``."""

    l2: float
    offset: float

    def shrink(self, h: int) -> float:
        return 1.0 - 1.0 / (h + self.offset)

    def change(self, w: Floats, gradient: Floats, h: int, memory: Floats) -> Floats:
        return np.asarray(gradient / (self.l2 * (h + self.offset)))


@final
class PlainStep(Step):
    """The paper's step number h: ``w <- w + step * gradient`` with ``step = 1 / (l2 (h + offset))``.

    first_step : the step at h = 1, which fixes ``offset = 1 / (l2 first_step) - 1``; at most 1 / l2. None takes
        10 / (`Model.squared_length`, ``||x||^2 + 1`` of a site on average, times the mean weight of an example)

    All weights get steps of the same length, which is right where they have the same scale; see `AdaptiveStep`.
    """

    def __init__(self, first_step: float | None = None) -> None:
        self.first_step = first_step

    def check(self) -> None:
        if self.first_step is not None:
            check_number("first_step", self.first_step)

    def rule(self, problem: Problem, n_iter: int, length: float = 0.0) -> PlainRule:
        step = self.first_step
        if step is None:
            data, t = problem.data, problem.targets
            weights = t.label_weights.sum(axis=1) * data.layout.repeat(t.weights)
            curvature = float(weights.sum()) / len(data) * problem.model.squared_length(data, problem.n_labels)
            step = _OVER_CURVATURE / max(1e-300, curvature)
        return PlainRule(problem.l2, 1.0 / (problem.l2 * min(step, 1.0 / problem.l2)) - 1.0)
