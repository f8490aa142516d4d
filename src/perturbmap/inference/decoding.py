"""How a prediction is made: the best labelling, or that of the least expected loss under the marginals."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.potentials import Floats, Labels, Layout, SiteLabels
from perturbmap.task_losses import TaskLoss


class Decoding(Enum):
    """Which labelling ``predict`` returns.

    MAP : the best labelling, the one of the highest score; it obeys whatever the structure demands
    MARGINAL : the likeliest label of each site, by its marginal (the probability of the label at that site)
    LOSS_AWARE : the labelling of least expected task loss under the marginals, where some mistakes cost more than
        others; weights that depend on the unknown labels, such as balanced areas, are taken in expectation

    >>> cutter = pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), decoding=pm.Decoding.LOSS_AWARE)
    """

    MAP = "MAP"
    MARGINAL = "MARGINAL"
    LOSS_AWARE = "LOSS_AWARE"


def decode(marginals: ArrayLike, site_weights: ArrayLike | None = None) -> Labels:
    """The labelling of least expected (weighted) Hamming loss, ``argmax_k theta[d, k] q[d, k]``.

    marginals : q, the probability of each label at each site, ``(n_sites, n_labels)``
    site_weights : theta, the cost of missing label k at site d, ``(n_sites, n_labels)``; or ``(n_labels,)`` or
        ``(n_sites, 1)`` where it depends on the label or the site alone. Left out, all mistakes cost the same

    Ties go to the smallest label.

    >>> pm.decode([[0.7, 0.3], [0.4, 0.6]])
    array([0, 1], dtype=int32)
    >>> pm.decode([[0.7, 0.3], [0.4, 0.6]], site_weights=[1, 3])  # missing a 1 costs three times as much
    array([1, 1], dtype=int32)
    """
    q = np.asarray(marginals, dtype=np.float64)
    if q.ndim != 2 or not np.isfinite(q).all() or (q < 0).any():
        raise ValueError(
            f"marginals must be finite, not negative and of shape (n_sites, n_labels), but has shape {q.shape}."
        )
    if site_weights is not None:
        theta = np.asarray(site_weights, dtype=np.float64)
        if not np.isfinite(theta).all() or (theta < 0).any():
            raise ValueError("site_weights must be finite and not negative.")
        try:
            q = q * np.broadcast_to(theta, q.shape)
        except ValueError:
            raise ValueError(
                f"site_weights must broadcast to the shape of marginals, {q.shape}, but has shape {theta.shape}."
            ) from None
    return np.asarray(q.argmax(axis=1), dtype=np.int32)


def decode_for(task_loss: TaskLoss, q: Floats, layout: Layout, sizes: Floats) -> Labels:
    """The labelling of least expected task loss under the marginals q, of a loss that sums over sites.

    Weights that depend on the unknown labels, such as balanced areas, are taken in expectation.
    """
    return decode(q, task_loss.site_weights(SiteLabels.of_soft(q, layout, sizes, decode(q))))
