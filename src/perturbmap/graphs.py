"""Helpers for the edges and tables of common graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.potentials import Floats, Labels, as_floats


def grid_edges(height: int, width: int) -> Labels:
    """Edges between horizontal and vertical neighbours of an image, sites numbered row by row.

    >>> pm.grid_edges(2, 2).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    if height < 0 or width < 0:
        raise ValueError(f"height and width must not be negative, but are {height} and {width}.")
    sites = np.arange(height * width, dtype=np.int32).reshape(height, width)
    across = np.stack([sites[:, :-1].ravel(), sites[:, 1:].ravel()], axis=1)
    down = np.stack([sites[:-1].ravel(), sites[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def potts(weights: ArrayLike, n_labels: int = 2) -> Floats:
    """Tables that reward equal labels: ``weights[e] * [a == b]``; a single weight makes one shared table.

    >>> pm.potts(0.5)
    array([[0.5, 0. ],
           [0. , 0.5]])
    >>> pm.potts([0.5, 2.0]).shape
    (2, 2, 2)
    """
    return as_floats("weights", weights)[..., None, None] * np.eye(n_labels)
