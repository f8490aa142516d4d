"""A step of block-coordinate Frank-Wolfe: the alphas of one example, or of a few, move along one line (see `bcfw`).

The directions of several examples are walked together, by one exact line search: each gains a little less than by a
step of its own, for a small part of its time, since features, maxima and moments are those of a batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Labels, Layout
from perturbmap.solvers.dual_state import BCFWState, side_by_side
from perturbmap.solvers.line_search import line_search
from perturbmap.solvers.pieces import Piece
from perturbmap.solvers.problem import Problem

#: A cached labelling is good enough if it gains this part of what the example's last maximiser did,
_CACHE_OF_LAST = 0.25
#: and this part of the mean over examples (both as in Osokin et al. 2016).
_CACHE_OF_MEAN = 0.01
#: Labellings without weight that the cache keeps for each example.
MAX_IDLE = 20


def step(
    problem: Problem, state: BCFWState, indices: NDArray[np.intp], piece: Piece, *, is_pairwise: bool, is_cached: bool
) -> Floats:
    """Moves the alphas of some examples towards their maximisers; returns how the weights of ``piece`` change."""
    l2, targets = problem.l2, piece.problem.targets
    scales = targets.weights / len(problem.data)
    at, w = piece.at, state.w[piece.at].copy()
    f, pullback = piece.apply(w)
    g = problem.objective.augmented(f, targets.label_weights)

    blocks, each = [state.blocks[i] for i in indices], np.arange(len(indices))
    labels, alpha = side_by_side(blocks, g.layout)
    scores = problem.structure.evaluate(g, labels)
    means = (alpha * scores).sum(axis=0)
    to = scores.argmax(axis=0)
    known = scales * (scores[to, each] - means)
    enough = (
        np.maximum(_CACHE_OF_LAST * state.gaps[indices], _CACHE_OF_MEAN * state.gaps.mean()) if is_cached else 0.0
    )
    if not is_cached or (known < enough).any():
        y, best = problem.structure.maximise(g)
        state.oracle_calls += len(indices)
        to = _find(labels, y, g.layout)
        labels, scores = np.concatenate([labels, y[None]]), np.concatenate([scores, best[None]])
        alpha = np.concatenate([alpha, np.zeros((1, len(indices)))])
    state.gaps[indices] = scales * np.maximum(0.0, scores[to, each] - means)

    direction = np.zeros_like(alpha) if is_pairwise else -alpha
    mass: Floats | float = 1.0
    if is_pairwise:
        worst = np.where(alpha > 0, scores, np.inf).argmin(axis=0)
        mass = alpha[worst, each]
        direction[worst, each] -= mass
    direction[to, each] += mass
    gains = scales * (direction * scores).sum(axis=0)
    direction[:, gains <= 0] = 0.0
    gain = float(gains[gains > 0].sum())
    if gain <= 0:
        return np.zeros_like(w)
    d = pullback(g.indicators(labels, direction * scales)) * (-1.0 / l2)
    loss = gain + l2 * float(w @ d)
    signed = None if problem.is_nonnegative is None else problem.is_nonnegative[at]
    before = state.a_alpha[at]
    length = line_search(before, d, loss, gain, l2, signed, 1.0)

    alpha += length * direction
    kept, ends = alpha != 0, g.layout.site_offsets.tolist()
    for n, block in enumerate(blocks):
        if is_cached:
            kept[: len(block.alpha), n] = True
        block.labels, block.alpha = labels[:, ends[n] : ends[n + 1]][kept[:, n]], alpha[kept[:, n], n]
        if is_cached:
            block.forget(MAX_IDLE)
    after = before + length * d
    state.a_alpha[at] = after
    state.b_alpha += length * loss
    projected = after if signed is None else np.where(signed, np.maximum(0.0, after), after)
    state.w[at] = projected
    return np.asarray(projected - w)


def _find(labels: Labels, y: Labels, layout: Layout) -> NDArray[np.intp]:
    """For each example, the first of the labellings that its part of y is; their number where it is none of them."""
    is_same = labels == y
    is_same = is_same.all(axis=1, keepdims=True) if len(layout) == 1 else layout.sums(~is_same.T).T == 0
    return np.where(is_same.any(axis=0), is_same.argmax(axis=0), len(labels))
