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
