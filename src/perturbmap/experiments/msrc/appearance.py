"""What each superpixel looks like by itself: log-probabilities of the classes, the features of all that is compared.

A linear classifier of so many features knows its training photos by heart: on them it makes hardly a mistake that an
edge could correct, and a model learned on top would not need its edges. So the log-probabilities of the photos of
train are those of cross-validation, each from the photos of other folds; all others are means over the folds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from perturbmap.estimator import StructuredPredictor
from perturbmap.experiments.msrc.data import PARTS, Msrc, Photo
from perturbmap.models import GraphModel
from perturbmap.objectives import ExactLogLikelihood
from perturbmap.potentials import Floats
from perturbmap.solvers import LBFGS
from perturbmap.structures import Tree
from perturbmap.support import archive
from perturbmap.support.progress import Progress

KIND = "appearance"
N_FOLDS = 4
#: Chosen once by the photos of validation, with histograms over wider surroundings.
L2 = 4e-3
TOLERANCE = 0.05
#: Probabilities below it say no more than that a class is unlikely; their logarithms would be most of a score.
FLOOR = 1e-3


def with_appearance(msrc: Msrc, cache: Path, *, seed: int, n_jobs: int, progress: Progress) -> dict[str, list[Photo]]:
    """The photos of each part, whose features are those of the classes, (n_sites, n_classes): see `as_features`."""
    setting = f"{version('perturbmap')} {N_FOLDS} {L2} {TOLERANCE} {seed} {msrc.fingerprint}"
    path = cache / f"appearance-{hashlib.sha256(setting.encode()).hexdigest()[:20]}.npz"
    try:
        found = archive.load(path, KIND, [], PARTS, lambda _, arrays: arrays)
    except (OSError, ValueError):  # not there, or damaged
        found = _learn(msrc, seed, n_jobs, progress)
        archive.write(path, KIND, {}, found)
    photos = {}
    for part, some in msrc.parts.items():
        ends = np.cumsum([len(photo.areas) for photo in some])
        rows = np.split(found[part], ends[:-1])
        photos[part] = [
            photo.with_features(as_features(np.exp(log_p))) for photo, log_p in zip(some, rows, strict=True)
        ]
    return photos


def as_features(p: Floats) -> Floats:
    """Probabilities on a logarithmic scale from 0 to 1, below a floor nearly 0: a solver's steps suit them all."""
    return np.asarray(np.log1p(p / FLOOR) / np.log1p(1 / FLOOR))


def _learn(msrc: Msrc, seed: int, n_jobs: int, progress: Progress) -> dict[str, Floats]:
    """The log-probabilities of each part, photo after photo."""
    progress.begin("appearance of superpixels")
    train, others = msrc.parts["train"], [*msrc.parts["validation"], *msrc.parts["test"]]
    folds = list(KFold(N_FOLDS, shuffle=True, random_state=seed).split(train))
    of_train: list[Floats] = [np.empty(0)] * len(train)
    of_others: list[list[Floats]] = []
    tasks = [([train[n] for n in rest], [*(train[n] for n in held), *others]) for rest, held in folds]
    # In threads, since the features of all photos are too many to be sent around.
    with threadpool_limits(1), Parallel(n_jobs, backend="threading", return_as="generator") as pool:
        done = pool(delayed(_classify)(len(msrc.classes), *task) for task in tasks)
        for (_, held), log_ps in zip(folds, done, strict=True):
            for n, log_p in zip(held, log_ps[: len(held)], strict=True):
                of_train[n] = log_p
            of_others.append(log_ps[len(held) :])
            progress.advance(len(of_others) / N_FOLDS)
    means = [_normalised(np.mean(log_ps, axis=0)) for log_ps in zip(*of_others, strict=True)]
    n_validation = len(msrc.parts["validation"])
    parts = {"train": of_train, "validation": means[:n_validation], "test": means[n_validation:]}
    return {part: np.concatenate(rows) for part, rows in parts.items()}


def _classify(n_classes: int, train: Sequence[Photo], others: Sequence[Photo]) -> list[Floats]:
    """The log-probabilities of some photos, by multinomial logistic regression on others."""
    X, y = zip(*(photo.without_edges().labelled() for photo in train), strict=True)
    classifier = StructuredPredictor(
        GraphModel(),
        Tree(1),
        ExactLogLikelihood(),
        l2=L2,
        solver=LBFGS(TOLERANCE),
        classes=range(n_classes),
        random_state=0,
    )
    classifier.fit(X, y)
    scores = classifier.potentials([photo.without_edges().example for photo in others])
    return scores.split(_normalised(scores.unary))


def _normalised(scores: Floats) -> Floats:
    """Logarithms of probabilities that sum to 1."""
    return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
