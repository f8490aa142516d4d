"""The marginal log-likelihood with exact marginals, by which the Gumbel approximation can be judged."""

from __future__ import annotations

from typing import cast, final

import numpy as np

from perturbmap.objectives.base import ExactObjective, SiteObjective, Targets
from perturbmap.objectives.marginal_log_likelihood import weighted_log_likelihoods
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.site_arrays import log_softmax
from perturbmap.structures.base import ExactStructure, Structure


@final
class ExactMarginalLogLikelihood(ExactObjective, SiteObjective):
    """``sum_d sum_k c[d, k] log P(y_d = k | x)`` with ``c = q * theta``.

    `MarginalLogLikelihood` with sums over all labellings in place of Gumbel bounds. Not concave in w.

    loss : a Hamming loss, plain by default

    >>> from perturbmap.objectives import Targets
    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> t = Targets(np.array([1, 1], np.int32), np.eye(2)[[1, 1]], np.array([True]), np.ones(1))
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
        """See `Objective.value_and_grad`."""
        c = targets.label_weights
        pinned = cast(ExactStructure, structure).pinned_sums(f)
        log_p, p = log_softmax(pinned.values)
        weighted = c * np.repeat(targets.weights, np.diff(f.site_offsets))[:, None]
        weights = weighted - weighted.sum(axis=1, keepdims=True) * p
        return weighted_log_likelihoods(c, log_p, f), pinned.moments(weights)
