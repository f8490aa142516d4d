"""Images to learn from: described, with the labels that their masks and boxes give."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Example
from perturbmap.images.cache import FeatureCache
from perturbmap.images.class_masks import AnyMasks
from perturbmap.images.features import DescribedImage, ImageFeatures
from perturbmap.images.labels import labels_from_boxes, labels_from_mask
from perturbmap.images.reading import ImageError, MaskWarning, Path_, as_paths, image_size
from perturbmap.images.superpixels import stretch
from perturbmap.potentials import Labels
from perturbmap.support.progress import Progress


@final
@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Images to learn from, described: examples X, their paths and labels y in the same order.

    features : how the images were described
    paths : the paths of the images
    X : the images as examples
    y : their labels 0, 1, ... and -1 (unknown); None for an image of which nothing is known
    masks, described : the masks, and the described images, of the images that have a mask
    """

    features: ImageFeatures
    paths: list[Path]
    X: list[Example]
    y: list[Labels | None]
    masks: AnyMasks
    described: dict[Path, DescribedImage]

    @property
    def is_masked(self) -> NDArray[np.bool_]:
        """(n_images,), which of them have a mask."""
        return np.array([path in self.masks for path in self.paths])

    def take(self, indices: Iterable[int]) -> TrainingSet:
        """The training set of some of the images."""
        some = list(indices)
        return replace(
            self, paths=[self.paths[n] for n in some], X=[self.X[n] for n in some], y=[self.y[n] for n in some]
        )

    @classmethod
    def load(
        cls,
        features: ImageFeatures,
        images: Iterable[Path_],
        masks: AnyMasks,
        boxes: Mapping[Path, Any],
        *,
        cache: str | os.PathLike[str],
        n_jobs: int = 1,
        progress: bool | Progress = True,
        learn_words: bool = True,
    ) -> TrainingSet:
        """Checks masks and boxes, then learns the vocabularies of ``features`` and describes the images.

        An image with a mask is learned from its mask; one with boxes is background outside of them; of the others
        nothing is known. Images that cannot be read are left out with a warning. With ``learn_words=False``, the
        vocabularies are those that ``features`` has.
        """
        paths = as_paths(images)
        known = set(paths)
        for name, given in (("masks", masks), ("boxes", boxes)):
            strangers = [path for path in given if path not in known]
            if strangers:
                raise ValueError(f"{name} must be of images, but {strangers[0]} is not among them.")
        _check_shown(masks.labels, masks.names)
        check_boxes(boxes)
        if learn_words:
            features.fit(paths, n_jobs=n_jobs, progress=progress)
        described = FeatureCache(cache, features).load(paths, n_jobs=n_jobs, progress=progress)
        X, y = [], []
        for path, image in described.items():
            x, labels = _known(path, image, masks, boxes)
            X.append(x)
            y.append(labels)
        masked = {path: image for path, image in described.items() if path in masks}
        # Once more: what covers no superpixel for the greater part is not there to be learned.
        missing = _check_shown(
            {label for labels in y if labels is not None for label in labels.tolist()}, masks.names
        )
        if missing:
            warnings.warn(f"no mask shows {_some(missing)}, which will hardly be found.", MaskWarning, stacklevel=2)
        return cls(features, list(described), X, y, masks, masked)


def _check_shown(labels: set[int], names: Sequence[str]) -> list[str]:
    """The names of what masks do not show; ValueError where they show too little to learn from."""
    missing = [name for label, name in enumerate(names) if label not in labels]
    if missing and len(names) == 2:
        raise ValueError(f"masks must show some {missing[-1]} to learn from, but they show none.")
    if len(names) - len(missing) < 2:
        raise ValueError(f"masks must show two classes at least to learn from, but lack {_some(missing)}.")
    return missing


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def check_boxes(boxes: Mapping[Path, Any]) -> None:
    """Raises a ValueError that names the image whose boxes make no sense."""
    for path, entries in boxes.items():
        try:
            labels_from_boxes(np.zeros(image_size(path), dtype=np.int32), entries)
        except ImageError:
            continue  # the image is broken, and is left out later
        except ValueError as error:
            raise ValueError(f"boxes of {path}: {error}") from None


def _known(path: Path, image: DescribedImage, masks: AnyMasks, boxes: Mapping[Path, Any]) -> tuple[Example, Any]:
    """The example of an image, and what is known of its labels."""
    x = image.example
    if path in masks:
        mask = masks[path]
        regions = stretch(image.superpixels.map, (mask.shape[0], mask.shape[1]))
        labels = labels_from_mask(regions, mask, len(masks.names))
        # Nothing but void: no area, so that no label matters, and the image still counts as fully labelled.
        return replace(x, sizes=np.where(labels < 0, 0.0, x.sizes)), np.maximum(labels, 0)
    if path in boxes:
        return x, labels_from_boxes(stretch(image.superpixels.map, image_size(path)), boxes[path])
    return x, None
