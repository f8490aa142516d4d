"""The files that a segmentation becomes: mask, probability map, a picture to look at, a line of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import binary_dilation, binary_erosion

from perturbmap.images.class_results import class_overlay, class_picture
from perturbmap.images.classes import Classes
from perturbmap.images.encoding import encode
from perturbmap.images.reading import Path_, Pixels, read_image
from perturbmap.images.segmenter import Segmentation, Segmenter
from perturbmap.inference import MarginalMethod
from perturbmap.support.files import write_atomically

TINT = np.array([235, 0, 150], dtype=np.float32) / 255  # few things are of this colour
OPACITY = 0.4
UNCERTAINTY = "mean_uncertainty_bits"


def columns(classes: Classes | None) -> tuple[str, ...]:
    """The columns of the table: the share of the foreground, or at the end those of all classes."""
    size = ("image", "width", "height")
    if classes is None:
        return (*size, "foreground_share", UNCERTAINTY, "superpixels")
    return (*size, UNCERTAINTY, "superpixels", *(f"{name}_share" for name in classes.names))


def result_files(stem: str, folder: Path) -> dict[str, Path]:
    """The files that `write_results` writes, by what they hold."""
    endings = {"mask": "mask.png", "probability": "probability.png", "overlay": "overlay.jpg"}
    return {kind: folder / f"{stem}_{ending}" for kind, ending in endings.items()}


def write_results(
    segmenter: Segmenter, image: Path, folder: Path, method: MarginalMethod | None = None
) -> dict[str, Any]:
    """Segments the image and writes a mask (0 and 255, or its classes), a probability map (0..255) and an overlay.

    Returns the image's line of the table, by column. See `Segmenter.predict` for the method.
    """
    found, classes, pixels = segmenter.predict(image, method=method), segmenter.classes, read_image(image)
    files = result_files(image.stem, folder)
    if classes is None:
        mask, shown = _picture(255 * found.mask), _picture(np.rint(255 * overlay(pixels, found)))
    else:
        mask, shown = class_picture(found.mask, classes), _picture(class_overlay(pixels, found, classes))
    _save(mask, files["mask"], "PNG")
    _save(_picture(np.rint(255 * found.probability)), files["probability"], "PNG")
    _save(shown, files["overlay"], "JPEG", quality=92)
    height, width = found.regions.shape
    uncertainty, size = round(found.uncertainty, 4), (image.name, width, height)
    if classes is None:
        values = (*size, round(found.foreground_share, 4), uncertainty, len(found.labels))
    else:
        values = (*size, uncertainty, len(found.labels), *(round(share, 4) for share in found.class_shares))
    return dict(zip(columns(classes), values, strict=True))


def overlay(image: Pixels, found: Segmentation) -> Pixels:
    """The image with its foreground tinted and outlined: a light line inside, a dark one outside."""
    inside = found.mask == 1
    width = max(1, round(min(inside.shape) / 200))
    shown = image.copy()
    shown[inside] = (1 - OPACITY) * shown[inside] + OPACITY * TINT
    shown[inside & ~binary_erosion(inside, iterations=width, border_value=1)] = 1.0
    shown[~inside & binary_dilation(inside, iterations=width)] *= 0.25
    return shown


def _picture(values: NDArray[Any]) -> Any:
    return Image.fromarray(values.astype(np.uint8))


def _save(picture: Any, path: Path_, kind: str, **options: Any) -> None:
    content = encode(picture, kind, **options)
    write_atomically(path, lambda file: file.write(content))
