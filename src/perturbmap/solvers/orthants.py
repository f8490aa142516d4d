"""L-BFGS under an L1 penalty: one orthant at a time, in which the penalty is linear."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

import numpy as np

from perturbmap.potentials import Floats, Mask

# How much of the decrease that the slope promises a step must bring, and how often it is halved until it does.
_ENOUGH, _MOST_HALVINGS = 1e-4, 40


def shrunk(w: Floats, by: float, is_nonnegative: Mask | None = None) -> Floats:
    """The minimiser of ``1/2 ||v - w||^2 + by ||v||_1``: every weight comes nearer to zero, and none gets past it."""
    v = np.sign(w) * np.maximum(np.abs(w) - by, 0.0)
    if is_nonnegative is not None:
        v[is_nonnegative] = np.maximum(v[is_nonnegative], 0.0)
    return v


def orthant_wise(
    loss: Callable[[Floats], tuple[float, Floats]],
    w: Floats,
    l1: float,
    *,
    memory: int,
    max_iter: int,
    on_iteration: Callable[[Floats, float], bool],
    is_nonnegative: Mask | None = None,
) -> None:
    """Minimises ``loss(w)``, which has ``l1 ||w||_1`` in its value and not in its gradient (Andrew and Gao, 2007).

    A step stays in one orthant: weights that would change their sign become zero, and those at zero leave it to the
    side to which the loss falls. The curvature is that of the gradient. Each weight vector that is better than the
    one before goes to ``on_iteration``, which says whether it is enough; it ends too where no step is better.
    """
    value, gradient = loss(w)
    curvature = _Curvature(memory)
    for _ in range(max_iter):
        slope = _slope(w, gradient, l1, is_nonnegative)
        length = float(np.sqrt(slope @ slope))
        if length == 0.0:
            return
        direction = -curvature.solve(slope)
        direction[direction * slope >= 0] = 0.0
        orthant = np.where(w != 0, np.sign(w), -np.sign(slope))
        step = 1.0 if curvature.is_known else 1.0 / length
        for _ in range(_MOST_HALVINGS):
            moved = w + step * direction
            moved[moved * orthant < 0] = 0.0
            new_value, new_gradient = loss(moved)
            if new_value <= value + _ENOUGH * float(slope @ (moved - w)):
                break
            step *= 0.5
        else:
            return  # rounding lets it get no further
        curvature.add(moved - w, new_gradient - gradient)
        w, value, gradient = moved, new_value, new_gradient
        if on_iteration(w, value):
            return


def _slope(w: Floats, gradient: Floats, l1: float, is_nonnegative: Mask | None) -> Floats:
    """The gradient with the penalty; at zero, that of the side to which the loss falls, if it falls to one."""
    slope = np.where(w != 0, gradient + l1 * np.sign(w), np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0))
    if is_nonnegative is not None:
        at_bound = is_nonnegative & (w == 0)
        slope[at_bound] = np.minimum(slope[at_bound], 0.0)
    return slope


@final
class _Curvature:
    """What the last steps and the changes of the gradient tell of the inverse of the Hessian."""

    def __init__(self, memory: int) -> None:
        self._pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=memory)

    @property
    def is_known(self) -> bool:
        """Whether there is any pair."""
        return bool(self._pairs)

    def add(self, step: Floats, change: Floats) -> None:
        """A step and how it changed the gradient; forgotten where that says nothing."""
        product = float(step @ change)
        if product > 1e-10 * float(np.sqrt((step @ step) * (change @ change))):
            self._pairs.append((step, change, product))

    def solve(self, slope: Floats) -> Floats:
        """The inverse of the Hessian times a slope: the two loops of L-BFGS (Nocedal, 1980)."""
        q, shares = slope.copy(), []
        for step, change, product in reversed(self._pairs):
            shares.append(float(step @ q) / product)
            q -= shares[-1] * change
        if self._pairs:
            _, change, product = self._pairs[-1]
            q *= product / float(change @ change)
        for (step, change, product), share in zip(self._pairs, reversed(shares), strict=True):
            q += (share - float(change @ q) / product) * step
        return q
