"""What speaks for each label of a superpixel: a learned segmenter, colours, nearness, and what marks correct."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from perturbmap.annotate.marks import Painted
from perturbmap.annotate.palette import N_CELLS, log_densities
from perturbmap.annotate.photo import Photo
from perturbmap.potentials import Floats, Labels

STEP = 3.0  # what a step to the next superpixel adds to the length of a way, in units of Lab
# Of the corrections that marks make: two Gaussian kernels, one of colour alone, one of colour and place.
COLOUR_SCALE, NEAR_COLOUR_SCALE, PLACE_SCALE = 12.0, 20.0, 0.15  # Lab, Lab, shares of the longer side
NOISE = 1.0  # the variance of what a mark says, beside 2 of what is not known of a superpixel
MARGIN = 3.0  # by how much a mark's label should lead
MOST_KRIGED = 400  # marked superpixels, which bounds the time where a box has marked half of the photo


def colour_counts(photo: Photo, painted: Painted, n_labels: int) -> Floats:
    """How many marked pixels of each label have each colour, (n_labels, n_cells); ``painted`` in the fine size."""
    marked = painted >= 0
    pairs = painted[marked].astype(np.int64) * N_CELLS + photo.fine_cells[marked]
    return np.bincount(pairs, minlength=n_labels * N_CELLS).reshape(n_labels, N_CELLS).astype(np.float64)


def colour_tables(photo: Photo, marked: Floats, found: Floats) -> Floats:
    """``log p(colour | label)`` by cell of the palette, (n_labels, n_cells).

    Half of a label's colours are those under its marks, ``marked``, and half those of the superpixels that have it,
    by their probabilities ``found``, (n_regions, n_labels); either stands for both where the other is empty.
    """
    areas = photo.regions.areas.astype(np.float64)
    everywhere = np.asarray(photo.shares.T @ areas)
    spread = np.asarray(photo.shares.T @ (found * areas[:, None])).T
    shares = []
    for ours, theirs in zip(marked, spread, strict=True):
        known = [counts / counts.sum() for counts in (ours, theirs) if counts.any()]
        shares.append(np.mean(known or [everywhere / everywhere.sum()], axis=0))
    return log_densities(np.stack(shares), everywhere)


def nearness(photo: Photo, known: Labels, n_labels: int) -> Floats:
    """How near the marks of a label are, along ways of little change of colour: (n_regions, n_labels), in [0, 1].

    With d_k the length of the shortest way to a mark of label k, ``d / (d_k + d)``, where d is the least of the other
    labels: geodesic distances as in Bai and Sapiro (2009), between superpixels. All are 0 unless two labels have
    marks.
    """
    n = len(photo.regions)
    present = [k for k in range(n_labels) if (known == k).any()]
    near = np.zeros((n, n_labels))
    if len(present) < 2:
        return near
    i, j = photo.regions.edges.T
    lengths = STEP + np.linalg.norm(photo.colours[i] - photo.colours[j], axis=1)
    graph = sp.csr_array((lengths, (i, j)), shape=(n, n))
    ways = [dijkstra(graph, directed=False, indices=np.flatnonzero(known == k), min_only=True) for k in present]
    d = np.stack(ways)
    for at, k in enumerate(present):
        others = np.delete(d, at, axis=0).min(axis=0)
        near[:, k] = others / np.maximum(d[at] + others, 1e-9)
    return near


class Corrections:
    """What marks correct: the scores of similar superpixels move as those of the marked ones must.

    This is regression by a Gaussian process whose mean is the scores so far, s (kriging; Rasmussen and Williams,
    2006, chapter 2): ``s + k(., m) (k(m, m) + NOISE)^-1 (target - s_m)``, m the marked superpixels. A mark
    that says what the scores say already changes little; one that contradicts them changes much, near it and where
    colours are alike.
    """

    def __init__(self, photo: Photo, known: Labels, n_labels: int) -> None:
        marked = np.flatnonzero(known >= 0)
        self.marked = m = marked[:: max(1, -(-len(marked) // MOST_KRIGED))]
        # A target of mean zero, in which the marked label leads by the margin over the mean of two.
        self.target = 2 * MARGIN * (np.eye(n_labels)[known[m]] - 1 / n_labels)
        colour, place = (_squared_distances(x, x[m]) for x in (photo.colours, photo.centres))
        self.kernel = np.exp(-colour / (2 * COLOUR_SCALE**2))
        self.kernel += np.exp(-colour / (2 * NEAR_COLOUR_SCALE**2) - place / (2 * PLACE_SCALE**2))

    def __call__(self, scores: Floats) -> Floats:
        """The scores, (n_regions, n_labels), corrected."""
        at_marks = self.kernel[self.marked] + NOISE * np.eye(len(self.marked))
        wrong = self.target - (scores - scores.mean(axis=1, keepdims=True))[self.marked]
        return np.asarray(scores + self.kernel @ np.linalg.solve(at_marks, wrong))


def _squared_distances(x: Floats, y: Floats) -> Floats:
    """Between the rows of two matrices, (len(x), len(y))."""
    return np.asarray((x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * (x @ y.T)).clip(0)


def majority(regions: Labels, painted: Painted, n_regions: int, n_labels: int) -> Labels:
    """The label that most marked pixels of a superpixel have, the least of equals; -1 where none is marked."""
    marked = painted >= 0
    pairs = regions[marked].astype(np.int64) * n_labels + painted[marked]
    counts = np.bincount(pairs, minlength=n_regions * n_labels).reshape(n_regions, n_labels)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1).astype(np.int32)
