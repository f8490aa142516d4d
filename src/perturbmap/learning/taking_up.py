"""What a file says of a fit, looked at before the fit is taken up: the file may be damaged, or forged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.noise import seed_of
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem, Solver, State
from perturbmap.support.damage import DAMAGE, reason, shown


def restored(solver: Solver[Any], problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> State:
    """The state of a solver whose arrays these are; ValueError where they are none of this problem."""
    try:
        state: State = solver.restore(problem, arrays, iteration)
    except DAMAGE as error:
        raise ValueError(f"the state of {type(solver).__name__} cannot be restored ({reason(error)})") from error
    for name in ("w", "average"):
        kept_floats(name, getattr(state, name), (problem.n_weights,))
    return state


def kept_floats(name: str, values: Any, shape: tuple[int, ...] | None = None) -> Floats:
    """Numbers of a file; ValueError unless they have this shape and are finite."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or (shape or values.shape) != values.shape:
        found = f"{values.dtype}, shape {values.shape}" if isinstance(values, np.ndarray) else shown(values)
        raise ValueError(f"{name} must be numbers{'' if shape is None else f' of shape {shape}'}, but is {found}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, but holds {values[~np.isfinite(values)][0]}")
    return np.asarray(values, dtype=np.float64)


def kept_count(name: str, n: Any) -> int:
    """A number of things, of a file; ValueError unless it is an integer, and not negative."""
    if type(n) is not int or not 0 <= n < 2**63:
        raise ValueError(f"{name} must be a number of things, but is {shown(n)}")
    return n


def kept_seed(seed: Any) -> int:
    """The seed of a fit, of a file; ValueError unless it is an integer that a seed may be."""
    if type(seed) is not int:
        raise ValueError(f"the seed must be an integer, but is {shown(seed)}")
    return seed_of(seed, "the seed")


def kept_history(entries: Any) -> list[dict[str, Any]]:
    """The ``history_`` of a file; ValueError unless each entry says of which phase and iteration it is."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"the history must be a list of reports, but is {shown(entries)}")
    for entry in entries:
        for key in ("phase", "iteration"):
            kept_count(f"{key} of the history", entry.get(key))
    return entries
