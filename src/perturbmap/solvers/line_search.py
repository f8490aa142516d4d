"""The exact line search of the structured SVM's dual, with weights that must not be negative."""

from __future__ import annotations

import numpy as np

from perturbmap.potentials import Floats, Mask


def line_search(
    v: Floats, d: Floats, loss: float, gain: float, l2: float, nonnegative: Mask | None, longest: float
) -> float:
    """Where ``-l2/2 ||project(v + t d)||^2 + t loss`` is greatest over 0 <= t <= longest; its slope at 0 is ``gain``.

    The slope is ``loss - l2 project(v + t d) . d``: linear in t between the t at which a weight changes its sign.
    """
    signed_d = np.empty(0) if nonnegative is None else d[nonnegative]
    if not signed_d.any():
        curvature = l2 * float(d @ d)
        return longest if gain >= longest * curvature else gain / curvature
    signed_v = v[nonnegative]
    with np.errstate(divide="ignore", invalid="ignore"):
        knots = -signed_v / signed_d
    knots = np.concatenate([[0.0], np.sort(knots[(knots > 0) & (knots < longest)]), [longest]])
    free_slope = float(v @ d - signed_v @ signed_d) + knots * float(d @ d - signed_d @ signed_d)
    signed_slope = np.maximum(0.0, signed_v + knots[:, None] * signed_d) @ signed_d
    slopes = loss - l2 * (free_slope + signed_slope)
    past = np.flatnonzero(slopes <= 0)
    if not past.size:
        return longest
    j = max(1, int(past[0]))
    low, high = slopes[j - 1], slopes[j]
    return float(knots[j - 1] + (knots[j] - knots[j - 1]) * np.clip(low / (low - high), 0.0, 1.0))
