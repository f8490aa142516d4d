"""How much speaks for each label of a superpixel: colours of the marks, their nearness, what a segmenter learned."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from perturbmap.annotate.marks import Painted
from perturbmap.annotate.palette import N_CELLS, log_densities
from perturbmap.annotate.photo import Photo
from perturbmap.images import Segmenter
from perturbmap.images.superpixels import stretch
from perturbmap.potentials import Floats, Labels

NEAR = 3.0  # the weight of how near a label's marks are
LEARNED = 1.0  # the weight of a segmenter's log-probabilities
STEP = 3.0  # what a step to the next superpixel adds to the length of a way, in units of Lab
SUREST = 1e-3  # the least probability of a segmenter that is believed


def colour_tables(photo: Photo, painted: Painted, n_labels: int) -> Floats:
    """``log p(colour | label)`` by cell of the palette, (n_labels, n_cells), of the colours under the marks.

    ``painted`` are the marks in the photo's fine size. A label without marks has the colours of all that is unmarked.
    """
    counts = np.zeros((n_labels, N_CELLS))
    everywhere = np.bincount(photo.fine_cells.ravel(), minlength=N_CELLS).astype(np.float64)
    marked = painted >= 0
    pairs = painted[marked].astype(np.int64) * N_CELLS + photo.fine_cells[marked]
    counts = np.bincount(pairs, minlength=n_labels * N_CELLS).reshape(n_labels, N_CELLS).astype(np.float64)
    unmarked = everywhere - counts.sum(axis=0)
    rest = unmarked if unmarked.any() else everywhere
    return log_densities(np.stack([row if row.any() else rest for row in counts]), everywhere)


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


def learned_scores(photo: Photo, segmenter: Segmenter, painted: Painted) -> Floats:
    """The segmenter's ``log P(label | marks)``, (n_regions, n_labels), its superpixels spread over ours."""
    described = photo.describe(segmenter.features)
    n_labels = len(segmenter.predictor.classes_)
    theirs = described.superpixels
    known = majority(theirs.map, stretch(painted, theirs.map.shape), len(theirs), n_labels)
    (q,) = segmenter.predictor.predict_marginals([described.example], given=[known])
    scores = np.log(np.maximum(q, SUREST))[stretch(theirs.map, photo.working_shape).ravel()]
    where = photo.regions.map.ravel()
    sums = np.stack([np.bincount(where, column) for column in scores.T], axis=1)
    return sums / photo.regions.areas[:, None]


def majority(regions: Labels, painted: Painted, n_regions: int, n_labels: int) -> Labels:
    """The label that most marked pixels of a superpixel have, the least of equals; -1 where none is marked."""
    marked = painted >= 0
    pairs = regions[marked].astype(np.int64) * n_labels + painted[marked]
    counts = np.bincount(pairs, minlength=n_regions * n_labels).reshape(n_regions, n_labels)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1).astype(np.int32)
