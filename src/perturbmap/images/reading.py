"""Image files as RGB in [0, 1], upright."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SMALLEST_SIDE = 16
VOID = 255

Path_ = str | os.PathLike[str]
Pixels = NDArray[np.float32]


class ImageError(ValueError):
    """Raised for an image or mask file that cannot be used; the message names the file."""


class SkippedImageWarning(UserWarning):
    """Warns that an image was left out because its file is broken or too small."""


class MaskWarning(UserWarning):
    """Warns that masks were changed to be used: grey ones were cut at a threshold, or some were stretched."""


def read_image(path: Path_) -> Pixels:
    """Reads the pixels of an image file as RGB, (height, width, 3), in [0, 1].

    Grey becomes three equal channels, a palette its colours, 16 bits are kept where Pillow keeps them (grey), and
    transparent pixels show white. Of an animation, the first frame is read. The image is turned as its EXIF
    orientation says, as viewers show it: masks and boxes refer to what is shown. `ImageError` is raised for a file
    that is damaged, truncated or no image, or has a side of less than 16 pixels.
    """
    image = open_image(path)
    if min(image.size) < SMALLEST_SIDE:
        raise ImageError(
            f"{path} is {image.width} x {image.height} pixels, too small for superpixels and their texture: "
            f"use images of at least {SMALLEST_SIDE} pixels a side."
        )
    if image.mode.startswith("I") or image.mode == "F":
        grey = _deep_grey(path, image)
        return np.repeat(grey[..., None], 3, axis=2).astype(np.float32)
    if "A" in image.getbands() or "transparency" in image.info:
        rgba = np.asarray(image.convert("RGBA"), dtype=np.float32) / 255
        alpha = rgba[..., 3:]
        return np.asarray(rgba[..., :3] * alpha + (1 - alpha), dtype=np.float32)
    return np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)


def reduce_image(image: Pixels, max_side: int) -> Pixels:
    """The image with its longer side at most ``max_side``, and its shorter one at least 16, where it was."""
    height, width = image.shape[:2]
    scale = max(max_side / max(height, width), SMALLEST_SIDE / min(height, width))
    if scale >= 1:
        return image
    size = round(width * scale), round(height * scale)
    channels = [Image.fromarray(image[..., c]).resize(size, Image.Resampling.BILINEAR) for c in range(3)]
    return np.stack([np.asarray(channel, dtype=np.float32) for channel in channels], axis=2).clip(0, 1)


# What Pillow raises for damaged files; SyntaxError is its word for a broken PNG.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


# How Pillow turns what is stored, to show it, by EXIF orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ON_SIDE = (5, 6, 7, 8)
_ORIENTATION = 0x0112  # the tag


def open_image(path: Path_) -> Any:
    """The image, decoded and turned; a missing file is a FileNotFoundError, a bad one an `ImageError`."""
    with _opened(path) as image:
        image.load()
        turn = _TURNS.get(_orientation(image))
        if turn is None:
            return image
        turned = image.transpose(turn)
        turned.format = image.format
        return turned


def image_size(path: Path_) -> tuple[int, int]:
    """(height, width) of the image as it is shown, from the file's header alone where that is enough."""
    with _opened(path) as image:
        if image.format == "TIFF":
            image.load()  # which turns it
        size = image.size[::-1] if _orientation(image) in _ON_SIDE else image.size
        return int(size[1]), int(size[0])


@contextmanager
def _opened(path: Path_) -> Iterator[Any]:
    """The image as Pillow opens it, while its file is open; whatever Pillow raises is an `ImageError`."""
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's notes on odd metadata; what matters is raised
        try:
            yield Image.open(file)
        except _DAMAGE as error:
            raise ImageError(f"{path} is damaged, truncated or no image ({error}).") from None


def _orientation(image: Any) -> int:
    """The EXIF orientation; 1, upright, where none can be read, and for a TIFF, which Pillow turns by itself."""
    if image.format == "TIFF":
        return 1
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except _DAMAGE:
        return 1


def _deep_grey(path: Path_, image: Any) -> NDArray[np.float64]:
    """Grey of 16 bits, or of floats that are in [0, 1] already."""
    grey = np.asarray(image, dtype=np.float64)
    top = 1 if image.mode == "F" else 65535
    if not np.isfinite(grey).all() or grey.min() < 0 or grey.max() > top:
        raise ImageError(f"{path} must hold grey values from 0 to {top}, but it holds others: save it with 8 bits.")
    return grey / top


def as_paths(paths: Any) -> list[Path]:
    """A list of paths, none of them missing: that is a mistake of the caller's, not of an image."""
    if isinstance(paths, (str, os.PathLike)) or not hasattr(paths, "__iter__"):
        raise ValueError(f"paths must be a list of image files, but is {paths!r}. A single one is a list of one.")
    listed = [Path(path) for path in paths]
    if not listed:
        raise ValueError("paths must name at least one image file, but is empty.")
    for path in listed:
        if not path.is_file():
            raise FileNotFoundError(f"paths holds {path}, which is not a file.")
    return listed
