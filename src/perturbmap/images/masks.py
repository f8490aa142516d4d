"""The masks of many images: read by one convention, checked before anything is done with them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median_low
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.images.grey_levels import Levels
from perturbmap.images.mask_files import (
    STRETCHED,
    WHAT_TO_DO,
    MaskFile,
    how_cut,
    misfit,
    read_mask,
    same_shape,
    sizes,
)
from perturbmap.images.reading import (
    VOID,
    ImageError,
    MaskWarning,
    Path_,
    SkippedImageWarning,
    image_size,
    open_image,
)
from perturbmap.images.superpixels import stretch
from perturbmap.support.checks import check_number


@final
class Masks(Mapping[Path, NDArray[np.uint8]]):
    """A mapping from an image's path to its mask, 0 background, 1 foreground and 255 void, of the image's size.

    A mask is read anew each time. Where one file holds 1 and 255, 255 is void in all of them; else each file decides,
    as `read_mask` has it. Grey masks are cut at one threshold, the middle between their two greys. With
    ``mask_threshold``, all masks are cut there. A mask of another size than its image, but with the same ratio of
    height to width, is stretched by the nearest pixel. A `MaskWarning` says which masks were cut, and another one
    which were stretched.

    A damaged file is left out with a `SkippedImageWarning`. A mask that is not of two greys, or that has another
    ratio than its image, is a ValueError.
    """

    #: What the labels 0 and 1 stand for.
    names = ("background", "foreground")

    def __init__(self, files: Mapping[Any, Path_], *, mask_threshold: float | None = None) -> None:
        self._files: dict[Path, Path] = {}
        self._sizes: dict[Path, tuple[int, int]] = {}
        self._thresholds: dict[Path, float] = {}
        forced = None if mask_threshold is None else check_number("mask_threshold", mask_threshold)
        shown: dict[Path, set[int]] = {}
        grey: dict[Path, Levels] = {}
        stretched, refused = [], []
        for image, mask in ((Path(image), Path(mask)) for image, mask in files.items()):
            try:
                opened, size = open_image(mask), image_size(image)
            except ImageError as error:
                warnings.warn(f"left out: {error}", SkippedImageWarning, stacklevel=2)
                continue
            self._files[image], self._sizes[image] = mask, size
            try:
                file = MaskFile.read(mask, opened)
                if forced is not None:
                    self._thresholds[image] = forced
                    shown[image] = set(np.unique(file.cut(forced)).tolist())
                elif file.is_exact:
                    shown[image] = {int(number) for number in np.unique(file.numbers)}
                else:
                    shown[image], grey[image] = {0, 1}, file.levels()
                if file.numbers.shape != size:
                    if not same_shape(file.numbers.shape, size):
                        raise ImageError(misfit(mask, file.numbers.shape, image, size))
                    stretched.append(f"{mask.name} is {sizes(file.numbers.shape, size)}")
            except ImageError as error:
                refused.append(str(error))
        if refused:
            more = f" (The first of {len(refused)} such masks.)" if len(refused) > 1 else ""
            raise ValueError(refused[0] + more)
        self._binary = False if forced is None and any({1, VOID} <= labels for labels in shown.values()) else None
        for image, labels in shown.items():
            if self._binary is False and labels == {VOID}:
                text = f"left out: {self._files.pop(image)} is void all over."
                warnings.warn(text, SkippedImageWarning, stacklevel=2)
        found = set().union(*shown.values())
        #: Which labels there are in any of them.
        self.labels = {0, 1} & (found | {1} if VOID in found and self._binary is None else found)
        if grey:
            middle = self._common_levels(shown, grey).threshold
            self._thresholds.update(dict.fromkeys(grey, middle))
            first = self._files[next(iter(grey))].name
            text = f"{self._share(len(grey), 'is', 'are')} grey (first: {first}): {how_cut(middle)}"
            warnings.warn(text, MaskWarning, stacklevel=2)
        if stretched:
            has = self._share(len(stretched), "has", "have")
            text = f"{has} another size than the image (first: {stretched[0]}): {STRETCHED}"
            warnings.warn(text, MaskWarning, stacklevel=2)

    def _share(self, n: int, one: str, many: str) -> str:
        return f"{n} of {len(self._files)} masks {one if n == 1 else many}"

    def _common_levels(self, shown: Mapping[Path, set[int]], grey: Mapping[Path, Levels]) -> Levels:
        """The greys of all masks; ValueError where they differ: what is bright in one may be unknown in others."""
        with_void = [image for image, labels in shown.items() if {1, VOID} <= labels]
        if with_void:
            raise ValueError(
                f"{self._files[next(iter(grey))]} is grey, but {self._files[with_void[0]]} has void, 255 beside 1: "
                f"save the grey ones with 0, 1 and 255 alone, and not as JPEG. {WHAT_TO_DO}"
            )
        every = {**grey, **{image: Levels(0, VOID) for image, labels in shown.items() if VOID in labels}}
        common = Levels(
            *(median_low([getattr(levels, side) for levels in every.values()]) for side in ("low", "high"))
        )
        for image, levels in every.items():
            if not levels.agree(common):
                raise ValueError(
                    f"{self._files[image]} is of the greys {levels.low} and {levels.high}, but most masks are of "
                    f"{common.low} and {common.high}. {WHAT_TO_DO}"
                )
        return common

    def __getitem__(self, image: Path) -> NDArray[np.uint8]:
        threshold = self._thresholds.get(image)
        binary = self._binary if threshold is None else None
        return stretch(read_mask(self._files[image], binary=binary, mask_threshold=threshold), self._sizes[image])

    def __contains__(self, image: object) -> bool:
        return image in self._files

    def __iter__(self) -> Iterator[Path]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
