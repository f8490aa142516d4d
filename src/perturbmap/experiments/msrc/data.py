"""The photos of the MSRC experiment: superpixels, their features, and the pixels of each class.

The folder is laid out like this:

    images/NAME.jpg, labels/NAME.png    a photo and its label map: 0 void, 1 and more as split.json says
    split.json                          "classes", names by number; "train", "validation" and "test", lists of names
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Example
from perturbmap.experiments.visual_words import learned_features
from perturbmap.images import FeatureCache, ImageFeatures, Superpixels
from perturbmap.images.features import SCALES
from perturbmap.images.folders import list_images
from perturbmap.images.reading import open_image
from perturbmap.potentials import Floats, Labels
from perturbmap.potentials.site_labels import UNKNOWN
from perturbmap.support.progress import Progress

PARTS = ("train", "validation", "test")
#: The scales of similarities that are kept: neighbours among all eleven differ little, and slow a solver down.
SCALES_KEPT = (0.5, 2.0, 8.0)
#: Classes of a handful of photos, which papers on these data count as void; so do we.
LEFT_OUT = ("horse", "mountain")


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo as an example, whose sites are its superpixels; sizes are their areas.

    pixels : (n_sites, n_classes), how many pixels of each class a superpixel has, void left out
    """

    file: Path
    example: Example
    pixels: Floats

    @cached_property
    def labels(self) -> Labels:
        """The class that has most pixels of each superpixel; -1 where void has more than all classes together."""
        is_void = 2 * self.pixels.sum(axis=1) < self.areas
        return np.where(is_void, UNKNOWN, self.pixels.argmax(axis=1)).astype(np.int32)

    @property
    def areas(self) -> Floats:
        """The areas of superpixels, in pixels."""
        return np.asarray(self.example.sizes)

    def with_features(self, features: NDArray[Any]) -> Photo:
        """The same photo with other features of its superpixels."""
        return replace(self, example=replace(self.example, features=features))

    def without_edges(self) -> Photo:
        """The same photo, whose superpixels do not know of each other."""
        x = self.example
        return replace(self, example=Example(x.features, np.zeros((0, 2), dtype=np.int32), sizes=x.sizes))

    def labelled(self) -> tuple[Example, Labels]:
        """What is learned from: superpixels that are not void, the edges between them, and their labels."""
        x, is_known = self.example, self.labels >= 0
        numbers = np.cumsum(is_known, dtype=np.int32) - 1
        edges = np.asarray(x.edges)
        kept = is_known[edges].all(axis=1)
        similarities = None if x.edge_features is None else x.edge_features[kept]
        features, sizes = np.asarray(x.features)[is_known], np.asarray(x.sizes)[is_known]
        return Example(features, numbers[edges[kept]], similarities, sizes=sizes), self.labels[is_known]


@dataclass(frozen=True, eq=False)
class Msrc:
    """The photos of each part, and the names of the classes in the order of labels.

    superpixels : of each photo, by its file
    n_repeated : photos of train and validation that are left out, since test has the very same
    numbers, label_files : the classes as label maps number them, and where the maps are
    """

    classes: list[str]
    parts: dict[str, list[Photo]]
    superpixels: dict[Path, Superpixels]
    n_repeated: int
    numbers: list[int]
    label_files: dict[Path, Path]

    def label_map(self, photo: Photo) -> Labels:
        """The class of each pixel, (height, width); -1 is void."""
        return read_labels(self.label_files[photo.file], self.superpixels[photo.file], self.numbers)

    @property
    def fingerprint(self) -> str:
        """A digest of everything that results depend on."""
        digest = hashlib.blake2b(json.dumps(self.classes).encode(), digest_size=8)
        for part, photos in self.parts.items():
            for photo in photos:
                digest.update(f"{part} {photo.file.name}".encode())
                x = photo.example
                for array in (photo.pixels, x.edges, x.edge_features, x.features[::7]):
                    digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def load_msrc(folder: Path, cache: Path, *, n_jobs: int, progress: Progress) -> Msrc:
    """Reads the folder; features are computed where the cache does not have them, words learned from train alone.

    A photo of train or validation that is also in test, under another name, is left out.
    """
    names, parts = _split(folder / "split.json")
    numbers = [number for number, name in names.items() if name not in LEFT_OUT]
    files = {part: _files(folder, part, stems) for part, stems in parts.items()}
    contents = {path: hashlib.sha256(path.read_bytes()).digest() for some in files.values() for path, _ in some}
    tested = {contents[path] for path, _ in files["test"]}
    n_repeated = 0
    for part in ("train", "validation"):
        kept = [(path, labels) for path, labels in files[part] if contents[path] not in tested]
        n_repeated += len(files[part]) - len(kept)
        files[part] = kept
    features = learned_features([path for path, _ in files["train"]], cache, n_jobs, progress)
    listed = [path for part in PARTS for path, _ in files[part]]
    found = FeatureCache(cache, features).load(listed, n_jobs=n_jobs, progress=progress)
    superpixels = {path: described.superpixels for path, described in found.items()}
    photos = {
        part: [
            Photo(
                path,
                _example(found[path].example, features),
                _pixels(read_labels(labels, cut, numbers), cut, len(numbers)),
            )
            for path, labels in files[part]
            if (cut := superpixels.get(path)) is not None
        ]
        for part in PARTS
    }
    for part, some in photos.items():
        if not any((photo.labels >= 0).any() for photo in some):
            raise ValueError(f"{part} of {folder / 'split.json'} must have a photo with labels, but all are void.")
    photos["train"] = [photo for photo in photos["train"] if (photo.labels >= 0).any()]
    label_files = {path: labels for part in PARTS for path, labels in files[part]}
    classes = [names[number] for number in numbers]
    return Msrc(classes, photos, superpixels, n_repeated, numbers, label_files)


