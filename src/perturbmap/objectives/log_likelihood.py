"""The Gumbel log-likelihood: Algorithm 1, the zero-one row of Table 1."""

from __future__ import annotations

from typing import final

from perturbmap.noise import perturb
from perturbmap.objectives.base import LabellingObjective
from perturbmap.objectives.targets import Targets
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.structures.base import Structure, check_not_forbidden


@final
class LogLikelihood(LabellingObjective):
    """``f(y) - A_G(f)``, a lower bound on log P(y | x), if the structure's maximum is exact.

    Here f(y) is the score of the true labelling, and A_G(f) an upper bound on log Z from random perturbations, see
    `log_partition_bound`. Where only some labels are known, it is ``B_G(f | known) - A_G(f)``: the bound given the
    known labels minus the bound. Both share their noise, so that an example that the maximiser gets right contributes
    exactly zero. A step takes one maximisation for each example. It is Algorithm 1 of the paper.

    >>> from perturbmap.potentials import SiteLabels
    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> t = pm.LogLikelihood().targets(SiteLabels.of([1, 1], n_labels=2))
    >>> noise = pm.gumbel_noise(f, seed=0)[0]
    >>> value, gradient = pm.LogLikelihood().value_and_grad(f, t, pm.Chain(), noise)
    >>> value.round(3), gradient.unary
    (array([-2.063]), array([[ 0.,  0.],
           [-1.,  1.]]))
    """

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
            check_not_forbidden("labels", f, y)
            known = structure.evaluate(perturbed, y)
        return known - best, f.indicators(y, targets.weights) - f.indicators(free, targets.weights)
