"""Segmentations of classes as pictures: a mask that is a mask again, and an overlay with a legend."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from perturbmap.images.classes import Classes
from perturbmap.images.reading import Pixels
from perturbmap.images.segmenter import Segmentation

OPACITY = 0.55
LEAST_TEXT = 11  # pixels, which can be read
N_COLOURS = 256  # of a palette


def class_picture(mask: NDArray[np.uint8], classes: Classes) -> Any:
    """A mask of labels as its classes have it: their colours, or their numbers with a palette to look at."""
    if classes.are_colours:
        return Image.fromarray(classes.colours[mask])
    numbers = np.array(list(classes.values.values()), dtype=np.uint8)
    picture = Image.fromarray(numbers[mask])
    palette = np.zeros((N_COLOURS, 3), dtype=np.uint8)
    palette[numbers] = classes.colours
    picture.putpalette(palette.ravel().tolist())
    return picture


def class_overlay(image: Pixels, found: Segmentation, classes: Classes) -> NDArray[np.uint8]:
    """The image with its classes tinted and outlined, and below it a legend: their names, the largest first."""
    mask = found.mask
    shown = (1 - OPACITY) * image + OPACITY * (classes.colours[mask] / np.float32(255))
    shown[_outlines(mask)] = 1.0
    picture = np.rint(255 * shown).astype(np.uint8)
    order = sorted((k for k in range(len(classes)) if (mask == k).any()), key=lambda k: -int((mask == k).sum()))
    return np.concatenate([picture, _legend(picture.shape[1], picture.shape[0], classes, order)])


def _outlines(mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The pixels whose right or lower neighbour is of another class."""
    lines = np.zeros(mask.shape, dtype=bool)
    lines[:, :-1] |= mask[:, :-1] != mask[:, 1:]
    lines[:-1] |= mask[:-1] != mask[1:]
    return lines


def _legend(width: int, height: int, classes: Classes, order: list[int]) -> NDArray[np.uint8]:
    """White, as wide as the picture: a patch of its colour and the name of each class, in rows."""
    size = max(LEAST_TEXT, round(min(width, height) / 20))
    font: Any = ImageFont.load_default(size)
    gap, line = size // 2, 2 * size
    places, x, y = [], gap, 0
    for k in order:
        wide = size + gap + round(font.getlength(classes.names[k]))
        if x > gap and x + wide > width:
            x, y = gap, y + line
        places.append((k, x, y))
        x += wide + 2 * gap
    strip = Image.new("RGB", (width, y + line), "white")
    draw = ImageDraw.Draw(strip)
    for k, left, top in places:
        patch = (left, top + size // 2, left + size, top + size // 2 + size)
        draw.rectangle(patch, fill=tuple(classes.colours[k].tolist()), outline="black")
        draw.text((left + size + gap, top + line // 2), classes.names[k], fill="black", font=font, anchor="lm")
    return np.asarray(strip)
