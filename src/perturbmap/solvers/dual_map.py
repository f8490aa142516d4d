"""The linear map of the structured SVM's dual: from alpha to A alpha, b . alpha and w (see `bcfw`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perturbmap.models.base import Pullback
from perturbmap.potentials import Floats, Potentials
from perturbmap.solvers.dual_state import BCFWState, side_by_side
from perturbmap.solvers.iterate import Positions
from perturbmap.solvers.pieces import Piece
from perturbmap.solvers.problem import Problem

# Examples whose potentials are in memory at a time, and whose labellings lie side by side: the one with the most
# labellings lets the others look at stand-ins.
_CHUNK = 64


def apply_alpha(problem: Problem, state: BCFWState) -> None:
    """A alpha, b . alpha and w, from alpha itself: no rounding is carried from step to step."""
    targets, layout = problem.targets, problem.data.layout
    total, state.b_alpha = np.zeros(len(state.w)), 0.0
    for first, g, truths, pullback, at in augmented_chunks(problem, np.zeros(len(state.w))):
        last = first + len(g)
        scales = targets.weights[first:last] / len(layout)
        labels, alpha = side_by_side(state.blocks[first:last], g.layout)
        # At w = 0 the scores are the losses, and whatever the structure adds of its own.
        losses = problem.structure.evaluate(g, labels) - truths
        state.b_alpha += float((alpha * losses).sum(axis=0) @ scales)
        truth = g.indicators(targets.labels[layout.sites(first, last)], scales)
        total[at] += pullback(truth - g.indicators(labels, alpha * scales))
    state.a_alpha = total / problem.l2
    state.w = problem.project(state.a_alpha).copy()  # steps change both in place


def augmented_chunks(problem: Problem, w: Floats) -> Iterator[tuple[int, Potentials, Floats, Pullback, Positions]]:
    """Chunk by chunk: the first example, the loss-augmented potentials, the scores of the truth, the pullback.

    The last are the positions in w of the weights that the pullback is for.
    """
    for first in range(0, len(problem.data), _CHUNK):
        part = Piece.of(problem, np.arange(first, min(first + _CHUNK, len(problem.data))))
        f, pullback = part.apply(w[part.at])
        targets = part.problem.targets
        augmented = problem.objective.augmented(f, targets.label_weights)
        yield first, augmented, problem.structure.evaluate(f, targets.labels), pullback, part.at
