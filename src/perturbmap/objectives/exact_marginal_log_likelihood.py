"""The marginal log-likelihood with exact marginals, by which the Gumbel approximation can be judged."""

from __future__ import annotations

from typing import final

from perturbmap.objectives.base import ExactObjective, SiteObjective
from perturbmap.objectives.marginal_log_likelihood import weighted_log_likelihoods
from perturbmap.objectives.targets import Targets
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.potentials.site_arrays import log_softmax, sum_of_labels
from perturbmap.structures.base import Structure, check_not_forbidden
from perturbmap.structures.summable import require_sums


@final
class ExactMarginalLogLikelihood(ExactObjective, SiteObjective):
    """``sum_d sum_k c[d, k] log P(y_d = k | x)`` with ``c = q * theta``.

    It adds up the log-probability of the true label of each site by itself: q[d, k] is the probability of label k at
    site d, one-hot where the label is known, and theta[d, k] what the loss charges for missing it. It is
    `MarginalLogLikelihood` with sums over all labellings in place of Gumbel bounds, for structures that can sum, such
    as `Chain` and `Tree`. It is not concave in w.

    loss : a Hamming loss, plain by default (`Hamming`, `WeightedHamming`, `BalancedHamming`)

    >>> from perturbmap.potentials import SiteLabels
    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> t = pm.ExactMarginalLogLikelihood().targets(SiteLabels.of([1, 1], n_labels=2))
    >>> value, _ = pm.ExactMarginalLogLikelihood().value_and_grad(f, t, pm.Chain(), None)
    >>> q = pm.marginals(pm.Chain(), f, method=pm.EXACT).mean
    >>> value.round(3), np.log(q[:, 1].prod(keepdims=True)).round(3)
    (array([-1.106]), array([-1.106]))
    """

    takes_soft_labels = True
    instead = "MarginalLogLikelihood()"

    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        check_not_forbidden("labels", f, targets.labels)
        c = targets.label_weights
        pinned = require_sums(structure, type(self).__name__, self.instead).pinned_sums(f)
        log_p, p = log_softmax(pinned.values)
        weighted = c * f.layout.repeat(targets.weights)[:, None]
        weights = weighted - sum_of_labels(weighted) * p
        return weighted_log_likelihoods(c, log_p, f), pinned.moments(weights)
