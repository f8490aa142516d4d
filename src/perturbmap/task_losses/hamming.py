"""Hamming losses: plain, weighted, balanced."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.site_arrays import sums_by_example
from perturbmap.task_losses.base import TaskLoss


@final
class Hamming(TaskLoss):
    """The fraction of wrong sites, ``(1/D) sum_d [y_d != yhat_d]``.

    ``label_weights`` is ``q``, the Hamming row of Table 1: objectives sum over sites, as the paper's does, so that
    for separable potentials the marginal likelihood is the likelihood. Only ``value`` divides by D.

    >>> y, found = np.array([0, 1, 1, 0]), np.array([0, 0, 1, 0])
    >>> pm.Hamming().value(y, found, sizes=np.ones(4), offsets=np.array([0, 4]), n_labels=2)
    array([0.25])
    """

    def site_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """Theta = 1."""
        return np.ones_like(q)

    def site_sizes(self, sizes: Floats) -> Floats:
        """All alike."""
        return np.ones_like(sizes)

    def value(self, y: Any, predicted: Any, sizes: Floats, offsets: NDArray[np.int64], n_labels: int) -> Floats:
        """See `TaskLoss.value`; unknown sites do not count in D."""
        known = sums_by_example(np.asarray(y >= 0, dtype=np.float64), offsets)
        return np.asarray(super().value(y, predicted, sizes, offsets, n_labels) / np.maximum(1, known))


@final
class WeightedHamming(TaskLoss):
    """``sum_d size_d * label_costs[y_d] [y_d != yhat_d]``: sites count by size, labels by what missing one costs.

    ``label_costs`` has one number a label, in the order of ``classes_``; left out, all cost 1.

    >>> y, found = np.array([0, 1, 1, 0]), np.array([0, 0, 1, 0])
    >>> sizes = np.array([1.0, 2.0, 1.0, 1.0])
    >>> pm.WeightedHamming([1, 5]).value(y, found, sizes, offsets=np.array([0, 4]), n_labels=2)
    array([10.])
    """

    def __init__(self, label_costs: Any = None) -> None:
        self.label_costs = label_costs

    def site_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """theta_d(k) = size_d * label_costs[k]."""
        costs = np.ones(q.shape[1]) if self.label_costs is None else np.asarray(self.label_costs, dtype=np.float64)
        if costs.shape != (q.shape[1],) or not np.isfinite(costs).all() or (costs < 0).any():
            raise ValueError(
                f"label_costs must be {q.shape[1]} numbers, one a label, none negative, but is {self.label_costs!r}."
            )
        return sizes[:, None] * costs


@final
class BalancedHamming(TaskLoss):
    """Half the missed area of each of two labels: the loss of the horse experiment.

    ``theta_d(k) = size_d / (m * V_k)``, where V_k is the area of label k in the example and m the number of labels it
    has. Where labels are not known, their areas are expected ones, ``V_k = sum_d size_d q_d(k)`` (the paper leaves
    out the sizes).

    >>> y, found = np.array([0, 1, 1, 0]), np.array([0, 0, 1, 0])
    >>> pm.BalancedHamming().value(y, found, sizes=np.ones(4), offsets=np.array([0, 4]), n_labels=2)
    array([0.25])
    """

    def site_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """Theta from the areas of each example."""
        areas = sums_by_example(sizes[:, None] * q, offsets)
        n_present = np.maximum(1, (areas > 0).sum(axis=1, keepdims=True))
        share = np.divide(1.0, n_present * areas, out=np.zeros_like(areas), where=areas > 0)
        return np.asarray(sizes[:, None] * np.repeat(share, np.diff(offsets), axis=0))
