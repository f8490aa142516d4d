"""Task losses: what a prediction is judged by (Table 1 of the paper)."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from perturbmap.potentials import Floats, Labels
from perturbmap.site_arrays import one_hot, sums_by_example


class TaskLoss(BaseEstimator):
    """A loss that sums over sites, ``l(y, yhat) = sum_d theta_d(y_d) [y_d != yhat_d]``.

    Arrays run over all sites of a batch; ``offsets`` says where its examples begin. ``q`` is what is known of y,
    ``(n_sites, n_labels)``: one-hot for labels, soft otherwise, zero for a site that is left out.
    """

    @abstractmethod
    def site_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """theta, ``(n_sites, n_labels)``."""

    def site_sizes(self, sizes: Floats) -> Floats:
        """How much a site counts whatever its label: its size, unless the loss does without."""
        return sizes

    def label_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """``c = q * theta``: both Hamming rows of Table 1 in one array."""
        return q * self.site_weights(q, sizes, offsets)

    def augmentation(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """What loss-augmented inference adds to the unary potentials: the expected loss of each label."""
        c = self.label_weights(q, sizes, offsets)
        return np.asarray(c.sum(axis=1, keepdims=True) - c)

    def value(self, y: Labels, predicted: Labels, sizes: Floats, offsets: NDArray[np.int64], n_labels: int) -> Floats:
        """The loss of each example; sites with ``y = -1`` do not count."""
        q = one_hot(y, n_labels)
        cost = np.take_along_axis(self.augmentation(q, sizes, offsets), predicted[:, None].astype(np.intp), axis=1)[
            :, 0
        ]
        return sums_by_example(cost, offsets)
