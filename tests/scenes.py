"""Made scenes with masks, for the tests of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perturbmap import DoubleSGD, PlainStep, StructuredPredictor
from perturbmap.images import ImageFeatures, segmentation_predictor

from .command import Done, run

#: Options of a quick fit.
FIT = ["--superpixels", "50", "--jobs", "1"]


def scene(seed: int, height: int = 84, width: int = 100) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A striped ellipse on mottled ground, and its mask."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    cy, cx = rng.uniform(0.4, 0.6) * height, rng.uniform(0.4, 0.6) * width
    blob = ((y - cy) / rng.uniform(20, 28)) ** 2 + ((x - cx) / rng.uniform(24, 34)) ** 2 < 1
    mottles = np.kron(rng.normal(size=(height // 4 + 1, width // 4 + 1)), np.ones((4, 4)))[:height, :width]
    pattern = np.where(blob, np.sin(x * 0.9 + rng.uniform(0, 6)), mottles)
    tint = np.where(blob[..., None], [160, 110, 70], [90, 120, 75]) + rng.normal(0, 8, 3)
    image = tint + 22 * pattern[..., None] + rng.normal(0, 5, (height, width, 3))
    return image.clip(0, 255).astype(np.uint8), blob.astype(np.uint8)


def coarse(n_superpixels: int = 50, **settings: Any) -> ImageFeatures:
    """With few words, which take less time to learn."""
    words = {"n_position_words": 4, "n_colour_words": 16, "n_sift_words": 32, "n_samples": 8000}
    return ImageFeatures(n_superpixels, **{**words, **settings})


def quick(l2: float = 3e-3, seed: int = 0, n_labels: int = 2) -> StructuredPredictor:
    """The recipe, in less time."""
    predictor = segmentation_predictor(l2, seed, n_labels)
    predictor.solver = DoubleSGD(n_passes=40, batch_size=1, step=PlainStep(0.5))
    return predictor


def make_small(root: Path, n_images: int = 4) -> Path:
    """Folders photos and masks, of a few scenes."""
    for name in ("photos", "masks"):
        (root / name).mkdir()
    for n in range(n_images):
        image, mask = scene(n)
        Image.fromarray(image).save(root / "photos" / f"s{n}.png")
        Image.fromarray(255 * mask).save(root / "masks" / f"s{n}.png")
    return root


def fit_small(root: Path, *more: object) -> Done:
    """Fits m.pm on them."""
    folders = ["--images", root / "photos", "--masks", root / "masks"]
    return run("segment", "fit", *folders, "--out", root / "m.pm", *FIT, "--no-check", *more)
