"""How good a segmentation is: on pixels and on superpixels, on images that were not learned from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from perturbmap.images.labels import labels_from_mask
from perturbmap.images.segmenter import Segmentation, Segmenter
from perturbmap.images.superpixels import paint
from perturbmap.images.training_set import TrainingSet
from perturbmap.support.progress import Progress, as_progress


@final
@dataclass(frozen=True)
class Quality:
    """How good a segmentation is, of one image or on average over images.

    balanced_error : the mean of the shares of pixels that are missed, of foreground and of background, or of all
        classes that the image has
    superpixel_balanced_error : the same for superpixels, whose true label is the one that covers more of them
    pixel_error : the share of wrong pixels
    iou : intersection over union of predicted and true foreground, 1 where both are empty; with classes, the mean
        over those that are there or were found

    Void pixels do not count; an image of void alone has NaN.
    """

    balanced_error: float
    superpixel_balanced_error: float
    pixel_error: float
    iou: float

    @classmethod
    def of(cls, found: Segmentation, mask: NDArray[np.uint8]) -> Quality:
        """The quality of a segmentation, against a mask as `read_mask` has it."""
        regions = found.regions
        truth = labels_from_mask(regions, mask, found.n_labels)
        judged = range(1, 2) if found.classes is None else range(found.n_labels)
        balanced, wrong, iou = _measures(mask, found.mask, found.n_labels, judged)
        on_superpixels = _measures(paint(regions, truth), found.mask, found.n_labels, judged)
        return cls(balanced, on_superpixels[0], wrong, iou)

    @classmethod
    def mean(cls, qualities: list[Quality]) -> tuple[Quality, Quality]:
        """The mean over images, with its standard error (NaN for one image)."""
        table = np.array([[getattr(q, field.name) for field in fields(cls)] for q in qualities])
        table = table[~np.isnan(table).any(axis=1)]
        if len(table) == 0:
            raise ValueError("masks must show foreground or background, but all is void.")
        error = (
            table.std(axis=0, ddof=1) / np.sqrt(len(table)) if len(table) > 1 else np.full(len(fields(cls)), np.nan)
        )
        return cls(*table.mean(axis=0).tolist()), cls(*error.tolist())


def _measures(
    truth: NDArray[np.integer], found: NDArray[np.integer], n_labels: int, overlapping: Iterable[int]
) -> tuple[float, float, float]:
    """Balanced error, error, and intersection over union of some labels, where the truth is a label."""
    judged = (truth >= 0) & (truth < n_labels)
    if not judged.any():
        return np.nan, np.nan, np.nan
    y, predicted = truth[judged], found[judged]
    balanced = float(np.mean([(predicted[y == k] != k).mean() for k in np.unique(y)]))
    unions = [
        (int(((y == k) & (predicted == k)).sum()), int(((y == k) | (predicted == k)).sum())) for k in overlapping
    ]
    ious = [both / union for both, union in unions if union]
    return balanced, float((predicted != y).mean()), float(np.mean(ious)) if ious else 1.0


def cross_validate(
    segmenter: Segmenter, examples: TrainingSet, n_folds: int = 3, *, progress: bool | Progress = True
) -> list[Quality]:
    """The quality on each image with a mask, by segmenters that learned from the other folds.

    Images without a mask take part in every fit. The vocabularies (of the features, see `ImageFeatures`) were learned
    from all images, but from no labels.
    """
    masked = np.flatnonzero(examples.is_masked)
    others = np.flatnonzero(~examples.is_masked)
    if not 2 <= n_folds <= len(masked):
        raise ValueError(f"n_folds must be from 2 to the {len(masked)} images with a mask, but is {n_folds}.")
    bar = as_progress(progress)
    bar.begin("checking")
    found = []
    try:
        for n, (train, test) in enumerate(KFold(n_folds, shuffle=True, random_state=0).split(masked)):
            bar.advance(n / n_folds, note=f"{n + 1} of {n_folds}")
            part = Segmenter(segmenter.features, segmenter.predictor, segmenter.classes)
            part.learn(examples.take(sorted([*masked[train].tolist(), *others.tolist()])), progress=False)
            for i in masked[test]:
                mask = examples.masks[examples.paths[i]]
                predicted = part.predict(examples.described[examples.paths[i]], shape=(mask.shape[0], mask.shape[1]))
                found.append(Quality.of(predicted, mask))
        bar.advance(1.0)
    finally:
        if bar is not progress:
            bar.close()
    return found
