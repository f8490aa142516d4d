"""From marks to a mask: superpixels labelled by a cut, their doubt, and an outline to the pixel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from perturbmap.annotate.band import refine
from perturbmap.annotate.evidence import Corrections, colour_counts, colour_tables, majority, nearness
from perturbmap.annotate.marks import Mark, Painted, Stroke, paint
from perturbmap.annotate.photo import Photo
from perturbmap.images import Segmenter
from perturbmap.images.superpixels import stretch
from perturbmap.inference import marginals
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.potentials.graphs import potts
from perturbmap.structures import BinaryGraph, Graph, Structure
from perturbmap.support.blas import one_blas_thread

# Weights of what speaks for a label, chosen on horses of the small set (docs/decisions.md, "Marks to a mask").
LEARNED = 2.0  # the segmenter's log-probabilities
FIRST_COLOUR, COLOUR = 0.5, 1.0  # log p(colour | label), from the marks, and from what they have led to
NEAR = 2.0  # how near the label's marks are
BACKGROUND = 0.5  # background in itself, where nobody has learned anything
NEVER = 1e3
ATTRACTION = 2.0  # between superpixels of the same colour that touch
N_PERTURBATIONS = 20
TEMPERATURE = 4.0  # marks stand where the answer was wrong: marginals are too sure by so much (Guo et al., 2017)


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What the marks say of a photo.

    mask : (rows, columns) at full size, the class of each pixel
    doubt : (rows, columns) at working size, the probability that the class shown is wrong: 0 is sure, 255 is 1/2 or
        more
    seconds : how long it took
    """

    mask: NDArray[np.uint8]
    doubt: NDArray[np.uint8]
    seconds: float


def answer(
    photo: Photo,
    marks: Sequence[Mark],
    predictor: Segmenter | None = None,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Answer | None:
    """The mask that the marks ask for, and where it is in doubt; None if ``is_cancelled`` says so on the way.

    Without a predictor, the colours under the marks speak for their labels, and the marks that are nearer; without
    marks either, all is background, in doubt. A fitted `Segmenter` adds what it has learned, and marks that
    contradict it correct it, also where the photo looks alike (`Corrections`).

    A superpixel under marks of two labels has that of more of its pixels; the pixels under a mark have its label in
    the mask in any case.
    """
    begin = time.perf_counter()
    n_labels = _n_labels(marks, predictor)
    painted = paint(marks, photo.fine_shape, photo.fine_shape[0] / photo.shape[0])
    if predictor is None and (painted < 0).all():
        return Answer(
            np.zeros(photo.shape, dtype=np.uint8),
            np.full(photo.working_shape, 255, dtype=np.uint8),
            time.perf_counter() - begin,
        )
    seen = paint(marks, photo.working_shape, photo.working_shape[0] / photo.shape[0])
    known = majority(photo.regions.map, seen, len(photo.regions), n_labels)
    if is_cancelled():
        return None
    with one_blas_thread():  # whose rounding would depend on their number
        unary, tables = _scores(photo, painted, known, n_labels, predictor)
    if is_cancelled():
        return None
    f = _potentials(photo, unary)
    structure = _structure(n_labels)
    q = marginals(structure, f, given=known, n_perturbations=N_PERTURBATIONS, rng=0).mean
    if is_cancelled():
        return None
    coarse = q.argmax(axis=1).astype(np.int32)
    fine = refine(photo, coarse, painted, q, tables)
    if is_cancelled():
        return None
    shown = stretch(fine, photo.working_shape)
    tempered = softmax(np.log(np.maximum(q, 1e-300)) / TEMPERATURE, axis=1)
    wrong = 1 - np.take_along_axis(tempered[photo.regions.map], shown[..., None].astype(np.intp), axis=2)[..., 0]
    wrong[seen >= 0] = 0
    doubt = np.round(255 * np.minimum(1, 2 * wrong.clip(0, 1))).astype(np.uint8)
    return Answer(stretch(fine, photo.shape), doubt, time.perf_counter() - begin)


def _scores(
    photo: Photo, painted: Painted, known: Labels, n_labels: int, predictor: Segmenter | None
) -> tuple[Floats, Floats]:
    """The unary potentials of superpixels, (n_regions, n_labels), and log p(colour | label) for the outline.

    Twice: the second time the colours of a label are also those of the superpixels that it had the first time
    (Rother et al., 2004).
    """
    has_marks = np.isin(np.arange(n_labels), known)
    prior = NEAR * nearness(photo, known, n_labels)
    impossible = np.zeros(n_labels)
    if predictor is not None:
        prior += LEARNED * photo.learned(predictor)
    else:
        prior[:, 0] += BACKGROUND
        if n_labels > 2:
            impossible[~has_marks] = -NEVER  # nothing is known of these
    marked = colour_counts(photo, painted, n_labels)
    corrected = Corrections(photo, known, n_labels)
    # A label without marks has the colours of what is unmarked.
    found = ((known < 0)[:, None] & ~has_marks).astype(np.float64)
    tables = colour_tables(photo, marked, found)
    first = corrected(prior + FIRST_COLOUR * (photo.shares @ tables.T)) + impossible
    labels = _structure(n_labels).argmax(_potentials(photo, first), known)
    found = np.eye(n_labels)[labels] * softmax(first, axis=1).max(axis=1, keepdims=True)
    tables = colour_tables(photo, marked, found)
    return corrected(prior + COLOUR * (photo.shares @ tables.T)) + impossible, tables


def _structure(n_labels: int) -> Structure:
    return BinaryGraph() if n_labels == 2 else Graph()


def _potentials(photo: Photo, unary: Floats) -> Potentials:
    """With edges between superpixels that touch, which attract the more, the more alike their colours are."""
    i, j = photo.regions.edges.T
    contrast = ((photo.colours[i] - photo.colours[j]) ** 2).sum(axis=1)
    mean = max(float(contrast.mean()), 1e-6) if len(contrast) else 1.0
    attraction = ATTRACTION * np.exp(-contrast / (2 * mean))
    return Potentials(unary, potts(attraction, unary.shape[1]), photo.regions.edges)


def _n_labels(marks: Sequence[Mark], predictor: Segmenter | None) -> int:
    """The classes of the predictor; without one, those of the marks, background and foreground at least."""
    most = max((mark.label for mark in marks if isinstance(mark, Stroke)), default=1)
    if predictor is None:
        return max(1, most) + 1
    n_labels = len(predictor.predictor.classes_)
    if most >= n_labels:
        raise ValueError(f"marks must have labels below {n_labels}, the predictor's classes, but one has {most}.")
    return n_labels
