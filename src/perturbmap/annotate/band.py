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
ATTRACTION = 4.0  # between neighbouring pixels of the same colour


def refine(photo: Photo, coarse: Labels, painted: Painted, q: Floats, tables: Floats) -> NDArray[np.uint8]:
    """The label of each pixel in the photo's fine size.

    coarse : (n_regions,), the labels of superpixels
    painted : the marks in the fine size; a marked pixel keeps its label
    q : (n_regions, n_labels), the probabilities of superpixels
    tables : (n_labels, n_cells), log p(colour | label), as `colour_tables` has them

    Neighbours attract each other by ``exp(-|difference of Lab|^2 / (2 mean))`` (Boykov and Jolly, 2001).
    """
    shape = photo.fine_shape
    regions = stretch(photo.regions.map, shape)
    fine: NDArray[np.uint8] = coarse.astype(np.uint8)[regions]
    marked = painted >= 0
    in_band = stretch(_band(photo, coarse, painted), shape)
    fine[marked] = painted[marked].astype(np.uint8)
    if not in_band.any():
        return fine
    free = in_band & ~marked
    rows, columns = np.nonzero(free)
    n = len(rows)
    if n == 0:
        return fine
    number = np.full(shape, -1, dtype=np.int32)
    number[rows, columns] = np.arange(n, dtype=np.int32)
    unary = (
        COLOUR * tables.T[photo.fine_cells[rows, columns]]
        + REGION * np.log(np.maximum(q, 1e-3))[regions[rows, columns]]
    )
    edges, weights = [], []
    for down, right in ((0, 1), (1, 0)):
        here, there = _pairs(number, down, right)
        either = (here >= 0) | (there >= 0)
        a, b = np.nonzero(either)
        lab = photo.fine_lab
        contrast = ((lab[a, b] - lab[a + down, b + right]) ** 2).sum(axis=1)
        attraction = contrast
        i, j = here[a, b], there[a, b]
        edges.append(np.stack([i, j], axis=1))
        weights.append(attraction)
        outside_i, outside_j = fine[a, b], fine[a + down, b + right]
        edges[-1] = np.stack([i, j, outside_i, outside_j], axis=1)
    pairs, contrast = np.concatenate(edges), np.concatenate(weights)
    strength = ATTRACTION * np.exp(-contrast / (2 * max(float(contrast.mean()), 1e-6)))
    inside = (pairs[:, 0] >= 0) & (pairs[:, 1] >= 0)
    for here_, other in ((0, 3), (1, 2)):
        # A neighbour outside of the band has its label already, and pulls towards it.
        bound = (pairs[:, here_] >= 0) & ~inside
        np.add.at(unary, (pairs[bound, here_], pairs[bound, other]), strength[bound])
    n_labels = unary.shape[1]
    f = Potentials(unary, potts(strength[inside], n_labels), pairs[inside, :2].astype(np.int32))
    structure: Structure = BinaryGraph() if n_labels == 2 else Graph()
    fine[rows, columns] = structure.argmax(f).astype(np.uint8)
    return fine


def _pairs(number: NDArray[np.int32], down: int, right: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The numbers of pixels, and those of their neighbours below or to the right."""
    rows, columns = number.shape
    return number[: rows - down, : columns - right], number[down:, right:]


def _band(photo: Photo, coarse: Labels, painted: Painted) -> NDArray[np.bool_]:
    """Which pixels of the working size are near a change of label, or near a mark that its superpixel denies."""
    labels = coarse[photo.regions.map].astype(np.int16)
    marks = stretch(painted, photo.working_shape)
    labels = np.where(marks >= 0, marks, labels)
    size = 2 * RADIUS + 1
    return np.asarray(maximum_filter(labels, size) != minimum_filter(labels, size))
