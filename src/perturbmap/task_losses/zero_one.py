"""The zero-one loss: whether the whole labelling is right."""

from __future__ import annotations

from typing import final

import numpy as np

from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.task_losses.base import TaskLoss


@final
class ZeroOne(TaskLoss):
    """``[y != yhat]``: 1 for an example with any mistake, else 0.

    Its row of Table 1 of the paper is the log-likelihood, not a sum over sites: see `LogLikelihood`.

    >>> from perturbmap.potentials import Layout, SiteLabels
    >>> known = SiteLabels.of([0, 1, 1, 0], n_labels=2, layout=Layout.of_counts([3, 1]))  # two examples
    >>> pm.ZeroOne().value(known, np.array([0, 0, 1, 0]))
    array([1., 0.])
    """

    sums_over_sites = False

    def site_weights(self, known: SiteLabels) -> Floats:
        """Raises an error: the loss does not sum over sites."""
        raise ValueError("ZeroOne does not sum over sites: learn with LogLikelihood, or use a Hamming loss.")

    def example_losses(self, known: SiteLabels, predicted: Labels) -> Floats:
        """See `TaskLoss.example_losses`: 1 for an example with any mistake."""
        wrong = (known.labels != predicted) & (known.labels >= 0)
        return np.asarray(known.layout.sums(wrong) > 0, dtype=np.float64)
