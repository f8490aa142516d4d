"""The log-likelihood itself: a conditional random field."""

from __future__ import annotations

from typing import final

from perturbmap.objectives.base import ExactObjective, LabellingObjective
from perturbmap.objectives.targets import Targets
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.structures.base import Structure, check_not_forbidden
from perturbmap.structures.summable import require_sums


@final
class ExactLogLikelihood(ExactObjective, LabellingObjective):
    """``log P(y | x) = f(y) - A(f)``: the conditional random field of Lafferty, McCallum and Pereira (2001).

    Here f(y) is the score of the true labelling, and ``A(f) = log sum_y exp f(y)`` sums over all labellings, which
    the structure must be able to do: `Chain` and `Tree` can. Where only some labels are known,
    ``log P(known | x) = A(f | known) - A(f)``, the first sum being over the labellings that have them.

    >>> from perturbmap.potentials import SiteLabels
    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> t = pm.ExactLogLikelihood().targets(SiteLabels.of([1, 1], n_labels=2))
    >>> value, gradient = pm.ExactLogLikelihood().value_and_grad(f, t, pm.Chain(), None)
    >>> value.round(3), gradient.unary.round(3)
    (array([-0.854]), array([[-0.316,  0.316],
           [-0.517,  0.517]]))
    """

    instead = "LogLikelihood()"

    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        """See `Objective.value_and_grad`: ``Psi(y) - E Psi``."""
        exact = require_sums(structure, type(self).__name__, self.instead)
        total, expected = exact.log_partition(f, weights=targets.weights)
        y = targets.labels
        if (y < 0).any():
            known, observed = exact.log_partition(f, given=y, weights=targets.weights)
        else:
            check_not_forbidden("labels", f, y)
            known, observed = structure.evaluate(f, y), f.indicators(y, targets.weights)
        return known - total, observed - expected
