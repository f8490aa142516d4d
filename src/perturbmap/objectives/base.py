"""Objectives: likelihoods in potential space, value and gradient together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from perturbmap.inference import EXACT, PINNED, MarginalMethod
from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.structures.base import ExactStructure, Structure
from perturbmap.task_losses import Hamming, TaskLoss, ZeroOne


@dataclass(frozen=True, eq=False)
class Targets:
    """What an objective is to make likely, over the sites of a batch.

    labels : (n_sites,), -1 where not known
    label_weights : (n_sites, n_labels), ``c = q * theta``
    is_complete : (n_examples,), whether something is known of every site
    weights : (n_examples,), how much each example counts
    """

    labels: Labels
    label_weights: Floats
    is_complete: NDArray[np.bool_]
    weights: Floats


class Objective(BaseEstimator):
    """To be maximised; knows potentials and nothing of features."""

    #: Whether it can learn from probabilities of labels, not only from labels.
    takes_soft_labels: bool
    #: Whether its value is estimated under a draw of noise.
    is_perturbed: bool = True
    #: The marginals that it learns.
    marginal_method: MarginalMethod = PINNED

    @property
    @abstractmethod
    def task_loss(self) -> TaskLoss:
        """The loss whose row of Table 1 this is."""

    @abstractmethod
    def label_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """``c`` of `Targets`."""

    def site_sizes(self, sizes: Floats) -> Floats:
        """How much a site counts whatever its label, all alike by default; what more is in ``c`` favours labels."""
        return np.ones_like(sizes)

    def check(self, structure: Structure) -> None:
        """Raises an error where the structure cannot do what the objective asks of it."""

    @abstractmethod
    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        """Its estimate under one draw of the noise, an example; and the gradient of their weighted sum.

        ``noise`` is None where nothing is perturbed.
        """


class LabellingObjective(Objective):
    """An objective of whole labellings, right or wrong: the zero-one row of Table 1."""

    takes_soft_labels = False

    @property
    def task_loss(self) -> TaskLoss:
        """Zero-one."""
        return ZeroOne()

    def label_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """Not used: no site counts by itself."""
        return q


class SiteObjective(Objective):
    """An objective that sums over sites, by a Hamming loss: plain by default."""

    def __init__(self, loss: TaskLoss | None = None) -> None:
        self.loss = loss

    @property
    def task_loss(self) -> TaskLoss:
        """The loss that was given, or plain Hamming."""
        return Hamming() if self.loss is None else self.loss

    def label_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """``q * theta``."""
        return self.task_loss.label_weights(q, sizes, offsets)

    def site_sizes(self, sizes: Floats) -> Floats:
        """Those of the loss."""
        return self.task_loss.site_sizes(sizes)


class ExactObjective(Objective):
    """An objective that sums over all labellings, where the structure can."""

    is_perturbed = False
    marginal_method = EXACT
    #: What to use where it cannot.
    instead: str

    def check(self, structure: Structure) -> None:
        """Raises TypeError for a structure that can only be maximised over."""
        if not isinstance(structure, ExactStructure):
            raise TypeError(
                f"{type(self).__name__} sums over all labellings, which is possible for Chain, Tree and BruteForce, "
                f"but not for {type(structure).__name__}: use {self.instead}, which needs only the best labelling."
            )


def difference(up: Moments, down: Moments) -> Moments:
    """``up - down``."""
    pairwise = None if up.pairwise is None or down.pairwise is None else up.pairwise - down.pairwise
    return Moments(up.unary - down.unary, pairwise)
