"""Steps of their own for each weight: Adam, with steps that shorten, and a first length that is tried out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from perturbmap.data.sparse_rows import CompressedRows
from perturbmap.potentials import Floats
from perturbmap.solvers.best_length import best_length
from perturbmap.solvers.problem import Problem
from perturbmap.solvers.reflection import Reflection
from perturbmap.solvers.steps import Rule, Step
from perturbmap.support.checks import check_number

# How far the first steps move the score of a site, at most and on average: a guess, from which lengths are tried.
_FIRST_MOVE = 1.0
# More steps than this are shorter from the first, as one over the root of their number: on handwriting the best first
# lengths of 20, 60 and 240 passes (782, 2,348 and 9,390 steps) are about .24, .12 and .07.
_SHORTER_BEYOND = 1500
# The means of gradients and of their squares forget at these rates (Kingma and Ba 2015, who have 0.001 for squares:
# gradients of the first steps are large, and would keep later ones short).
_FORGET, _FORGET_SQUARES = 0.1, 0.01
# A weight whose gradient is always zero stays where it is.
_TINY = 1e-12


@final
@dataclass(frozen=True, eq=False)
class AdaptiveRule(Rule):
    """Adam, with steps that shorten to nothing, in the coordinates of a reflection (see `AdaptiveStep`)."""

    first_step: float
    n_iter: int
    l2: float
    is_sparse: bool
    reflection: Reflection | None = None

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
            if self.reflection is not None:
                gradient = self.reflection(gradient)
        mean += _FORGET * (gradient - mean)
        square += _FORGET_SQUARES * (gradient * gradient - square)
        # Both means begin at zero; what that takes away is given back.
        begun = (1.0 - (1.0 - _FORGET_SQUARES) ** n) ** 0.5
        length = self.first_step * self._schedule(h) / (1.0 - (1.0 - _FORGET) ** n) * begun
        change = np.sqrt(square)
        change += _TINY * begun
        np.divide(mean, change, out=change)
        change *= length
        return change if self.reflection is None else self.reflection(change)

    def _schedule(self, h: int) -> float:
        """Down to nothing at the last step, in a straight line: else the steps would not come to rest."""
        return max(1.0 - h / (self.n_iter + 1), 1.0 / self.n_iter)


@final
class AdaptiveStep(Step):
    """A step of its own for each weight: Adam (Kingma and Ba 2015), with steps that shorten to nothing.

    ``w_j <- w_j + step * m_j / sqrt(s_j)``, where m and s are running means of the gradient and of its square, and
    ``step = first_step * (1 - h / n_iter)`` in step h of n_iter.

    first_step : how far a weight moves at first: less if the objective jumps, more if the fit is not done in time.
        None finds a length. It begins with 1 / (`Model.absolute_length`, ``||x||_1 + 1`` of a site on average), so
        that the score of a site moves by 1 at most, and tries that and lengths by factors of three around it for a
        few steps each, unless the fit has less than 1,600 steps (`best_length`). Fits of more than 1,500 steps take
        shorter ones. Neither the scale of features nor that of the loss matters.

    Weights of rare and of common features, of sites and of edges, come to their values in the same number of steps.

    With dense features, what all sites share is learned separately from what tells them apart: steps are taken in the
    coordinates of a `Reflection`, where the model tells which weights are those of features (`Model.site_weights`).

    With sparse features, a step changes the weights of the features that its examples have. The others wait: what the
    penalty asks of a weight meanwhile is added to its gradient when its feature is there again.
    """

    def __init__(self, first_step: float | None = None) -> None:
        self.first_step = first_step

    def check(self) -> None:
        if self.first_step is not None:
            check_number("first_step", self.first_step)

    def find_length(self, problem: Problem, n_iter: int) -> float:
        """The length that was given; else the best of those around a guess (`best_length`)."""
        if self.first_step is not None:
            return self.first_step
        guess = _FIRST_MOVE / max(1e-300, problem.model.absolute_length(problem.data, problem.n_labels))
        rule = self._rule(problem)
        return best_length(problem, guess, n_iter, lambda length, n: replace(rule, first_step=length, n_iter=n))

    def rule(self, problem: Problem, n_iter: int, length: float = 0.0) -> AdaptiveRule:
        first = self.first_step
        if first is None:
            found = length or self.find_length(problem, 0)
            first = found * min(1.0, math.sqrt(_SHORTER_BEYOND / n_iter))
        return replace(self._rule(problem), first_step=first, n_iter=n_iter)

    def _rule(self, problem: Problem) -> AdaptiveRule:
        """The rule for a problem, of whose steps neither number nor length are known yet."""
        is_sparse = problem.model.is_by_feature and isinstance(problem.data.features, CompressedRows)
        # A step that looks at some of the weights cannot move all of them along what they share.
        reflection = Reflection.of(problem) if not is_sparse and problem.learned is None else None
        return AdaptiveRule(1.0, 1, problem.l2, is_sparse, reflection)
