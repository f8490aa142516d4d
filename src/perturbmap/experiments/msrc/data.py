"""The photos of the MSRC experiment: superpixels, their features, and the pixels of each class.

The folder is laid out like this:

    images/NAME.jpg, labels/NAME.png    a photo and its label map: 0 void, 1 and more as split.json says
    split.json                          "classes", names by number; "train", "validation" and "test", lists of names
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Example
from perturbmap.experiments.visual_words import learned_features
from perturbmap.images import FeatureCache, ImageFeatures, Superpixels
from perturbmap.images.folders import list_images
from perturbmap.images.reading import open_image
from perturbmap.potentials import Floats, Labels
from perturbmap.potentials.site_labels import UNKNOWN
from perturbmap.support.progress import Progress

PARTS = ("train", "validation", "test")
#: Classes of a handful of photos, which papers on these data count as void; so do we.
LEFT_OUT = ("horse", "mountain")


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo as an example, whose sites are its superpixels.

    pixels : (n_sites, n_classes), how many pixels of each class a superpixel has, by the label map; void is no class
    """

    file: Path
    example: Example
    superpixels: Superpixels
    pixels: Floats

    @cached_property
    def labels(self) -> Labels:
        """The class that has most pixels of each superpixel; -1 where void has more than all classes together."""
        is_void = 2 * self.pixels.sum(axis=1) < self.superpixels.areas
        return np.where(is_void, UNKNOWN, self.pixels.argmax(axis=1)).astype(np.int32)

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

    features : what made the examples
    n_repeated : photos of train and validation that are left out, since test has the very same
    """

    classes: list[str]
    parts: dict[str, list[Photo]]
    features: ImageFeatures
    n_repeated: int

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
    numbers = {number: name for number, name in names.items() if name not in LEFT_OUT}
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
    photos: dict[str, list[Photo]] = {
        part: [
            Photo(
                path, found[path].example, found[path].superpixels, _pixels(labels, found[path].superpixels, numbers)
            )
            for path, labels in files[part]
            if path in found
        ]
        for part in PARTS
    }
    for part, some in photos.items():
        if not any((photo.labels >= 0).any() for photo in some):
            raise ValueError(f"{part} of {folder / 'split.json'} must have a photo with labels, but all are void.")
    photos["train"] = [photo for photo in photos["train"] if (photo.labels >= 0).any()]
    return Msrc(list(numbers.values()), photos, features, n_repeated)


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


def _pixels(path: Path, regions: Superpixels, numbers: Mapping[int, str]) -> Floats:
    """How many pixels of each class every superpixel has; numbers of no class are void."""
    labels = np.asarray(open_image(path))
    if labels.shape != regions.map.shape:
        raise ValueError(
            f"{path} must have a number for each pixel of its photo, {regions.map.shape}, but has {labels.shape}."
        )
    counts = [np.bincount(regions.map[labels == number], minlength=len(regions)) for number in numbers]
    return np.stack(counts, axis=1).astype(np.float64)
