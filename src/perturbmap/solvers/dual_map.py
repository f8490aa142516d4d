"""The linear map of the structured SVM's dual: from alpha to A alpha, b . alpha and w (see `bcfw`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perturbmap.models.base import Pullback
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.solvers.dual_state import BCFWState
from perturbmap.solvers.iterate import Positions
from perturbmap.solvers.pieces import Piece
from perturbmap.solvers.problem import Problem

# Examples whose potentials are in memory at a time.
_CHUNK = 512


def apply_alpha(problem: Problem, state: BCFWState) -> None:
    """A alpha, b . alpha and w, from alpha itself: no rounding is carried from step to step."""
    targets, layout = problem.targets, problem.data.layout
    total, state.b_alpha = np.zeros(len(state.w)), 0.0
    for first, g, truths, pullback, at in augmented_chunks(problem, np.zeros(len(state.w))):
        scales = targets.weights[first : first + len(g)] / len(layout)
        truth = g.indicators(targets.labels[layout.sites(first, first + len(g))], scales)
        unary, pairwise = truth.unary, truth.pairwise
        for i, scale in enumerate(scales):
            one, block = g[i], state.blocks[first + i]
            moments = one.indicators(block.labels, scale * block.alpha[:, None])
            # At w = 0 the scores are the losses, and whatever the structure adds of its own.
            losses = problem.structure.evaluate(one, block.labels)[:, 0] - truths[i]
            state.b_alpha += scale * float(block.alpha @ losses)
            unary[g.layout.sites(i)] -= moments.unary
            if pairwise is not None and moments.pairwise is not None:
                pairwise[... if g.is_shared else g.layout.edges_between(i)] -= moments.pairwise
        total[at] += pullback(Moments(unary, pairwise))
    state.a_alpha = total / problem.l2
    state.w = problem.project(state.a_alpha)


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
