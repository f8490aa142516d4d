"""The files that a segmentation becomes: mask, probability map, a picture to look at, a line of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import binary_dilation, binary_erosion

from perturbmap.images.encoding import encode
from perturbmap.images.reading import Path_, Pixels, read_image
from perturbmap.images.segmenter import Segmentation, Segmenter
from perturbmap.inference import MarginalMethod
from perturbmap.support.files import write_atomically

TINT = np.array([235, 0, 150], dtype=np.float32) / 255  # few things are of this colour
OPACITY = 0.4
COLUMNS = ("image", "width", "height", "foreground_share", "mean_uncertainty_bits", "superpixels")


def result_files(stem: str, folder: Path) -> dict[str, Path]:
    """The files that `write_results` writes, by what they hold."""
    endings = {"mask": "mask.png", "probability": "probability.png", "overlay": "overlay.jpg"}
    return {kind: folder / f"{stem}_{ending}" for kind, ending in endings.items()}


def write_results(
    segmenter: Segmenter, image: Path, folder: Path, method: MarginalMethod | None = None
) -> dict[str, Any]:
    """Segments the image and writes a mask (0 and 255), a probability map (0..255) and an overlay.

    Returns the image's line of the table, by column. See `Segmenter.predict` for the method.
    """
    found = segmenter.predict(image, method=method)
    files = result_files(image.stem, folder)
    _save(255 * found.mask, files["mask"], "PNG")
    _save(np.rint(255 * found.probability), files["probability"], "PNG")
    _save(np.rint(255 * overlay(read_image(image), found)), files["overlay"], "JPEG", quality=92)
    height, width = found.regions.shape
    values = (
        image.name,
        width,
        height,
        round(found.foreground_share, 4),
        round(found.uncertainty, 4),
        len(found.labels),
    )
    return dict(zip(COLUMNS, values, strict=True))


def overlay(image: Pixels, found: Segmentation) -> Pixels:
    """The image with its foreground tinted and outlined: a light line inside, a dark one outside."""
    inside = found.mask == 1
    width = max(1, round(min(inside.shape) / 200))
    shown = image.copy()
    shown[inside] = (1 - OPACITY) * shown[inside] + OPACITY * TINT
    shown[inside & ~binary_erosion(inside, iterations=width, border_value=1)] = 1.0
    shown[~inside & binary_dilation(inside, iterations=width)] *= 0.25
    return shown


def _save(values: NDArray[Any], path: Path_, kind: str, **options: Any) -> None:
    content = encode(Image.fromarray(values.astype(np.uint8)), kind, **options)
    write_atomically(path, lambda file: file.write(content))
