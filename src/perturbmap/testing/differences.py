"""Finite differences: derivatives along a direction, where a function has no kink."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from perturbmap.potentials import Floats, Moments, Potentials

# Long steps see the curvature or a kink nearby, short ones rounding; a right derivative agrees with one of them.
_STEPS = (1e-4, 1e-5, 1e-6, 1e-7)
_TOLERANCE = 1e-5


def nearest_slope(value: Callable[[float], float], expected: float) -> float:
    """The central difference quotient of ``value(t)`` at 0 that is nearest to the expected derivative."""
    quotients = [(value(h) - value(-h)) / (2 * h) for h in _STEPS]
    return min(quotients, key=lambda quotient: abs(quotient - expected))


def is_slope(quotient: float, expected: float, scale: float) -> bool:
    """Whether a difference quotient of numbers of about this scale is the expected derivative."""
    return abs(quotient - expected) <= _TOLERANCE * max(1.0, abs(expected), scale)


def inner(moments: Moments, unary: Floats, pairwise: Floats | None) -> float:
    """The inner product ``sum(moments * potentials)``, over unary potentials and tables."""
    tables = 0.0 if moments.pairwise is None or pairwise is None else float((moments.pairwise * pairwise).sum())
    return float((moments.unary * unary).sum()) + tables


def directions(f: Potentials, rng: np.random.Generator) -> Iterator[tuple[str, Floats, Floats | None]]:
    """Random changes of unary potentials, and of tables, by name.

    Tables are scaled, and shifted by functions of one label: what was attractive stays so.
    """
    unary = rng.normal(size=f.unary.shape)
    yield "unary", unary, None
    if f.pairwise is None or f.pairwise.size == 0:
        return
    lead = f.pairwise.shape[:-2]
    rows, columns = rng.normal(size=(*lead, f.n_labels, 1)), rng.normal(size=(*lead, 1, f.n_labels))
    yield "pairwise", np.zeros_like(unary), rng.normal(size=(*lead, 1, 1)) * f.pairwise + rows + columns


def moved(f: Potentials, t: float, unary: Floats, pairwise: Floats | None) -> Potentials:
    """Potentials t along a direction."""
    tables = f.pairwise if f.pairwise is None or pairwise is None else f.pairwise + t * pairwise
    return Potentials.on(f.layout, f.unary + t * unary, tables)
