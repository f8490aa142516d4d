"""The marginal log-likelihood: Algorithms 2 and 4, the Hamming rows of Table 1, in one body."""

from __future__ import annotations

from typing import final

import numpy as np

from perturbmap.noise import perturb
from perturbmap.objectives.base import SiteObjective
from perturbmap.objectives.targets import Targets
from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.potentials.site_arrays import log_softmax, sum_of_labels
from perturbmap.structures.base import Structure, check_not_forbidden
from perturbmap.task_losses import TaskLoss


@final
class MarginalLogLikelihood(SiteObjective):
    """``sum_d sum_k c[d, k] (B_G(f | y_d = k) - A_G(f))`` with ``c = q * theta``.

    It adds up the log-likelihood of the label of each site by itself, so that it counts wrong sites. q[d, k] is the
    probability of label k at site d, one-hot where the label is known, and theta[d, k] what the loss charges for
    missing it. A_G is an upper bound on log Z from random perturbations, and B_G the same with site d held at label
    k, which is a pin; see `log_partition_bound`. With one-hot q this is Algorithm 2 of the paper, with soft q
    Algorithm 4.

    loss : a Hamming loss, which gives theta; plain by default (`Hamming`, `WeightedHamming`, `BalancedHamming`)
    integrate_noise : whether the pinned site's own noise is integrated out. Then one draw is
        ``sum_d sum_k c[d, k] log softmax_k(B'[d, :])``, where B' are the best scores with each pin, without that
        noise: the same mean, less variance, but all pins are solved. Without, it is the paper's estimator, which
        solves only the pins of weight that the maximiser does not satisfy.
    conditional : how a partly labelled example is read. False: a known label is the one-hot q that it is. True, as
        printed in the paper: both bounds are conditioned on the known labels, which then teach nothing by themselves.

    >>> from perturbmap.potentials import SiteLabels
    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> t = pm.MarginalLogLikelihood().targets(SiteLabels.of([1, 1], n_labels=2))
    >>> noise = pm.gumbel_noise(f, seed=0)[0]
    >>> value, gradient = pm.MarginalLogLikelihood().value_and_grad(f, t, pm.Chain(), noise)
    >>> value.round(3), gradient.unary.round(3)
    (array([-1.167]), array([[-0.5  ,  0.5  ],
           [-0.378,  0.378]]))
    """

    takes_soft_labels = True

    def __init__(
        self, loss: TaskLoss | None = None, *, integrate_noise: bool = True, conditional: bool = False
    ) -> None:
        super().__init__(loss)
        self.integrate_noise = integrate_noise
        self.conditional = conditional

    @property
    def is_smooth_on_average(self) -> bool:
        """Whether the noise is integrated out: the gradient of the paper's estimator moves in jumps alone."""
        return self.integrate_noise

    def value_and_grad(
        self, f: Potentials, targets: Targets, structure: Structure, noise: Floats | None
    ) -> tuple[Floats, Moments]:
        assert noise is not None
        check_not_forbidden("labels", f, targets.labels)
        c = targets.label_weights
        given = self._given(f, targets)
        if given is not None:
            c = np.where(given[:, None] >= 0, 0.0, c)
        weighted = c * f.layout.repeat(targets.weights)[:, None]
        total = sum_of_labels(weighted)
        perturbed = perturb(f, noise)
        if self.integrate_noise:
            pinned = structure.pinned(perturbed, given=given)
            log_p, p = log_softmax(pinned.values - noise)
            weights = weighted - total * p
        else:
            # The Gumbel reduction: pins of weight zero, and those that y_A satisfies, are not solved.
            pinned = structure.pinned(perturbed, pins=c != 0, given=given)
            best = np.take_along_axis(pinned.values, pinned.free[:, None].astype(np.intp), axis=1)
            log_p = pinned.values - best
            weights = weighted - total * (np.arange(f.n_labels) == pinned.free[:, None])
        return weighted_log_likelihoods(c, log_p, f), pinned.moments(weights)

    def _given(self, f: Potentials, targets: Targets) -> Labels | None:
        """The known labels of partly labelled examples, where the objective is conditional on them."""
        if not self.conditional or targets.is_complete.all():
            return None
        is_partial = f.layout.repeat(~targets.is_complete)
        return np.where(is_partial, targets.labels, np.int32(-1)).astype(np.int32)


def weighted_log_likelihoods(c: Floats, log_p: Floats, f: Potentials) -> Floats:
    """``sum_d sum_k c[d, k] log_p[d, k]`` of each example.

    Where c is zero, log p may be -inf (an impossible pin) or NaN (one that was not asked for).
    """
    terms = np.multiply(c, log_p, out=np.zeros_like(c), where=c != 0)
    return f.layout.sums(sum_of_labels(terms)[:, 0])
