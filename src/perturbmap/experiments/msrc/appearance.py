"""What each superpixel looks like by itself: log-probabilities of the classes, the features of all that is compared.

A linear classifier of so many features knows its training photos by heart: on them it makes hardly a mistake that an
edge could correct, and a model learned on top would not trust its edges. So the log-probabilities of the photos of
train are those of cross-validation, each from the photos of other folds; all others are means over the folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from perturbmap.estimator import StructuredPredictor
from perturbmap.experiments.msrc.data import PARTS, Msrc, Photo
from perturbmap.images import ImageFeatures
from perturbmap.models import GraphModel
from perturbmap.objectives import ExactLogLikelihood
from perturbmap.potentials import Floats
from perturbmap.solvers import LBFGS
from perturbmap.structures import Tree
from perturbmap.support import archive
from perturbmap.support.progress import Progress

KIND = "appearance"
N_FOLDS = 4
#: Chosen by the photos of validation, once; their accuracy hardly changes from a third of it to three times as much.
L2 = 4e-3
TOLERANCE = 0.05
#: Probabilities below it say no more than that a class is unlikely; their logarithms would be most of a score.
FLOOR = 1e-3


def with_appearance(msrc: Msrc, cache: Path, *, seed: int, n_jobs: int, progress: Progress) -> dict[str, list[Photo]]:
    """The photos of each part, whose features are log-probabilities, (n_sites, 2 * n_classes): see `in_context`."""
    path = cache / f"appearance-{msrc.fingerprint}-{seed}.npz"
    try:
        found = archive.load(path, KIND, [], PARTS, lambda _, arrays: arrays)
    except (OSError, ValueError):  # not there, or damaged
        found = _learn(msrc, seed, n_jobs, progress)
        archive.write(path, KIND, {}, found)
    photos = {}
    for part, some in msrc.parts.items():
        ends = np.cumsum([len(photo.areas) for photo in some])
        rows = np.split(found[part], ends[:-1])
        photos[part] = [in_context(photo, np.exp(log_p)) for photo, log_p in zip(some, rows, strict=True)]
    return photos


def in_context(photo: Photo, p: Floats) -> Photo:
    """The photo with log-probabilities as features: of the classes at each superpixel, and over the whole photo.

    p : (n_sites, n_classes), the probabilities
    """
    whole = np.average(p, axis=0, weights=photo.areas)
    return photo.with_features(
        np.log1p(np.concatenate([p, np.tile(whole, (len(p), 1))], axis=1) / FLOOR) / np.log1p(1 / FLOOR)
    )


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
        done = pool(delayed(_classify)(msrc.features, len(msrc.classes), *task) for task in tasks)
        for (_, held), log_ps in zip(folds, done, strict=True):
            for n, log_p in zip(held, log_ps[: len(held)], strict=True):
                of_train[n] = log_p
            of_others.append(log_ps[len(held) :])
            progress.advance(len(of_others) / N_FOLDS)
    means = [_normalised(np.mean(log_ps, axis=0)) for log_ps in zip(*of_others, strict=True)]
    n_validation = len(msrc.parts["validation"])
    parts = {"train": of_train, "validation": means[:n_validation], "test": means[n_validation:]}
    return {part: np.concatenate(rows) for part, rows in parts.items()}


def _classify(
    features: ImageFeatures, n_classes: int, train: Sequence[Photo], others: Sequence[Photo]
) -> list[Floats]:
    """The log-probabilities of some photos, by multinomial logistic regression on others."""
    X, y = zip(*(_alone(photo, features).labelled() for photo in train), strict=True)
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
    scores = classifier.potentials([_alone(photo, features).example for photo in others])
    return scores.split(_normalised(scores.unary))


def _normalised(scores: Floats) -> Floats:
    """Logarithms of probabilities that sum to 1."""
    return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))


def _alone(photo: Photo, features: ImageFeatures) -> Photo:
    """The photo without edges, each superpixel with its own features and those of the whole photo."""
    x = np.asarray(photo.example.features)
    whole = np.tile(_whole(x, photo.areas, features), (len(x), 1))
    return photo.with_features(np.concatenate([x, whole], axis=1)).without_edges()


def _whole(x: NDArray[np.float32], areas: Floats, features: ImageFeatures) -> NDArray[np.float32]:
    """Histograms of colour and SIFT words over the whole photo; ``x`` has three of each kind, by `ImageFeatures`."""
    colour = 1 + 3 * features.n_position_words
    sift = colour + 3 * features.n_colour_words
    own = [x[:, colour : colour + features.n_colour_words], x[:, sift : sift + features.n_sift_words]]
    return np.asarray(np.sqrt((areas / areas.sum()) @ np.concatenate(own, axis=1) ** 2), dtype=np.float32)
