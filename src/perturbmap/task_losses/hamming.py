"""Hamming losses: plain, weighted by label, balanced by area."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.task_losses.base import TaskLoss


@final
class Hamming(TaskLoss):
    """The fraction of wrong sites, ``(1/D) sum_d [y_d != yhat_d]``.

    D is the number of sites of the example; the truth is y, the prediction yhat. Only ``value`` divides by D:
    objectives sum over sites, as the paper's does, so that for separable potentials (without edges) the marginal
    likelihood is the likelihood. ``label_weights`` is ``q``, the Hamming row of Table 1 of the paper.

    >>> from perturbmap.potentials import SiteLabels
    >>> pm.Hamming().value(SiteLabels.of([0, 1, 1, 0], n_labels=2), np.array([0, 0, 1, 0]))
    array([0.25])
    """

    def site_weights(self, known: SiteLabels) -> Floats:
        """The weights theta are 1: every mistake costs the same."""
        return np.ones_like(known.q)

    def site_sizes(self, known: SiteLabels) -> Floats:
        """All sites count the same, whatever their sizes."""
        return np.ones_like(known.sizes)

    def example_losses(self, known: SiteLabels, predicted: Labels) -> Floats:
        """See `TaskLoss.example_losses`; D is the number of sites whose label is known."""
        n_known = known.layout.sums(known.is_known)
        return np.asarray(super().example_losses(known, predicted) / np.maximum(1, n_known))


@final
class WeightedHamming(TaskLoss):
    """``sum_d size_d * label_costs[y_d] [y_d != yhat_d]``: sites count by size, labels by what missing one costs.

    label_costs : one number for each label, in the order of ``classes_``; left out, all cost 1

    The sizes are those of the sites, see `Example`. Their scale decides which ``l2`` is right: with sizes in pixels,
    a likelihood needs an l2 as many times larger as a site has pixels, and a hinge one as many times smaller. With
    costs divided by the mean size of a site, l2 means what it does for `Hamming`.

    >>> from perturbmap.potentials import SiteLabels
    >>> known = SiteLabels.of([0, 1, 1, 0], n_labels=2, sizes=[1.0, 2.0, 1.0, 1.0])
    >>> pm.WeightedHamming([1, 5]).value(known, np.array([0, 0, 1, 0]))
    array([10.])
    """

    def __init__(self, label_costs: Any = None) -> None:
        self.label_costs = label_costs

    def site_weights(self, known: SiteLabels) -> Floats:
        """The weights ``theta_d(k) = size_d * label_costs[k]``."""
        k = known.n_labels
        costs = np.ones(k) if self.label_costs is None else np.asarray(self.label_costs, dtype=np.float64)
        if costs.shape != (k,) or not np.isfinite(costs).all() or (costs < 0).any():
            raise ValueError(
                f"label_costs must be {k} numbers, one for each label, none negative, but is {self.label_costs!r}."
            )
        return known.sizes[:, None] * costs


@final
class BalancedHamming(TaskLoss):
    """The missed share of the area of each label that an example has, averaged over these labels.

    It keeps labels of a small area from being ignored. The cost of missing label k at site d is
    ``theta_d(k) = size_d / (m * V_k)``, where V_k is the area of label k in the example and m the number of labels it
    has. With two labels it is half the missed share of each: the loss of the paper's horse experiment.

    Where labels are not known, their areas are expected ones, ``V_k = sum_d size_d q_d(k)`` (the paper leaves out the
    sizes); q_d(k) is the probability of label k at site d. Two labels are both taken to be there, as in the paper. Of
    more than two, an example has only a few, and each counts by ``p_k = max_d q_d(k)``, the least probability that it
    is there: ``theta_d(k) = size_d p_k / (V_k sum_j p_j)``.

    >>> from perturbmap.potentials import SiteLabels
    >>> pm.BalancedHamming().value(SiteLabels.of([0, 1, 1, 0], n_labels=2), np.array([0, 0, 1, 0]))
    array([0.25])
    >>> pm.BalancedHamming().value(SiteLabels.of([0, 1, 1, 5], n_labels=9), np.array([0, 0, 1, 0])).round(3)
    array([0.5])
    """

    def site_weights(self, known: SiteLabels) -> Floats:
        """The weights theta, from the areas of the labels in each example."""
        areas = known.layout.sums(known.sizes[:, None] * known.q)
        # A label of sites without size only has no area to miss a share of.
        is_there = (areas > 0) * (1.0 if known.n_labels == 2 else known.layout.maxima(known.q))
        n_present = is_there.sum(axis=1, keepdims=True)
        share = np.divide(is_there, n_present * areas, out=np.zeros_like(areas), where=areas > 0)
        return np.asarray(known.sizes[:, None] * known.layout.repeat(share))
