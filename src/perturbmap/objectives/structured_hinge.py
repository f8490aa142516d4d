"""The structured hinge: the structured support vector machine, the paper's second baseline."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.objectives.base import Objective, Targets, difference
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.structures.base import Structure
from perturbmap.task_losses import Hamming, TaskLoss


@final
class StructuredHinge(Objective):
    """``f(y) - max_y' [f(y') + loss(y, y')]``, with margin rescaling (Tsochantaridis et al. 2005).

    Solved by `BCFW`, or by `DoubleSGD` as a stochastic subgradient. Where only some labels are known, the first term
    is the maximum over the labellings that have them.

    loss : a Hamming loss, plain by default; summed over sites, as all objectives are
    """

    takes_soft_labels = False
    is_perturbed = False

    def __init__(self, loss: TaskLoss | None = None) -> None:
        self.loss = loss

    @property
    def task_loss(self) -> TaskLoss:
        """The loss that was given, or plain Hamming."""
        return Hamming() if self.loss is None else self.loss

    def label_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """``q * theta``: what missing each label costs."""
        return self.task_loss.label_weights(q, sizes, offsets)

    @staticmethod
    def augment(f: Potentials, label_weights: Floats) -> Potentials:
        """``f(y') + loss(y, y')``."""
        return f.with_unary(f.unary + label_weights.sum(axis=1, keepdims=True) - label_weights)

    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        """See `Objective.value_and_grad`: ``Psi(y) - Psi(y')``."""
        worst, augmented = structure.maximise(self.augment(f, targets.label_weights))
        y = targets.labels
        if (y < 0).any():
            y, known = structure.maximise(f, given=y)
        else:
            known = f.score(y)
        return known - augmented, difference(f.indicators(y, targets.weights), f.indicators(worst, targets.weights))
