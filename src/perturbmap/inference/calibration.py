"""Calibration: slope and shift of the log-odds, fitted on held-out examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from perturbmap.potentials import Floats
from perturbmap.potentials.site_arrays import log_softmax, softmax

# Probabilities below this are those of labels that cannot be; their logarithm has no place in a fit.
_SMALLEST = 1e-12


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """``q -> softmax(slope * log q + shift)``, with one slope and one shift for each label (the first is zero).

    >>> pm.Calibration(2.0, np.zeros(2))(np.array([[0.6, 0.4]])).round(3)
    array([[0.692, 0.308]])
    """

    slope: float
    shift: Floats

    def __call__(self, q: Floats) -> Floats:
        """Calibrated probabilities; what is impossible stays so."""
        log_q = np.log(np.maximum(q, _SMALLEST))
        p = softmax(self.slope * log_q + self.shift) * (q > 0)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def to_array(self) -> Floats:
        """Slope and shifts in one array, for a file."""
        return np.concatenate([[self.slope], self.shift])

    @classmethod
    def from_array(cls, array: Floats | None) -> Calibration | None:
        """The calibration whose `to_array` this is; None stays None."""
        return None if array is None else cls(float(array[0]), array[1:])

    @classmethod
    def fit(cls, q: Floats, label_weights: Floats) -> Calibration:
        """Maximises the weighted likelihood ``sum c log softmax(slope * log q + shift)`` of held-out sites."""
        from scipy.optimize import minimize  # inference itself does without SciPy

        log_q = np.log(np.maximum(q, _SMALLEST))
        c, total = label_weights, label_weights.sum(axis=1, keepdims=True)
        scale = max(1e-300, float(total.sum()))

        def loss(parameters: Floats) -> tuple[float, Floats]:
            shift = np.concatenate([[0.0], parameters[1:]])
            log_p, p = log_softmax(parameters[0] * log_q + shift)
            residual = c - total * p
            gradient = np.concatenate([[(residual * log_q).sum()], residual.sum(axis=0)[1:]])
            return -float((c * log_p).sum()) / scale, -gradient / scale

        start = np.concatenate([[1.0], np.zeros(q.shape[1] - 1)])
        bounds = [(1e-3, None)] + [(None, None)] * (q.shape[1] - 1)
        best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(float(best[0]), np.concatenate([[0.0], best[1:]]))
