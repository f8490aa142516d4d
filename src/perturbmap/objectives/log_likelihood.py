"""The Gumbel log-likelihood: Algorithm 1, the zero-one row of Table 1."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.objectives.base import Objective, Targets, difference
from perturbmap.perturbation import perturb
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.structures.base import Structure
from perturbmap.task_losses import TaskLoss, ZeroOne


@final
class LogLikelihood(Objective):
    """``f(y) - A_G(f)``, a lower bound on log P(y | x).

    Where only some labels are known, ``B_G(f | known) - A_G(f)``: the bound given the known labels minus the bound.
    Both share their noise, so that an example that the maximiser gets right contributes exactly zero.
    """

    takes_soft_labels = False

    @property
    def task_loss(self) -> TaskLoss:
        """Zero-one."""
        return ZeroOne()

    def label_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """Not used: the likelihood is that of whole labellings."""
        return q

    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        """See `Objective.value_and_grad`: ``Psi(y) - Psi(y_A)``."""
        assert noise is not None
        perturbed = perturb(f, noise)
        free, best = structure.maximise(perturbed)
        y = targets.labels
        if (y < 0).any():
            y, known = structure.maximise(perturbed, given=y)
        else:
            known = perturbed.score(y)
        gradient = difference(f.indicators(y, targets.weights), f.indicators(free, targets.weights))
        return known - best, gradient
