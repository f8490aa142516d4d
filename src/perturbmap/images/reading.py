"""Image files as RGB in [0, 1], masks as background, foreground and void."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
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
    """An image or mask file that cannot be used; the message names it."""


class SkippedImageWarning(UserWarning):
    """An image was left out because its file is broken or too small."""


def read_image(path: Path_) -> Pixels:
    """The pixels of an image file as RGB, (height, width, 3), in [0, 1].

    Grey becomes three equal channels, a palette its colours, 16 bits are kept where Pillow keeps them (grey), and
    what is transparent shows white. Of an animation the first frame counts. Pixels are as stored: an EXIF rotation is
    not applied, since masks and boxes refer to what is stored. `ImageError` for a file that is damaged, truncated, no
    image, or below 16 pixels a side.
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


def image_size(path: Path_) -> tuple[int, int]:
    """(height, width), from the file's header alone."""
    width, height = open_image(path, pixels=False).size
    return int(height), int(width)


def read_mask(path: Path_, image: Path_ | None = None, binary: bool | None = None) -> NDArray[np.uint8]:
    """A mask file as (height, width): 0 background, 1 foreground, 255 void (not to be judged).

    Two conventions are in use: 0, 1 and 255 for void; and black and white, 0 and 255. With ``binary=None`` the file
    decides: 255 is foreground where no 1 occurs, and void where one does. A mask of nothing but background and void
    would be misread: say ``binary=False`` where such exist, and ``binary=True`` where 255 is always foreground. Of a
    palette the numbers count, not the colours. With ``image``, the path of the mask's image, their sizes must agree.
    """
    opened = open_image(path)
    values = np.asarray(opened)
    if values.ndim == 3:
        colours = values[..., : len([band for band in opened.getbands() if band != "A"])]
        if (colours != colours[..., :1]).any():
            raise ImageError(f"{path} is no mask: it is coloured. Masks hold 0, 1 and 255 (void), or 0 and 255.")
        values = colours[..., 0]
    if image is not None:
        size = open_image(image, pixels=False).size
        if size != opened.size:
            raise ImageError(
                f"the mask {path} is {opened.width} x {opened.height} pixels but its image {image} is "
                f"{size[0]} x {size[1]}: they must have the same size."
            )
    found = set(np.unique(values).tolist())
    if not found <= {0, 1, VOID}:
        raise ImageError(
            f"{path} is no mask: masks hold 0 (background), 1 (foreground) and 255 (void), or 0 and 255, but it "
            f"holds {sorted(found - {0, 1, VOID})[:5]}. Use 1 for foreground, and PNG files: JPEG blurs masks."
        )
    mask = values.astype(np.uint8)
    if binary is None:
        binary = 1 not in found
    if binary:
        mask[mask == VOID] = 1
    return mask


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


def open_image(path: Path_, *, pixels: bool = True) -> Any:
    """The image, decoded, or its header alone; a missing file is a FileNotFoundError, a bad one an `ImageError`."""
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's notes on odd metadata; what matters is raised
        try:
            image = Image.open(file)
            if pixels:
                image.load()
        except _DAMAGE as error:
            raise ImageError(f"{path} is damaged, truncated or no image ({error}).") from None
    return image


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
            raise FileNotFoundError(f"paths holds {path}, which is no file.")
    return listed
