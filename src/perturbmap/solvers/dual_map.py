"""The linear map of the structured SVM's dual: from alpha to A alpha, b . alpha and w (see `bcfw`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perturbmap.models.base import Pullback
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.solvers.dual_state import BCFWState
from perturbmap.solvers.problem import Problem

# Examples whose potentials are in memory at a time.
_CHUNK = 512


def apply_alpha(problem: Problem, state: BCFWState) -> None:
    """A alpha, b . alpha and w, from alpha itself: no rounding is carried from step to step."""
    targets, layout = problem.targets, problem.data.layout
    total, state.b_alpha = np.zeros(len(state.w)), 0.0
    for first, g, truths, pullback in augmented_chunks(problem, np.zeros(len(state.w))):
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
        total += pullback(Moments(unary, pairwise))
    state.a_alpha = total / problem.l2
    state.w = problem.project(state.a_alpha)


def augmented_chunks(problem: Problem, w: Floats) -> Iterator[tuple[int, Potentials, Floats, Pullback]]:
    """Chunk by chunk: the first example, the loss-augmented potentials, the scores of the truth, the pullback."""
    data, targets = problem.data, problem.targets
    for first in range(0, len(data), _CHUNK):
        part = data.take(np.arange(first, min(first + _CHUNK, len(data))))
        sites = data.layout.sites(first, first + len(part))
        f, pullback = problem.model.apply(w, part, problem.n_labels)
        augmented = problem.objective.augmented(f, targets.label_weights[sites])
        yield first, augmented, problem.structure.evaluate(f, targets.labels[sites]), pullback
