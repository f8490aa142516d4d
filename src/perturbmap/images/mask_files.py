"""Mask files as background, foreground and void: number by number, or by a threshold where they are grey."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.images.grey_levels import Levels, two_levels
from perturbmap.images.reading import VOID, ImageError, MaskWarning, Path_, image_size, open_image
from perturbmap.images.superpixels import stretch
from perturbmap.support.checks import check_number

LARGEST_DISTORTION = 0.05  # of width over height, where a mask is stretched to its image
LARGEST_TINT = 8  # between the channels of a grey pixel that was compressed
BLURRING = ("JPEG", "MPO")  # formats that do not keep a 1 apart from a 0
WHAT_TO_DO = (
    "Masks hold 0 for background and 255 or 1 for foreground; to take all that is at least T for foreground, say "
    "--mask-threshold T, or mask_threshold=T in Python."
)
STRETCHED = "stretched, by the nearest pixel."


def read_mask(
    path: Path_, image: Path_ | None = None, binary: bool | None = None, *, mask_threshold: float | None = None
) -> NDArray[np.uint8]:
    """Reads a mask file as (height, width): 0 background, 1 foreground, 255 void (pixels that do not count).

    path : the mask file
    image : the path of the mask's image. The mask then gets its size: it is stretched by the nearest pixel, with a
        `MaskWarning`, if both have the same ratio of height to width; else it is an `ImageError`
    binary : which of two conventions the file has: 0, 1 and 255 for void (False), or black and white, 0 and 255
        (True). None: the file decides; 255 is foreground where no 1 occurs, and void where one does. A mask of
        nothing but background and void would be misread: say False where such exist, and True where 255 is always
        foreground
    mask_threshold : all numbers of at least this are foreground, whatever the file

    If the file has a palette, its numbers count, not its colours; of 16 bits, the upper 8. A grey mask, such as a
    JPEG file, is cut at the middle between its two greys, with a `MaskWarning`, if nearly all pixels are near two;
    else it is an `ImageError`.
    """
    if mask_threshold is not None and binary is not None:
        raise ValueError("binary and mask_threshold both say what 255 is: leave one of them out.")
    file = MaskFile.read(path, open_image(path))
    if mask_threshold is not None:
        mask = file.cut(check_number("mask_threshold", mask_threshold))
    elif file.is_exact:
        mask = file.numbers.astype(np.uint8)
        if binary or (binary is None and not (mask == 1).any()):
            mask[mask == VOID] = 1
    elif binary is False:
        raise ImageError(f"{path} is not a mask with void: those hold 0, 1 and 255 alone, and are not JPEG files.")
    else:
        middle = file.levels().threshold
        warnings.warn(f"{path} is grey: {how_cut(middle)}", MaskWarning, stacklevel=2)
        mask = file.cut(middle)
    if image is None:
        return mask
    size = image_size(image)
    if mask.shape != size:
        if not same_shape(mask.shape, size):
            raise ImageError(misfit(file.path, mask.shape, Path(image), size))
        warnings.warn(f"{path} is {sizes(mask.shape, size)}: {STRETCHED}", MaskWarning, stacklevel=2)
    return stretch(mask, size)


@final
@dataclass(frozen=True, eq=False)
class MaskFile:
    """What a mask file holds.

    numbers : (height, width), from 0 to 255
    is_exact : whether they are 0, 1 and 255 alone, and were written so
    is_palette : whether they are numbers of colours, and say nothing of dark and bright
    """

    path: Path
    numbers: NDArray[Any]
    is_exact: bool
    is_palette: bool

    @classmethod
    def read(cls, path: Path_, opened: Any) -> MaskFile:
        """From what `open_image` opened; `ImageError` where it is coloured, or has numbers beyond 8 or 16 bits."""
        numbers = np.asarray(opened)
        is_tinted = False
        if numbers.ndim == 3:
            colours = numbers[..., : len([band for band in opened.getbands() if band != "A"])]
            tint = int((colours.max(axis=2) - colours.min(axis=2)).max())
            if tint > LARGEST_TINT:
                raise ImageError(f"{path} is not a mask: it is coloured. Save it in black and white.")
            numbers, is_tinted = colours.mean(axis=2, dtype=np.float32), tint > 0
        elif opened.mode.startswith("I") and numbers.max() > VOID:
            numbers = numbers / 257
        if not (numbers.min() >= 0 and numbers.max() <= VOID):  # NaN is neither
            raise ImageError(f"{path} is not a mask: its numbers are not from 0 to 255. Save it with 8 bits.")
        is_exact = not is_tinted and bool(np.isin(numbers, (0, 1, VOID)).all())
        is_blurred = opened.format in BLURRING and bool((numbers == 1).any())
        return cls(Path(path), numbers, is_exact and not is_blurred, opened.mode == "P")

    def levels(self) -> Levels:
        """The two greys of a grey mask; `ImageError` where there are not two."""
        try:
            if self.is_palette:
                some = sorted(set(np.unique(self.numbers).tolist()) - {0, 1, VOID})[:5]
                raise ValueError(f"its palette has the numbers {some}")
            return two_levels(self.numbers)
        except ValueError as error:
            raise ImageError(f"{self.path} is not a mask: {error}. {WHAT_TO_DO}") from None

    def cut(self, threshold: float) -> NDArray[np.uint8]:
        """1 where a number is at least the threshold, else 0."""
        return (self.numbers >= threshold).astype(np.uint8)


def same_shape(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two sizes (height, width) are of one shape: one is the other, scaled and rounded."""
    is_rounded = abs(a[1] * b[0] - a[0] * b[1]) <= max(sum(a), sum(b))
    return is_rounded and abs(math.log(a[1] * b[0] / (a[0] * b[1]))) <= LARGEST_DISTORTION


def how_cut(threshold: float) -> str:
    """What is done to grey masks, and how to choose."""
    return (
        f"pixels of at least {threshold:g} are taken for foreground; --mask-threshold, or mask_threshold=, sets "
        "another value."
    )


def sizes(found: tuple[int, ...], size: tuple[int, ...]) -> str:
    """The size of a mask, and that of its image."""
    return f"{found[1]} x {found[0]} pixels, its image {size[1]} x {size[0]}"


def misfit(mask: Path, found: tuple[int, ...], image: Path, size: tuple[int, int]) -> str:
    """Why a mask cannot be stretched to its image."""
    text = f"the mask {mask} is {found[1]} x {found[0]} pixels, but its image {image} is {size[1]} x {size[0]}. "
    if same_shape(found, size[::-1]):
        return text + "One lies on its side. Images count as shown, turned by their EXIF orientation: turn the mask."
    return text + "They differ in shape, not in scale alone: does this mask belong to this image?"
