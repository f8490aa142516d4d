"""The images of the horse experiment as one data set: features, labels, boxes, and the pixels to be judged by.

The folder is the one that ``perturbmap prepare-voc`` makes:

    images/small, masks/small    fully labelled, to learn from
    images/medium, boxes.json    bounding boxes alone
    images/unlabelled            nothing; may be left out
    images/test, masks/test      to be judged by, never learned from
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.data.rows import Rows
from perturbmap.experiments.visual_words import learned_features
from perturbmap.images import (
    DescribedImage,
    FeatureCache,
    Superpixels,
    fill_unknown,
    labels_from_boxes,
    labels_from_mask,
    read_mask,
)
from perturbmap.images.folders import list_images
from perturbmap.models import GraphModel
from perturbmap.potentials import Floats, Labels
from perturbmap.potentials.site_labels import UNKNOWN
from perturbmap.support.files import write_atomically
from perturbmap.support.progress import Progress

PARTS = ("small", "medium", "unlabelled", "test")
MASKED = ("small", "test")


@dataclass(frozen=True, eq=False)
class Horses:
    """All images one after another, part by part; arrays over superpixels as `Dataset` has them.

    parts : the images of each part
    files, regions : of each image, its file and its superpixels
    labels : of small and test, by the masks; -1 for a superpixel of nothing but void, and in other parts
    taught : labels to learn from: those of small, without gaps, and the background outside of boxes in medium
    pixels : (n_sites, 2), how many pixels of background and of foreground a superpixel has, by the masks
    first_step : the length with which `AdaptiveStep` would begin on all images; every fit takes it, since to find it
        takes a look at all features, as long as hundreds of steps
    """

    data: Dataset
    parts: dict[str, NDArray[np.intp]]
    files: list[Path]
    regions: list[Superpixels]
    labels: Labels
    taught: Labels
    pixels: Floats
    first_step: float

    def sites(self, images: NDArray[np.intp]) -> NDArray[np.intp]:
        """The superpixels of some images."""
        return self.data.layout.sites_of(images)

    @property
    def fingerprint(self) -> str:
        """A digest of everything that results depend on."""
        digest = hashlib.blake2b(digest_size=8)
        for array in (self.labels, self.taught, self.pixels, self.data.edges, *self.parts.values()):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("".join(path.name for path in self.files).encode())
        digest.update(np.ascontiguousarray(self.data.features.matrix[::97]).tobytes())
        return digest.hexdigest()


def load_horses(
    folder: Path, cache: Path, *, weak: Sequence[str] = ("medium", "unlabelled"), n_jobs: int, progress: Progress
) -> Horses:
    """Reads the folder; of the weakly labelled parts, those that are named and there.

    Features are computed where the cache does not have them, words learned from small alone. The feature matrix is a
    file in the cache, mapped into memory: processes share it, and it may be larger than that.
    """
    listed = {part: _list(folder, part) if part in (*MASKED, *weak) else [] for part in PARTS}
    masks = {part: _masks(folder, part, listed[part]) for part in MASKED}
    boxes = _boxes(folder, listed["medium"]) if listed["medium"] else {}
    features = learned_features(listed["small"], cache, n_jobs, progress)
    found = FeatureCache(cache, features).load(
        [path for part in PARTS for path in listed[part]], n_jobs=n_jobs, progress=progress
    )
    for part in MASKED:
        if not any(path in found for path in listed[part]):
            raise ValueError(f"{folder / 'images' / part} must hold images that can be read, but all are broken.")
    files = list(found)
    images = list(found.values())
    numbers = {path: n for n, path in enumerate(files)}
    parts = {p: np.array([numbers[path] for path in listed[p] if path in numbers], dtype=np.intp) for p in PARTS}
    data = _dataset(images, cache)
    labels, taught = (np.full(data.n_sites, UNKNOWN, dtype=np.int32) for _ in range(2))
    pixels = np.zeros((data.n_sites, 2))
    for part, images_of in parts.items():
        for n in images_of:
            sites, regions = data.layout.sites(n), images[n].superpixels
            if part in MASKED:
                mask = read_mask(masks[part][files[n]], files[n], binary=False)
                labels[sites] = labels_from_mask(regions, mask)
                if (labels[sites] < 0).all():
                    raise ValueError(f"{masks[part][files[n]]} is void all over: remove it and its image.")
                for k in (0, 1):
                    pixels[sites, k] = np.bincount(regions.map[mask == k], minlength=len(regions))
            if part == "small":
                taught[sites] = fill_unknown(regions, labels[sites])
            if part == "medium":
                try:
                    taught[sites] = labels_from_boxes(regions, boxes[files[n].stem])
                except ValueError as error:
                    raise ValueError(f"{folder / 'boxes.json'}, {files[n].stem}: {error}") from None
    for part in MASKED:
        if not {0, 1} <= set(labels[data.layout.sites_of(parts[part])].tolist()):
            raise ValueError(
                f"the masks in {folder / 'masks' / part} must show foreground, 1, and background, 0, but do not; 255 "
                "is void."
            )
    first_step = 1.0 / GraphModel().absolute_length(data, 2)
    return Horses(data, parts, files, [image.superpixels for image in images], labels, taught, pixels, first_step)


def _list(folder: Path, part: str) -> list[Path]:
    where = folder / "images" / part
    found = list(list_images(where).values()) if where.is_dir() and any(where.iterdir()) else []
    if part in MASKED and not found:
        raise FileNotFoundError(
            f"{where} must hold images: --data is a folder as perturbmap prepare-voc makes it, with images/small, "
            "images/test, masks/small, masks/test and, for weak labels, images/medium, boxes.json, images/unlabelled."
        )
    return found


def _masks(folder: Path, part: str, images: list[Path]) -> dict[Path, Path]:
    masks = {path: folder / "masks" / part / f"{path.stem}.png" for path in images}
    missing = [mask for mask in masks.values() if not mask.is_file()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} is missing: every image of {part} must have its mask.")
    return masks


def _boxes(folder: Path, images: list[Path]) -> dict[str, Any]:
    path = folder / "boxes.json"
    try:
        boxes = json.loads(path.read_text(encoding="utf-8"))
        missing = [image.stem for image in images if image.stem not in boxes]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} must be a JSON file of boxes by image, for images/medium ({error}).") from None
    if missing:
        raise ValueError(f"{path} must have boxes of every image in images/medium, but has none of {missing[0]}.")
    return dict(boxes)


def _dataset(images: list[DescribedImage], cache: Path) -> Dataset:
    """The examples joined, their features in one file that is mapped; the same content has the same name."""
    examples = [image.example for image in images]
    digest = hashlib.blake2b(digest_size=10)
    for x in examples:
        digest.update(np.ascontiguousarray(x.features).tobytes())
    path = cache / f"matrix-{digest.hexdigest()}.f32"

    def fill(file: Any) -> None:
        for x in examples:
            file.write(np.ascontiguousarray(x.features, dtype=np.float32).tobytes())

    write_atomically(path, fill)
    without = Dataset.from_examples([replace(x, features=x.features[:, :1]) for x in examples])
    shape = (without.n_sites, examples[0].features.shape[1])
    matrix = np.memmap(path, np.float32, "r", shape=shape)
    return replace(without, features=Rows.of(matrix, without.layout.site_offsets))


def judge(predicted: Labels, horses: Horses, images: NDArray[np.intp]) -> dict[str, Floats]:
    """Four losses of every image: balanced and plain, of superpixels and of pixels."""
    sites = horses.sites(images)
    data = horses.data.take(images)
    first = data.layout.site_offsets[:-1]
    truth, areas, pixels = horses.labels[sites], data.sizes, horses.pixels[sites]
    by_label = np.stack([areas * (truth == 0), areas * (truth == 1)], axis=1)
    wrong = np.stack([predicted != 0, predicted != 1], axis=1)
    losses = {}
    for level, weights in (("superpixels", by_label), ("pixels", pixels)):
        total = np.add.reduceat(weights, first)
        missed = np.add.reduceat(weights * wrong, first)
        shares = np.divide(missed, total, out=np.zeros_like(total), where=total > 0)
        losses[f"balanced {level}"] = shares.sum(axis=1) / np.maximum(1, (total > 0).sum(axis=1))
        if level == "pixels":
            losses["plain pixels"] = missed.sum(axis=1) / np.maximum(1, total.sum(axis=1))
    known = np.add.reduceat((truth >= 0).astype(np.float64), first)
    losses["plain superpixels"] = np.add.reduceat((predicted != truth) & (truth >= 0), first) / np.maximum(1, known)
    return losses
