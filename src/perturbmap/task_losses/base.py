"""Task losses: what a prediction is judged by (Table 1 of the paper)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.potentials.site_arrays import sum_of_labels
from perturbmap.support.parts import Part


def augmentation(label_weights: Floats) -> Floats:
    """What each label would cost at each site, ``sum_j c[d, j] - c[d, k]``: what augments f in a hinge."""
    return np.asarray(sum_of_labels(label_weights) - label_weights)


class TaskLoss(Part):
    """A loss that sums over sites, ``l(y, yhat) = sum_d theta_d(y_d) [y_d != yhat_d]``.

    Here y are the true labels and yhat the predicted ones; theta_d(k) is the cost of missing label k at site d. A
    loss of your own needs ``site_weights``, which is theta. One that does not sum over sites says so
    (``sums_over_sites = False``), has its own ``example_losses``, and raises an error in ``site_weights``. ``known``,
    in the methods, is what is known of the labels of a batch (`SiteLabels`).
    """

    #: Whether the loss is a sum over sites; if not, nothing can be learned by it site by site.
    sums_over_sites: ClassVar[bool] = True

    @abstractmethod
    def site_weights(self, known: SiteLabels) -> Floats:
        """The weights theta, ``(n_sites, n_labels)``: what missing each label costs at each site."""

    def site_sizes(self, known: SiteLabels) -> Floats:
        """How much a site counts whatever its label, ``(n_sites,)``: its size, unless the loss ignores sizes."""
        return known.sizes

    def label_weights(self, known: SiteLabels) -> Floats:
        """``c = q * theta``, ``(n_sites, n_labels)``, how much each label of each site counts in learning.

        q are the probabilities of the labels, one-hot where a label is known. This is both Hamming rows of Table 1 of
        the paper in one array.
        """
        theta = np.asarray(self.site_weights(known), dtype=np.float64)
        if theta.shape != known.q.shape:
            raise ValueError(
                f"{type(self).__name__}.site_weights must have shape {known.q.shape}, one row for each site, but has "
                f"{theta.shape}."
            )
        return known.q * theta

    def example_losses(self, known: SiteLabels, predicted: Labels) -> Floats:
        """The loss of each example, ``(n_examples,)``; sites whose label is not known cost nothing."""
        costs = augmentation(self.label_weights(known))
        return known.layout.sums(np.take_along_axis(costs, predicted[:, None].astype(np.intp), axis=1)[:, 0])

    def value(self, known: SiteLabels, predicted: Labels) -> Floats:
        """The loss of each example, ``(n_examples,)``; NaN where none of its labels is known."""
        return np.where(known.has_some, self.example_losses(known, predicted), np.nan)
