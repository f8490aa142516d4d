"""The same fit for many strengths of the penalty, each from where the one before ended."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from perturbmap.estimator.predictor import FitInterruptedWarning, StructuredPredictor
from perturbmap.solvers import State
from perturbmap.support.checks import check_number


def regularisation_path(
    estimator: StructuredPredictor, X: Sequence[Any], y: Sequence[Any], l2s: Sequence[float]
) -> list[StructuredPredictor]:
    """A fitted clone of the estimator for every l2, in the order of ``l2s``.

    They are fitted from the largest l2 down: strong penalties are fast to solve, and each solution is a start for the
    next. `BCFW` keeps its dual variables, `LBFGS` and `DoubleSGD` the weights. Ctrl-C ends the whole path.

    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(2, size=n) for n in (5, 3, 8, 6)]
    >>> X = [np.eye(2)[labels] + rng.normal(0, 0.3, (len(labels), 2)) for labels in y]
    >>> crf = pm.StructuredPredictor(objective=pm.ExactLogLikelihood())
    >>> path = pm.regularisation_path(crf, X, y, l2s=[0.01, 0.1, 1.0])
    >>> [round(float(np.linalg.norm(one.coef_)), 1) for one in path]
    [5.5, 2.9, 1.1]
    """
    if not isinstance(l2s, (Sequence, np.ndarray)) or not len(l2s):
        raise ValueError(f"l2s must be a list of at least one number, but is {l2s!r}.")
    strengths = [check_number(f"l2s[{i}]", l2) for i, l2 in enumerate(l2s)]
    fitted: dict[int, StructuredPredictor] = {}
    state: State | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitInterruptedWarning)
        for position in sorted(range(len(strengths)), key=lambda i: -strengths[i]):
            one: StructuredPredictor = clone(estimator).set_params(l2=strengths[position])
            try:
                state = one.fit_warm(X, y, state)
            except FitInterruptedWarning:
                raise KeyboardInterrupt from None
            fitted[position] = one
    return [fitted[position] for position in range(len(strengths))]
