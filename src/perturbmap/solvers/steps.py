"""How a stochastic gradient becomes a step."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from perturbmap.potentials import Floats
from perturbmap.solvers.averaging import Averaging, PolynomialAveraging
from perturbmap.solvers.iterate import Iterate
from perturbmap.solvers.passes import Batch
from perturbmap.solvers.pieces import Piece
from perturbmap.solvers.problem import Problem
from perturbmap.support.parts import Part


class Rule(ABC):
    """A `Step` for one problem: a few numbers, which travel to the workers of a fit."""

    #: How many numbers the rule remembers of each weight from step to step.
    n_memory: int = 0

    def memory(self, n_weights: int, h: int) -> Floats:
        """What the rule remembers at first, ``(n_memory, n_weights)``, where it begins after step h."""
        return np.zeros((self.n_memory, n_weights))

    def shrink(self, h: int) -> float:
        """The factor by which step h shrinks all weights before it changes some; 1 where changes have the penalty."""
        return 1.0

    @abstractmethod
    def change(self, w: Floats, gradient: Floats, h: int, memory: Floats) -> Floats:
        """How step h = 1, 2, ... changes weights that its examples have; the gradient is without the penalty.

        ``memory``, that of these weights, is changed in place.
        """


class Step(Part):
    """How a stochastic gradient becomes a step of the weights: `AdaptiveStep`, `PlainStep`, or one of your own.

    One of your own has `rule`, which makes a `Rule` for each problem.
    """

    def check(self) -> None:
        """Raises ValueError where a parameter makes no sense."""

    def find_length(self, problem: Problem, n_iter: int) -> float:
        """Finds a length for the first step, before ``n_iter`` steps are taken; 0 where there is nothing to find."""
        return 0.0

    @abstractmethod
    def rule(self, problem: Problem, n_iter: int, length: float = 0.0) -> Rule:
        """The rule for solving a problem in ``n_iter`` steps; ``length`` is what `find_length` found."""

    @property
    def averaging(self) -> Averaging:
        """How the iterates are averaged unless the user chooses: by default, later ones weigh more."""
        return PolynomialAveraging()


def take_step(
    problem: Problem, rule: Rule, iterate: Iterate, memory: Floats, batch: Batch, h: int, rate: float
) -> float:
    """Step h, by the gradient of some examples under fresh noise; returns the objective as it saw it before.

    It costs what these examples cost: of sparse features, only the weights of those that they have are looked at.
    """
    piece = Piece.of(problem, batch.indices, batch.weights)
    w, at = iterate.at(piece.at), piece.at
    value, gradient = piece.value_and_grad(w, draw=h)
    value -= 0.5 * problem.l2 * iterate.squared_norm
    remembered = memory[:, at]
    change = rule.change(w, gradient, h, remembered)
    memory[:, at] = remembered
    signed = None if problem.is_nonnegative is None else problem.is_nonnegative[at]
    iterate.step(at, change, shrink=rule.shrink(h), rate=rate, nonnegative=signed)
    return value
