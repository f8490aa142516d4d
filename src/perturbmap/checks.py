"""Checks of arguments: errors that name the argument, what came, and what is expected."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np


def check_count(name: str, n: Any) -> int:
    """A positive integer."""
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
        raise ValueError(f"{name} must be an integer of at least 1, but is {n!r}.")
    return int(n)


def check_number(name: str, x: Any, above: float = 0.0, below: float = np.inf, *, or_equal: bool = False) -> float:
    """A real number in the open interval; with ``or_equal``, the lower end too."""
    is_number = isinstance(x, numbers.Real) and not isinstance(x, bool)
    if not is_number or not (above < float(x) < below or (or_equal and float(x) == above)):
        expected = f"{'at least' if or_equal else 'above'} {above:g}"
        expected += f" and below {below:g}" if np.isfinite(below) else " and finite"
        raise ValueError(f"{name} must be a number {expected}, but is {x!r}.")
    return float(x)
