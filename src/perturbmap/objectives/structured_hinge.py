"""The structured hinge: the structured support vector machine, the paper's second baseline."""

from __future__ import annotations

from typing import final

from perturbmap.objectives.base import SiteObjective
from perturbmap.objectives.targets import Targets
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.structures.base import Structure, check_not_forbidden
from perturbmap.task_losses.base import augmentation


@final
class StructuredHinge(SiteObjective):
    """``f(y) - max_y' [f(y') + loss(y, y')]``, with margin rescaling (Tsochantaridis et al. 2005).

    It is the objective of the structured support vector machine: the true labelling y is to score higher than any
    other labelling y', by as much as y' costs. It is solved by `BCFW`, or by `DoubleSGD` as a stochastic subgradient.
    Where only some labels are known, the first term is the maximum over the labellings that have them.

    loss : a Hamming loss, plain by default (`Hamming`, `WeightedHamming`, `BalancedHamming`); it is summed over
        sites, as all objectives are

    >>> from perturbmap.potentials import SiteLabels
    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> t = pm.StructuredHinge().targets(SiteLabels.of([1, 1], n_labels=2))
    >>> value, _ = pm.StructuredHinge().value_and_grad(f, t, pm.Chain(), None)
    >>> value
    array([-1.5])
    """

    is_perturbed = False
    is_hinge = True

    def augmented(self, f: Potentials, label_weights: Floats) -> Potentials:
        """The potentials with the loss added, ``f(y') + loss(y, y')``."""
        return f.with_unary(f.unary + augmentation(label_weights))

    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        """See `Objective.value_and_grad`: ``Psi(y) - Psi(y')``."""
        worst, augmented = structure.maximise(self.augmented(f, targets.label_weights))
        y = targets.labels
        if (y < 0).any():
            y, known = structure.maximise(f, given=y)
        else:
            check_not_forbidden("labels", f, y)
            known = structure.evaluate(f, y)
        return known - augmented, f.indicators(y, targets.weights) - f.indicators(worst, targets.weights)
