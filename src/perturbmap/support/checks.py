"""Checks of arguments: errors that name the argument, what came, and what is expected."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap import _core

#: Sums and products of numbers up to this one stay finite.
LARGEST = 1e100
#: What the core looks at; a file may hold numbers in another order of bytes.
_NATIVE = (np.dtype(np.float64), np.dtype(np.float32))


def check_count(name: str, n: Any, at_most: int | None = None) -> int:
    """Returns ``n`` if it is a positive integer; else raises a ValueError that names the argument."""
    is_count = isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 1
    if not is_count or (at_most is not None and n > at_most):
        expected = "of at least 1" if at_most is None else f"from 1 to {at_most}"
        raise ValueError(f"{name} must be an integer {expected}, but is {n!r}.")
    return int(n)


def check_number(name: str, x: Any, above: float = 0.0, below: float = np.inf, *, or_equal: bool = False) -> float:
    """Returns ``x`` if it is a real number in the open interval; else raises a ValueError that names the argument.

    With ``or_equal``, the lower end belongs to the interval.
    """
    is_number = isinstance(x, numbers.Real) and not isinstance(x, bool)
    if not is_number or not (above < float(x) < below or (or_equal and float(x) == above)):
        expected = f"{'at least' if or_equal else 'above'} {above:g}"
        expected += f" and below {below:g}" if np.isfinite(below) else " and finite"
        raise ValueError(f"{name} must be a number {expected}, but is {x!r}.")
    return float(x)


def as_floats(name: str, values: ArrayLike, hint: str = "", *, may_forbid: bool = False) -> NDArray[np.float64]:
    """Values as contiguous float64, none beyond `LARGEST`; else raises a ValueError that names the argument.

    With ``may_forbid``, the last axis is that of labels, and -inf forbids one, as long as each site has another.
    """
    try:
        array = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a rectangular array of numbers ({error}). "
            "Ragged examples are built one by one and joined with Potentials.batch."
        ) from None
    if array.ndim == 1 and np.ndim(values) == 0:
        array = array.reshape(())
    if _core.are_at_most(array, LARGEST):
        return array
    if may_forbid and np.isneginf(array).any():
        _check_forbidden(name, array, hint)
    else:
        check_finite(name, array, hint)
    return array


def _check_forbidden(name: str, array: NDArray[np.float64], hint: str) -> None:
    """As `check_finite`, of an array in which -inf forbids some labels."""
    forbidden = np.isneginf(array)
    check_finite(name, np.where(forbidden, 0.0, array), hint)
    stuck = np.argwhere(forbidden.all(axis=-1))
    if len(stuck):
        raise ValueError(
            f"{name} must leave every site a label, but all labels of site {stuck[0][-1]} are forbidden (-inf)."
        )


def check_finite(name: str, array: NDArray[Any], hint: str = "") -> None:
    """Raises a ValueError that names the argument unless all numbers are finite, and at most `LARGEST` in size."""
    if array.dtype in _NATIVE and _core.are_at_most(array, LARGEST):
        return
    bad = ~(np.abs(array) <= LARGEST)
    if not bad.any():
        return
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    entry = f"{name}{list(where)}" if name.isidentifier() else f"entry {list(where)}"
    found = f"but {entry} is {array[where]}"
    if not np.isfinite(array[where]):
        raise ValueError(f"{name} must be finite, {found}.{hint}")
    raise ValueError(
        f"{name} must hold numbers of at most {LARGEST:g} in size, so that their products are finite, {found}: "
        "scale them (features: with sklearn.preprocessing.StandardScaler)."
    )
