"""Colours as cells of a grid in Lab, and how likely each cell is under each label: densities of marked colours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from perturbmap.images.reading import Pixels
from perturbmap.potentials import Floats

Cells = NDArray[np.int32]

WIDTH = 5.0  # of a cell, in each direction of Lab
LOWEST = np.array([0.0, -90.0, -110.0], dtype=np.float32)  # what sRGB has in L, a and b is within
SHAPE = (21, 38, 42)
N_CELLS = SHAPE[0] * SHAPE[1] * SHAPE[2]
BLUR = 1.0  # cells, of the kernel of the density
DOUBT = 0.2  # the share of the photo's own colours in those of every label


def cells_of(lab: Pixels) -> Cells:
    """The cell of each Lab colour: the shape of ``lab`` without its last axis."""
    at = ((lab - LOWEST) / np.float32(WIDTH)).astype(np.int32)
    at = np.clip(at, 0, np.array(SHAPE, dtype=np.int32) - 1)
    return np.asarray((at[..., 0] * SHAPE[1] + at[..., 1]) * SHAPE[2] + at[..., 2], dtype=np.int32)


def log_densities(counts: Floats, everywhere: Floats) -> Floats:
    """``log p(cell | label)``, (n_labels, n_cells): a kernel density of the colours of each label.

    counts : (n_labels, n_cells), how much of each colour has each label, none of them empty
    everywhere : (n_cells,), the same of the whole photo; its density is mixed in, so that a colour that nobody has
        marked speaks for no label
    """
    smooth = [gaussian_filter(row.reshape(SHAPE), BLUR, mode="constant").ravel() for row in (*counts, everywhere)]
    shares = np.stack(smooth) / np.stack(smooth).sum(axis=1, keepdims=True)
    mixed = (1 - DOUBT) * shares[:-1] + DOUBT * shares[-1]
    return np.asarray(np.log(mixed + 1e-12))
