"""How long a fit will take: three images are gone through, and the times scaled."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from joblib import cpu_count

from perturbmap.data import Example
from perturbmap.images.class_masks import AnyMasks
from perturbmap.images.features import ImageFeatures, sample_descriptors
from perturbmap.images.labels import labels_from_mask
from perturbmap.images.reading import ImageError
from perturbmap.images.segmenter import FEW_MASKS, Segmenter
from perturbmap.images.superpixels import stretch
from perturbmap.images.vocabulary import Vocabulary
from perturbmap.potentials import Labels
from perturbmap.solvers import Solver
from perturbmap.support.blas import one_blas_thread

N_IMAGES = 3
CLUSTERING = 20  # the iterations of k-means, each of which assigns all descriptors once, about
MOST_STEPS, LONG_ENOUGH = 200, 1.0  # steps of a fit to be timed, at most; and seconds after which they are enough
START_OF_PROCESSES = 3.0  # seconds


def seconds_to_fit(segmenter: Segmenter, n_images: int, masks: AnyMasks, n_jobs: int, n_folds: int) -> float | None:
    """Seconds for vocabularies, features, learning and cross-validation; None where no image can be read.

    A few images with masks stand for all, and a fit on them, with the words of one of them, for the fit.
    """
    n_jobs = max(1, min(n_images, cpu_count() if n_jobs == -1 else n_jobs))
    features = copy.copy(segmenter.features)
    n_each = -(-features.n_samples // n_images)
    words = 0.0
    each: list[float] = []
    X: list[Example] = []
    y: list[Labels] = []
    for path in _spread(masks):
        try:
            began = perf_counter()
            samples = sample_descriptors(features, path, n_each, (features.seed, 0))
            sampled = perf_counter() - began
            if not X:
                features.vocabularies_ = {k: _any_words(features, k, rows) for k, rows in samples.items()}
                began = perf_counter()
                for kind, vocabulary in features.vocabularies_.items():
                    vocabulary.assign(samples[kind])
                words = CLUSTERING * n_images * (perf_counter() - began)
            began = perf_counter()
            image = features.describe(path)
            each.append(sampled + perf_counter() - began)
            mask = masks[path]
        except (ImageError, OSError):
            continue
        regions = stretch(image.superpixels.map, (mask.shape[0], mask.shape[1]))
        X.append(image.example)
        y.append(np.maximum(labels_from_mask(regions, mask, len(masks.names)), 0))
    if not X:
        return None
    # L-BFGS, for few images, is faster; how fast is not known before.
    solver = segmenter.predictor.solver_for(np.inf)
    look = _seconds_per_look(segmenter, solver, X, y, n_images)
    parts = [len(masks), *[round(len(masks) * (n_folds - 1) / n_folds) for _ in range(n_folds)]]
    learning = sum(look * _looks(segmenter, solver, n_masked, n_images - len(masks)) for n_masked in parts)
    describing = n_images * float(np.median(each)) / n_jobs  # the first is slow, with what is loaded on the way
    return words + describing + learning + (START_OF_PROCESSES if n_jobs > 1 else 0)


def _seconds_per_look(
    segmenter: Segmenter, solver: Solver[Any], X: list[Example], y: list[Labels], n_images: int
) -> float:
    """What one image takes in a step of the size that the fit will have: threads have an even share then."""
    n = solver.examples_per_step(n_images)
    n = n if n < n_images else len(X)  # a solver of all images at once is timed by a few
    problem = segmenter.predictor.problem([X[i % len(X)] for i in range(n)], [y[i % len(X)] for i in range(n)])
    state = solver.start(problem)
    steps: list[float] = []
    while len(steps) < 4 or (len(steps) < MOST_STEPS and sum(steps) < LONG_ENOUGH):
        began = perf_counter()
        with one_blas_thread():  # as in a fit
            solver.run(problem, state, n_iter=len(steps) + 1)
        steps.append(perf_counter() - began)
    return float(np.median(steps)) / n  # the first is slow, and so is any while others have the cores


def _looks(segmenter: Segmenter, solver: Solver[Any], n_masked: int, n_others: int) -> int:
    """How many images the steps of a fit look at: for its calibration, and in both phases."""
    n_folds = (segmenter.predictor.calibration or 0) if n_masked >= FEW_MASKS else 0
    sizes = [*[n_masked] * (n_folds + 1), *([n_masked + n_others] if n_others else [])]
    return sum(solver.n_iter(n) * solver.examples_per_step(n) for n in sizes)


def _spread(masks: Iterable[Path]) -> list[Path]:
    paths = list(masks)
    return [paths[n] for n in np.unique(np.linspace(0, len(paths) - 1, N_IMAGES).astype(int))]


def _any_words(features: ImageFeatures, kind: str, rows: np.ndarray) -> Vocabulary:
    n_words = getattr(features, f"n_{kind}_words")
    return Vocabulary(np.resize(rows, (n_words, rows.shape[1])))
