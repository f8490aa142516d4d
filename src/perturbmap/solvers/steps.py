"""How a stochastic gradient becomes a step: as in the paper, or by a step of its own for each weight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from perturbmap.data.sparse_rows import CompressedRows
from perturbmap.potentials import Floats
from perturbmap.solvers.averaging import Averaging, PolynomialAveraging
from perturbmap.solvers.problem import Problem
from perturbmap.support.checks import check_number
from perturbmap.support.parts import Part


class Rule(ABC):
    """A `Step` for one problem: a few numbers, which travel to the workers of a fit."""

    #: How many numbers the rule remembers of each weight from step to step.
    n_memory: int = 0

    def memory(self, n_weights: int, h: int) -> Floats:
        """What it remembers at first, ``(n_memory, n_weights)``, if that is after step h."""
        return np.zeros((self.n_memory, n_weights))

    def shrink(self, h: int) -> float:
        """By how much step h shrinks all weights before it changes some; 1 where changes have the penalty in them."""
        return 1.0

    @abstractmethod
    def change(self, w: Floats, gradient: Floats, h: int, memory: Floats) -> Floats:
        """How step h = 1, 2, ... changes weights that its examples have; the gradient is without the penalty.

        ``memory``, that of these weights, is changed in place.
        """


class Step(Part):
    """A way to make steps of gradients, of the objective with its penalty."""

    def check(self) -> None:
        """Raises ValueError where a parameter makes no sense."""

    @abstractmethod
    def rule(self, problem: Problem, n_iter: int) -> Rule:
        """The rule for a problem that is to be solved in so many steps."""

    @property
    def averaging(self) -> Averaging:
        """How the iterates are averaged, unless the user chooses: later ones weigh more."""
        return PolynomialAveraging()


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
    """The paper's: ``w <- w + step * gradient`` with ``step = 1 / (l2 (h + offset))``.

    first_step : the step at h = 1, which fixes ``offset = 1 / (l2 first_step) - 1``; at most 1 / l2. None takes
        10 / (`Model.squared_length`, ``||x||^2 + 1`` of a site on average, times the mean weight of an example)

    One length for all weights: it is right where they have one scale.
    """

    def __init__(self, first_step: float | None = None) -> None:
        self.first_step = first_step

    def check(self) -> None:
        if self.first_step is not None:
            check_number("first_step", self.first_step)

    def rule(self, problem: Problem, n_iter: int) -> PlainRule:
        step = self.first_step
        if step is None:
            data, t = problem.data, problem.targets
            weights = t.label_weights.sum(axis=1) * data.layout.repeat(t.weights)
            curvature = float(weights.sum()) / len(data) * problem.model.squared_length(data, problem.n_labels)
            step = _OVER_CURVATURE / max(1e-300, curvature)
        return PlainRule(problem.l2, 1.0 / (problem.l2 * min(step, 1.0 / problem.l2)) - 1.0)


# How far the first steps move the score of a site, at most and on average. Measured at .75, 1.5 and 3, the objective
# ends at -3.18, -3.17 and -3.21 on handwriting (60 passes; 20: -3.47, -3.33, -3.37), at -.2370, -.2390 and -.2402 on
# horses (weighted, 54 passes in batches of 4; of 16: -.2438, -.2397, -.2417).
_FIRST_MOVE = 1.5
# The means of gradients and of their squares forget at these rates (Kingma and Ba 2015).
_FORGET, _FORGET_SQUARES = 0.1, 0.001
# A weight whose gradient is always zero stays where it is.
_TINY = 1e-12


@final
@dataclass(frozen=True)
class AdaptiveRule(Rule):
    """Adam, with steps that shorten to nothing (see `AdaptiveStep`)."""

    first_step: float
    n_iter: int
    l2: float
    is_sparse: bool

    @property
    def n_memory(self) -> int:  # type: ignore[override]  # not the same for all data
        """Means of gradients and squares; of sparse features also in how many steps they were, and when last."""
        return 4 if self.is_sparse else 2

    def memory(self, n_weights: int, h: int) -> Floats:
        """See `Rule.memory`: no feature was there before."""
        memory = np.zeros((self.n_memory, n_weights))
        if self.is_sparse and h:
            memory[3] = h
        return memory

    def change(self, w: Floats, gradient: Floats, h: int, memory: Floats) -> Floats:
        mean, square = memory[:2]
        n: int | Floats = h
        if self.is_sparse:
            count, last = memory[2:]
            gradient = gradient - self.l2 * (h - last) * w  # what the penalty asked for in the meantime
            count += 1.0
            last[:] = h
            n = count
        else:
            gradient = gradient - self.l2 * w
        mean += _FORGET * (gradient - mean)
        square += _FORGET_SQUARES * (gradient * gradient - square)
        # Both means begin at zero; what that takes away is given back.
        length = self.first_step * self._schedule(h) / (1.0 - (1.0 - _FORGET) ** n)
        scale = np.sqrt(square / (1.0 - (1.0 - _FORGET_SQUARES) ** n))
        scale += _TINY
        return np.asarray(length * (mean / scale))

    def _schedule(self, h: int) -> float:
        """Down to nothing at the last step, in a straight line: else the steps would not come to rest."""
        return max(1.0 - h / (self.n_iter + 1), 1.0 / self.n_iter)


@final
class AdaptiveStep(Step):
    """A step of its own for each weight: Adam (Kingma and Ba 2015), with steps that shorten to nothing.

    ``w_j <- w_j + step * m_j / sqrt(s_j)``, where m and s are running means of the gradient and of its square, and
    ``step = first_step * (1 - h / n_iter)``.

    first_step : how far a weight moves at first. None takes 1.5 / (`Model.absolute_length`, ``||x||_1 + 1`` of a site
        on average), so that the score of a site moves by 1.5 at most: neither the scale of features nor that of the
        loss matters.

    Weights of rare and of common features, of sites and of edges, come to their values in the same number of steps.

    Of sparse features, a step changes the weights of those that its examples have. The others wait: what the penalty
    asks of a weight meanwhile is added to its gradient when its feature is there again.
    """

    def __init__(self, first_step: float | None = None) -> None:
        self.first_step = first_step

    def check(self) -> None:
        if self.first_step is not None:
            check_number("first_step", self.first_step)

    @property
    def averaging(self) -> Averaging:
        """About the last hundredth of the iterates, since they come to rest."""
        return PolynomialAveraging(100)

    def rule(self, problem: Problem, n_iter: int) -> AdaptiveRule:
        first = self.first_step
        if first is None:
            first = _FIRST_MOVE / max(1e-300, problem.model.absolute_length(problem.data, problem.n_labels))
        is_sparse = problem.model.is_by_feature and isinstance(problem.data.features, CompressedRows)
        return AdaptiveRule(first, n_iter, problem.l2, is_sparse)
