"""The same fit for many strengths of the penalty, each from where the one before ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from perturbmap.estimator import StructuredPredictor
from perturbmap.fit_run import FitOptions
from perturbmap.solvers import State


def regularisation_path(
    estimator: StructuredPredictor, X: Sequence[Any], y: Sequence[Any], l2s: Sequence[float]
) -> list[StructuredPredictor]:
    """A fitted clone of the estimator for every l2, in the order of ``l2s``.

    They are fitted from the largest l2 down: strong penalties are fast to solve, and each solution is a start for the
    next. `BCFW` keeps its dual variables, `LBFGS` and `DoubleSGD` the weights.
    """
    if not len(l2s):
        raise ValueError("l2s must hold at least one number.")
    fitted: dict[int, StructuredPredictor] = {}
    state: State | None = None
    for position in sorted(range(len(l2s)), key=lambda i: -l2s[i]):
        one: StructuredPredictor = clone(estimator).set_params(l2=l2s[position])
        state = one._fit(X, y, FitOptions(), warm=state)
        fitted[position] = one
    return [fitted[position] for position in range(len(l2s))]
