"""Calibration: the scale of the potentials and, for two labels, a shift of the log-odds, by held-out examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from perturbmap.inference.label_prior import LabelPrior
from perturbmap.inference.marginals import marginals
from perturbmap.potentials import Floats, Potentials
from perturbmap.potentials.site_arrays import log_softmax, softmax, sum_of_labels
from perturbmap.structures.base import Structure

# Probabilities below this are those of labels that cannot be; their logarithm has no place in a fit.
_SMALLEST = 1e-12
# Steps of the search for the scale, each from the best of the one before; and what a step must gain, in nats a site.
_STEPS, _GAIN = (16.0, 2.0, 2.0**0.5), 1e-4
_WIDEST = 2.0**20


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """Marginals of potentials that are scaled, ``softmax(log q(scale * f) + shift)``; the first shift is zero.

    Here q(f) are the marginals of the potentials f, the probabilities of the labels of each site. Scale and shift are
    fitted to held-out examples, so that a probability says how often it is right: by a `StructuredPredictor` with
    ``calibration``. A fit to two labels has a shift; with more labels, only the scale is fitted.

    Scores that were learned by a likelihood have the scale of the noise, or nearly so; those of a hinge have the
    scale of its loss, and their marginals mean nothing before they are scaled. The best labelling does not depend on
    the scale.

    >>> f = pm.Potentials([[0.0, 0.2], [0.3, 0.0]], pm.potts(0.1))
    >>> doubled = pm.Calibration(2.0, np.zeros(2))
    >>> doubled.marginals(pm.Chain(), f, method=pm.EXACT).round(3)
    array([[0.415, 0.585],
           [0.637, 0.363]])
    """

    scale: float
    shift: Floats

    def marginals(self, structure: Structure, f: Potentials, **options: Any) -> Floats:
        """Calibrated marginals of f; the options are those of `perturbmap.marginals`."""
        return self.shifted(marginals(structure, f.scaled(self.scale), **options).mean)

    def shifted(self, q: Floats) -> Floats:
        """Adds the shift to the log of marginals of scaled potentials; what is impossible stays impossible."""
        p = softmax(np.log(np.maximum(q, _SMALLEST)) + self.shift) * (q > 0)
        return np.asarray(p / sum_of_labels(p))

    def to_array(self) -> Floats:
        """Scale and shifts in one array, for a file."""
        return np.concatenate([[self.scale], self.shift])

    @classmethod
    def from_array(cls, array: Floats | None) -> Calibration | None:
        """The calibration whose `to_array` this is; None stays None."""
        return None if array is None else cls(float(array[0]), np.asarray(array[1:], dtype=np.float64))

    @classmethod
    def at(cls, scale: float, q: Floats, label_weights: Floats) -> tuple[float, Calibration]:
        """The mean weighted log-likelihood ``sum c log p`` at a scale, and the calibration with the best shift there.

        With more than two labels the shift is zero: some may be in hardly any held-out example, and would be moved
        far away (docs/decisions.md, 99).
        """
        likelihood, shift = _best_shift(q, label_weights)
        return likelihood, cls(scale, shift)

    @classmethod
    def fit(cls, at: Callable[[float], tuple[float, Calibration]]) -> Calibration:
        """The calibration of greatest likelihood.

        ``at`` is a function from a scale to the likelihood and the calibration there; the best scale is looked for in
        shorter and shorter steps.
        """
        tried: dict[float, tuple[float, Calibration]] = {}

        def likelihood(scale: float) -> float:
            if scale not in tried:
                tried[scale] = at(scale)
            return tried[scale][0]

        best = 1.0
        for step in _STEPS:
            for factor in (step, 1.0 / step):
                while 1.0 / _WIDEST < best < _WIDEST and likelihood(best * factor) > likelihood(best) + _GAIN:
                    best *= factor
        return tried[best][1]


def _best_shift(q: Floats, label_weights: Floats) -> tuple[float, Floats]:
    """The largest mean of ``log softmax(log q + shift)``, weighted, and its shift; zero beyond two labels."""
    from scipy.optimize import minimize  # inference itself does without SciPy

    log_q = np.log(np.maximum(q, _SMALLEST))
    c, total = label_weights, sum_of_labels(label_weights)
    scale = max(1e-300, float(total.sum()))

    def loss(parameters: Floats) -> tuple[float, Floats]:
        log_p, p = log_softmax(log_q + np.concatenate([[0.0], parameters]))
        return -float((c * log_p).sum()) / scale, -(c - total * p).sum(axis=0)[1:] / scale

    unshifted = np.zeros(q.shape[1] - 1)
    if len(unshifted) > 1:
        return -loss(unshifted)[0], np.concatenate([[0.0], unshifted])
    found = minimize(loss, unshifted, jac=True, method="L-BFGS-B")
    return -float(found.fun), np.concatenate([[0.0], found.x])


def corrected_marginals(
    structure: Structure,
    f: Potentials,
    calibration: Calibration | None,
    label_prior: LabelPrior | None,
    **options: Any,
) -> Floats:
    """Marginals of f, calibrated, and freed of what a weighted loss has added to them; None does neither."""
    if calibration is None:
        q = marginals(structure, f, **options).mean
    else:
        q = calibration.marginals(structure, f, **options)
    return q if label_prior is None else label_prior.remove(q)