def _split(path: Path) -> tuple[dict[int, str], dict[str, list[str]]]:
    """The names of the classes by their numbers, and the names of the photos of each part."""
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
        names = {int(number): str(name) for number, name in contents["classes"].items()}
        parts = {part: [str(stem) for stem in contents[part]] for part in PARTS}
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: --data is a folder with images, labels and split.json."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f'{path} must be a JSON file with "classes", names by number, and lists of photos "train", "validation" '
            f'and "test" ({type(error).__name__}: {error}).'
        ) from None
    for part, stems in parts.items():
        if not stems:
            raise ValueError(f"{path} must name photos for {part}, but names none.")
    return dict(sorted(names.items())), parts


def _files(folder: Path, part: str, stems: Sequence[str]) -> list[tuple[Path, Path]]:
    """The files of photos, each with its label map."""
    listed = {kind: list_images(folder / kind) if (folder / kind).is_dir() else {} for kind in ("images", "labels")}
    for stem in stems:
        for kind, found in listed.items():
            if stem not in found:
                raise FileNotFoundError(f"{folder / kind} must hold {stem}, which split.json names in {part}.")
    return [(listed["images"][stem], listed["labels"][stem]) for stem in stems]


def _example(x: Example, features: ImageFeatures) -> Example:
    """The example with histograms of superpixels and their neighbours, and a few of the scales of similarities.

    `ImageFeatures` has a third histogram of each kind, over the neighbours of neighbours too. It would do what edges
    are there for: to tell what is around.
    """
    assert x.edge_features is not None
    near, first = [np.zeros(1, dtype=np.intp)], 1
    for n_words in (features.n_position_words, features.n_colour_words, features.n_sift_words):
        near.append(np.arange(first, first + 2 * n_words))
        first += 3 * n_words
    kept = np.isin(np.tile(SCALES, (x.edge_features.shape[1] - 1) // len(SCALES)), SCALES_KEPT)
    similarities = x.edge_features[:, np.concatenate([[True], kept])]
    return replace(x, features=np.asarray(x.features)[:, np.concatenate(near)], edge_features=similarities)


def read_labels(path: Path, regions: Superpixels, numbers: Sequence[int]) -> Labels:
    """A label map as classes 0, 1, ..., in the order of ``numbers``; -1 for all others, which are void."""
    found = np.asarray(open_image(path))
    if found.shape != regions.map.shape:
        raise ValueError(
            f"{path} must have a number for each pixel of its photo, {regions.map.shape}, but has {found.shape}."
        )
    labels = np.full(found.shape, UNKNOWN, dtype=np.int32)
    for k, number in enumerate(numbers):
        labels[found == number] = k
    return labels


def _pixels(labels: Labels, regions: Superpixels, n_classes: int) -> Floats:
    """How many pixels of each class every superpixel has."""
    counts = [np.bincount(regions.map[labels == k], minlength=len(regions)) for k in range(n_classes)]
    return np.stack(counts, axis=1).astype(np.float64)
