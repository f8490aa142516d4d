"""Made scenes to annotate, marks that a person might draw on them, and how well an answer fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perturbmap.annotate.folder import WORDS, AnnotationFolder

from .scenes import coarse, scene


def make_photos(root: Path, n_photos: int = 4, height: int = 84, width: int = 100) -> Path:
    """The folder photos, of scenes s0.png, s1.png, ..."""
    photos = root / "photos"
    photos.mkdir()
    for n in range(n_photos):
        Image.fromarray(scene(n, height, width)[0]).save(photos / f"s{n}.png")
    return photos


def keep_few_words(photos: Path) -> None:
    """Few visual words for the photos, so that lessons are short; those that are there are not learned anew."""
    folder = AnnotationFolder(photos)
    features = coarse(150, max_side=400, n_samples=100_000)
    features.fit(folder.files.values(), progress=False).save(folder.masks / WORDS)


def truth(n: int) -> NDArray[np.uint8]:
    """The mask of scene n."""
    return scene(n)[1]


def strokes(n: int) -> list[dict[str, Any]]:
    """Marks of scene n, as JSON: a short line on the thing, and one along each side of the photo."""
    rows, columns = np.nonzero(truth(n))
    y, x = float(rows.mean()), float(columns.mean())
    around = [[3.0, 3.0], [97.0, 3.0], [97.0, 81.0], [3.0, 81.0], [3.0, 3.0]]
    return [
        {"label": 1, "radius": 3.0, "points": [[x - 12, y], [x + 12, y]]},
        {"label": 0, "radius": 2.0, "points": around},
    ]


def overlap(mask: NDArray[Any], other: NDArray[Any]) -> float:
    """Intersection over union of two masks."""
    a, b = mask > 0, other > 0
    return float((a & b).sum() / (a | b).sum())
