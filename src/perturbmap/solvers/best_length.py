"""How long first steps should be: a few of them are taken with each of several lengths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perturbmap.solvers.iterate import Iterate
from perturbmap.solvers.passes import Passes
from perturbmap.solvers.pieces import Piece
from perturbmap.solvers.problem import FRESH, Problem
from perturbmap.solvers.steps import Rule, take_step

# Steps with each length, and in how many steps of a fit nothing is tried. With 16, graphs of many labels took lengths
# nine times too long.
_N_STEPS, _FEW = 32, 1600
# The examples of a step, and the steps whose examples, the next ones, are looked at afterwards.
_SIZE, _N_LOOKS = 16, 4
# Lengths are tried by factors of three, up to so many of them.
_FACTOR, _FURTHEST = 3.0, 5


def best_length(problem: Problem, guess: float, n_iter: int, rule: Callable[[float, int], Rule]) -> float:
    """The guess times a power of three, for a fit of ``n_iter`` steps: the guess itself if these are few.

    rule : from a length and a number of steps to the rule of these steps

    All begin at zero, with the same examples and noise, and are compared on the next examples and on noise of which
    no fit learns. If a longer one than the guess is best, the one before it is taken: a few steps get further by
    lengths that are too long for many.
    """
    if n_iter < _FEW:
        return guess

    def outcome(power: int) -> float:
        return _outcome(problem, rule(guess * _FACTOR**power, _N_STEPS))

    best, value = 0, outcome(0)
    for direction in (1, -1):
        while abs(best) < _FURTHEST and (other := outcome(best + direction)) > value:
            best, value = best + direction, other
        if best:
            break
    return guess * _FACTOR ** (best - 1 if best > 0 else best)


def _outcome(problem: Problem, rule: Rule) -> float:
    """The objective after a few steps by a rule."""
    passes, size = Passes(problem), min(_SIZE, len(problem.data))
    iterate, memory = Iterate.of(*np.zeros((2, problem.n_weights))), rule.memory(problem.n_weights, 0)
    for h in range(1, _N_STEPS + 1):
        take_step(problem, rule, iterate, memory, passes.batch(h, size), h, rate=1.0)
    values = []
    for h in range(_N_STEPS + 1, _N_STEPS + 1 + _N_LOOKS):
        batch = passes.batch(h, size)
        piece = Piece.of(problem, batch.indices, batch.weights)
        values.append(piece.value_and_grad(iterate.at(piece.at), draw=FRESH)[0])
    value = float(np.mean(values)) - 0.5 * problem.l2 * iterate.squared_norm
    return value if np.isfinite(value) else -np.inf
