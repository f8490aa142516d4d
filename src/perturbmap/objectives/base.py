"""Objectives: likelihoods in potential space, value and gradient together."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, final

import numpy as np

from perturbmap.inference import EXACT, PINNED, LabelPrior, MarginalMethod
from perturbmap.objectives.targets import Targets
from perturbmap.potentials import Floats, Moments, Potentials, SiteLabels
from perturbmap.structures.base import Structure
from perturbmap.structures.summable import require_sums
from perturbmap.support.parts import Part
from perturbmap.task_losses import Hamming, TaskLoss, ZeroOne

# Examples whose label weights are made at once, where they are only summed up.
_EXAMPLES = 1024


class Objective(Part):
    """What learning maximises, as a function of potentials (the scores of labellings), not of features.

    An objective of your own has `task_loss`, `label_weights` and `value_and_grad`, and says by its class attributes,
    such as ``is_smooth``, what it is, so that solvers know whether they can solve it.
    """

    #: Whether it can learn from probabilities of labels, not only from labels.
    takes_soft_labels: ClassVar[bool] = False
    #: Whether its value is estimated under a draw of noise.
    is_perturbed: ClassVar[bool] = True
    #: Whether its gradient, under fixed noise if it is perturbed, has no jumps.
    is_smooth: ClassVar[bool] = False
    #: Whether it is a hinge, ``f(y) - max_y' [f(y') + margin(y')]``, of which `augmented` is what is maximised.
    is_hinge: ClassVar[bool] = False
    #: Whether it judges whole labellings, so that its label weights are q itself.
    counts_labellings: ClassVar[bool] = False
    #: The marginals that it learns.
    marginal_method: ClassVar[MarginalMethod] = PINNED

    @property
    def is_smooth_on_average(self) -> bool:
        """Whether a few draws of the noise even out the jumps in its gradient, so that `LBFGS` solves it."""
        return False

    @property
    @abstractmethod
    def task_loss(self) -> TaskLoss:
        """The task loss that belongs to the objective (Table 1 of the paper)."""

    @abstractmethod
    def label_weights(self, known: SiteLabels) -> Floats:
        """``c = q * theta``, ``(n_sites, n_labels)``: how much each label of each site counts.

        q are the probabilities of the labels, one-hot where a label is known, and theta is what the loss charges for
        missing each label (`TaskLoss.site_weights`).
        """

    def site_sizes(self, known: SiteLabels) -> Floats:
        """How much a site counts whatever its label, 1 by default; the rest of ``c`` favours some labels."""
        return np.ones_like(known.sizes)

    def check(self, structure: Structure) -> None:
        """Raises an error where the structure cannot do what the objective asks of it."""

    @abstractmethod
    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        """The value for each example under one draw of the noise, and the gradient of their weighted sum.

        The weights are ``targets.weights``, one for each example. ``noise`` is None where nothing is perturbed.
        """

    def augmented(self, f: Potentials, label_weights: Floats) -> Potentials:
        """What a hinge maximises, ``f(y') + margin(y')``; any other objective raises an error."""
        raise NotImplementedError(f"{type(self).__name__} is not a hinge.")

    def targets(self, known: SiteLabels, *, guess: Floats | None = None, weights: Floats | None = None) -> Targets:
        """What is to be made likely, from what is known; and from a guess, ``(n_sites, n_labels)``, of the rest.

        A guess consists of probabilities. An objective that does not take them gets the likeliest label of each site
        instead; what is given stays as it is. ``weights`` holds one number for each example, 1 by default.
        """
        whole = known if guess is None else known.completed(guess)
        labels = known.labels
        if guess is not None and not self.takes_soft_labels:
            labels = whole.q.argmax(axis=1).astype(np.int32)
        each = np.ones(len(known.layout)) if weights is None else weights
        c = whole.soft if self.counts_labellings else self.label_weights(whole)
        return Targets(labels, known.n_labels, known.is_complete, each, c)

    def label_prior(self, known: SiteLabels) -> LabelPrior:
        """How much there is of each label and what it weighs, in fully labelled examples, if there are any.

        In the others, the areas on which a balanced loss depends are not known.
        """
        chosen = np.flatnonzero(known.is_complete) if known.is_complete.any() else np.arange(len(known.layout))
        areas, weights = np.zeros(known.n_labels), np.zeros(known.n_labels)
        for first in range(0, len(chosen), _EXAMPLES):
            part = known.take(chosen[first : first + _EXAMPLES])
            areas += (self.site_sizes(part)[:, None] * part.q).sum(axis=0)
            weights += self.label_weights(part).sum(axis=0)
        return LabelPrior(areas, weights)


class LabellingObjective(Objective):
    """An objective of whole labellings, right or wrong: the zero-one row of Table 1."""

    counts_labellings = True

    @property
    def task_loss(self) -> TaskLoss:
        """The zero-one loss, which judges whole labellings."""
        return ZeroOne()

    @final
    def label_weights(self, known: SiteLabels) -> Floats:
        """The label weights are q itself: no site counts by itself."""
        return known.q


class SiteObjective(Objective):
    """An objective that sums over sites, by a Hamming loss: plain by default."""

    def __init__(self, loss: TaskLoss | None = None) -> None:
        self.loss = loss

    @property
    def task_loss(self) -> TaskLoss:
        """The loss that was given, or plain Hamming."""
        return Hamming() if self.loss is None else self.loss

    def label_weights(self, known: SiteLabels) -> Floats:
        """``q * theta``, theta being that of the loss."""
        return self.task_loss.label_weights(known)

    def site_sizes(self, known: SiteLabels) -> Floats:
        """The sizes of the sites as the loss sees them."""
        return self.task_loss.site_sizes(known)


class ExactObjective(Objective):
    """An objective that sums over all labellings, where the structure can."""

    is_perturbed = False
    is_smooth = True
    marginal_method = EXACT
    #: What to use where it cannot.
    instead: ClassVar[str]

    def check(self, structure: Structure) -> None:
        """Raises TypeError for a structure that can only be maximised over."""
        require_sums(structure, type(self).__name__, self.instead)
