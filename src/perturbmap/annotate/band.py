"""The outline to the pixel: a second cut, on the grid of pixels in a band around the outline of superpixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter

from perturbmap.annotate.marks import Painted
from perturbmap.annotate.photo import Photo
from perturbmap.images.superpixels import stretch
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.potentials.graphs import potts
from perturbmap.structures import BinaryGraph, Graph, Structure

RADIUS = 8  # pixels of the working size on either side of the outline: about the width of a superpixel
COLOUR = 0.3  # the weight of a pixel's colour
REGION = 0.5  # the weight of its superpixel's log-probabilities
SUREST = 1e-3  # the least probability of a superpixel that is believed
ATTRACTION = 4.0  # between neighbouring pixels of the same colour


def refine(photo: Photo, coarse: Labels, painted: Painted, q: Floats, tables: Floats) -> NDArray[np.uint8]:
    """The label of each pixel in the photo's fine size.

    coarse : (n_regions,), the labels of superpixels
    painted : the marks in the fine size; a marked pixel keeps its label
    q : (n_regions, n_labels), the probabilities of superpixels
    tables : (n_labels, n_cells), log p(colour | label), as `colour_tables` has them

    Neighbours attract each other by ``exp(-|difference of Lab|^2 / (2 mean))`` (Boykov and Jolly, 2001); pixels
    outside of the band have their labels already, and attract as all do.
    """
    shape, n_labels = photo.fine_shape, q.shape[1]
    regions = stretch(photo.regions.map, shape)
    fine: NDArray[np.uint8] = np.where(painted >= 0, painted, coarse.astype(np.int8)[regions]).astype(np.uint8)
    free = stretch(_band(photo, coarse, painted), shape) & (painted < 0)
    at = np.flatnonzero(free)
    if len(at) == 0:
        return fine
    number = np.full(free.size, -1, dtype=np.int32)
    number[at] = np.arange(len(at), dtype=np.int32)
    unary = COLOUR * tables.T[photo.fine_cells.ravel()[at]]
    unary += REGION * np.log(np.maximum(q, SUREST))[regions.ravel()[at]]
    # Pixels by number, row by row; each pair of neighbours with a pixel in the band once.
    first, second = np.concatenate([_pairs(free, 0, 1), _pairs(free, 1, 0)], axis=1)
    lab = photo.fine_lab.reshape(-1, 3)
    contrast = ((lab[first] - lab[second]) ** 2).sum(axis=1, dtype=np.float64)
    attraction = ATTRACTION * np.exp(-contrast / (2 * max(float(contrast.mean()), 1e-6)))
    labels = fine.ravel()
    for here, there in ((first, second), (second, first)):
        outside = number[there] < 0
        pull = number[here[outside]].astype(np.int64) * n_labels + labels[there[outside]]
        unary += np.bincount(pull, attraction[outside], minlength=unary.size).reshape(unary.shape)
    inside = (number[first] >= 0) & (number[second] >= 0)
    edges = np.stack([number[first[inside]], number[second[inside]]], axis=1)
    structure: Structure = BinaryGraph() if n_labels == 2 else Graph()
    f = Potentials(unary, potts(attraction[inside], n_labels), edges)
    labels[at] = structure.argmax(f).astype(np.uint8)
    return labels.reshape(shape)


def _pairs(free: NDArray[np.bool_], down: int, right: int) -> NDArray[np.intp]:
    """The pixels and their neighbours below or to the right, (2, n_pairs), where either of them is free."""
    rows, columns = free.shape
    either = np.zeros_like(free)
    either[: rows - down, : columns - right] = free[: rows - down, : columns - right] | free[down:, right:]
    first = np.flatnonzero(either)
    return np.stack([first, first + down * columns + right])


def _band(photo: Photo, coarse: Labels, painted: Painted) -> NDArray[np.bool_]:
    """Which pixels of the working size are near a change of label, or near a mark that its superpixel denies."""
    marks = stretch(painted, photo.working_shape)
    labels = np.where(marks >= 0, marks, coarse.astype(np.int8)[photo.regions.map])
    size = 2 * RADIUS + 1
    return np.asarray(maximum_filter(labels, size) != minimum_filter(labels, size))
