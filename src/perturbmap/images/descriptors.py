"""What an image looks like around each point: colour, texture (dense SIFT), position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d, gaussian_filter, uniform_filter
from skimage.color import rgb2lab

from perturbmap.images.reading import Pixels

N_ORIENTATIONS = 8
N_CELLS = 4  # on each side of a patch
LARGEST_ENTRY = 0.2  # of a normalised descriptor: one strong edge must not drown the others
LEAST_CONTRAST = 0.005  # below it there is noise, no texture: the descriptor is zero


def colours(image: Pixels) -> Pixels:
    """Lab of the mean over 3 x 3 pixels: (height, width, 3)."""
    return np.asarray(rgb2lab(uniform_filter(image, size=(3, 3, 1))), dtype=np.float32)


def positions(height: int, width: int) -> Pixels:
    """(x, y) of each pixel's centre, as fractions of width and height: (height, width, 2)."""
    y, x = (np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width
    return np.stack(np.broadcast_arrays(x[None, :], y[:, None]), axis=-1).astype(np.float32)


def dense_sift(image: Pixels, step: int = 4, cell_size: int = 4) -> Pixels:
    """SIFT descriptors (Lowe, 2004) of upright patches on a grid: (ceil(height / step), ceil(width / step), 128).

    Descriptor (i, j) stands for the pixels of block (i, j), ``step`` pixels a side, and is centred there. It has
    4 x 4 cells of ``cell_size`` pixels, each with a histogram of 8 orientations of the gradient, weighted by its
    magnitude; a pixel's gradient is shared linearly between orientations and cells next to it, and outer cells count
    less, by a Gaussian of two cells. Normalised, clipped at 0.2, normalised again. Beyond its border the image is
    mirrored. Order of the 128: cell row, cell column, orientation.
    """
    if cell_size < 2 or cell_size % 2:
        raise ValueError(f"cell_size must be an even number of at least 2 pixels, but is {cell_size!r}.")
    height, width = image.shape[:2]
    margin = 3 * cell_size
    grey = np.pad(image @ np.array([0.299, 0.587, 0.114], dtype=np.float32), margin, mode="symmetric")
    # Lowe's scale: a cell is six times the blur of the image; a camera has done half a pixel of it.
    grey = gaussian_filter(grey, np.sqrt(max(0.0, (cell_size / 6) ** 2 - 0.25)))
    energy = _by_orientation(grey)

    # A triangle shares a pixel between the two cells next to it, in each direction.
    triangle = 1 - np.abs(np.arange(1 - cell_size, cell_size)) / cell_size
    triangle = (triangle / triangle.sum()).astype(np.float32)
    offsets = ((np.arange(N_CELLS) - (N_CELLS - 1) / 2) * cell_size).astype(int)
    rows = margin + np.minimum(np.arange(0, height, step) + step // 2, height - 1)
    columns = margin + np.minimum(np.arange(0, width, step) + step // 2, width - 1)
    closeness = np.exp(-0.5 * ((np.arange(N_CELLS) - (N_CELLS - 1) / 2) / 2) ** 2).astype(np.float32)

    found = np.empty((len(rows), len(columns), N_CELLS, N_CELLS, N_ORIENTATIONS), dtype=np.float32)
    r, c = (rows[:, None] + offsets).ravel(), (columns[:, None] + offsets).ravel()
    for k in range(N_ORIENTATIONS):
        cells = correlate1d(energy[k], triangle, axis=0)[r]
        cells = correlate1d(cells, triangle, axis=1)[:, c]
        found[..., k] = cells.reshape(len(rows), N_CELLS, len(columns), N_CELLS).transpose(0, 2, 1, 3)
    found *= (closeness[:, None] * closeness)[..., None]
    return _normalised(found.reshape(len(rows), len(columns), -1))


def _by_orientation(grey: Pixels) -> Pixels:
    """The gradient's magnitude, shared linearly between the two orientations next to its own: (8, height, width)."""
    dy, dx = np.gradient(grey)
    magnitude = np.hypot(dx, dy)
    turn = (np.arctan2(dy, dx) / (2 * np.pi) % 1) * N_ORIENTATIONS
    lower = np.floor(turn)
    share = turn - lower
    lower = lower.astype(np.int64) % N_ORIENTATIONS
    energy = np.zeros((N_ORIENTATIONS, *grey.shape), dtype=np.float32)
    for k in range(N_ORIENTATIONS):
        energy[k] = magnitude * np.where(lower == k, 1 - share, 0)
        energy[k] += magnitude * np.where(lower == (k - 1) % N_ORIENTATIONS, share, 0)
    return energy


def _normalised(raw: Pixels) -> Pixels:
    norm = np.linalg.norm(raw, axis=-1, keepdims=True)
    unit = np.where(norm >= LEAST_CONTRAST, raw / np.maximum(norm, LEAST_CONTRAST), 0)
    clipped = np.minimum(unit, LARGEST_ENTRY)
    norm = np.linalg.norm(clipped, axis=-1, keepdims=True)
    return np.asarray(np.divide(clipped, norm, out=np.zeros_like(clipped), where=norm > 0), dtype=np.float32)


def spread(blocks: NDArray[np.int32], step: int, height: int, width: int) -> NDArray[np.int32]:
    """Values of blocks on their pixels: (height, width)."""
    return np.asarray(blocks[np.arange(height)[:, None] // step, np.arange(width) // step])
