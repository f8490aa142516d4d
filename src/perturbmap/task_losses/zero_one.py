"""The zero-one loss: whether the whole labelling is right."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.site_arrays import sums_by_example
from perturbmap.task_losses.base import TaskLoss


@final
class ZeroOne(TaskLoss):
    """``[y != yhat]``. Its row of Table 1 is the log-likelihood, not a sum over sites: see `LogLikelihood`.

    >>> y, found = np.array([0, 1, 1, 0]), np.array([0, 0, 1, 0])
    >>> pm.ZeroOne().value(y, found, sizes=np.ones(4), offsets=np.array([0, 3, 4]), n_labels=2)  # two examples
    array([1., 0.])
    """

    def site_weights(self, q: Floats, sizes: Floats, offsets: NDArray[np.int64]) -> Floats:
        """Refused: the loss does not sum over sites."""
        raise ValueError("ZeroOne does not sum over sites: learn with LogLikelihood, or use a Hamming loss.")

    def value(self, y: Any, predicted: Any, sizes: Floats, offsets: NDArray[np.int64], n_labels: int) -> Floats:
        """See `TaskLoss.value`."""
        wrong = np.asarray((y != predicted) & (y >= 0), dtype=np.float64)
        return np.asarray(sums_by_example(wrong, offsets) > 0, dtype=np.float64)
