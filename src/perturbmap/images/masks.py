"""The masks of many images: read by one convention, checked before anything is done with them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.images.reading import VOID, ImageError, Path_, SkippedImageWarning, image_size, read_mask
from perturbmap.images.superpixels import stretch

LARGEST_DISTORTION = 0.05  # of width over height, where a mask is stretched to its image


@final
class Masks(Mapping[Path, NDArray[np.uint8]]):
    """An image's path to its mask, 0, 1 and 255 (void), of the image's size; read anew each time.

    Where one file holds 1 and 255, 255 is void in all of them; else each file decides, as `read_mask` has it.
    A file that is no mask is left out with a `SkippedImageWarning`. Sizes that differ are an error, unless ``resize``
    allows to stretch a mask (by the nearest pixel) that has the shape of its image.
    """

    def __init__(self, files: Mapping[Any, Path_], *, resize: bool = False) -> None:
        self._files: dict[Path, Path] = {}
        self._sizes: dict[Path, tuple[int, int]] = {}
        shown: dict[Path, set[int]] = {}
        misfits = []
        for image, mask in files.items():
            try:
                values, size = read_mask(mask, binary=False), image_size(image)
            except ImageError as error:
                warnings.warn(f"left out: {error}", SkippedImageWarning, stacklevel=2)
                continue
            shown[Path(image)] = set(np.unique(values).tolist())
            if values.shape != size and not (resize and _same_shape(values.shape, size)):
                misfits.append((Path(mask), values.shape, Path(image), size))
            self._files[Path(image)], self._sizes[Path(image)] = Path(mask), size
        self._binary = False if any({1, VOID} <= labels for labels in shown.values()) else None
        for image, labels in shown.items():
            if self._binary is False and labels == {VOID}:
                warnings.warn(
                    f"left out: {self._files.pop(image)} is void all over.", SkippedImageWarning, stacklevel=2
                )
        found = set().union(*shown.values())
        #: Which labels there are in any of them.
        self.labels = {0, 1} & (found | {1} if VOID in found and self._binary is None else found)
        if misfits:
            raise ValueError(_misfit(*misfits[0], n=len(misfits), resize=resize))

    def __getitem__(self, image: Path) -> NDArray[np.uint8]:
        return stretch(read_mask(self._files[image], binary=self._binary), self._sizes[image])

    def __contains__(self, image: object) -> bool:
        return image in self._files

    def __iter__(self) -> Iterator[Path]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _same_shape(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return abs(math.log(a[1] * b[0] / (a[0] * b[1]))) <= LARGEST_DISTORTION


def _misfit(mask: Path, found: tuple[int, ...], image: Path, size: tuple[int, int], *, n: int, resize: bool) -> str:
    text = (
        f"{n} {'mask has' if n == 1 else 'masks have'} another size than their image; first: {mask} is "
        f"{found[1]} x {found[0]} pixels, but {image} is {size[1]} x {size[0]}. "
    )
    if _same_shape(found, size[::-1]) and not _same_shape(found, size):
        return text + "One lies on its side: the image may be stored so and turned when shown. Turn the mask."
    if resize or not _same_shape(found, size):
        return text + "They differ in shape, not in scale alone: does this mask belong to this image?"
    return text + "If they show the same, allow masks to be stretched: resize_masks=True, or --resize-masks."
