"""The masks of many images that show classes, by numbers or by colours."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.images.classes import Classes
from perturbmap.images.mask_files import BLURRING, STRETCHED, misfit, same_shape, sizes
from perturbmap.images.masks import Masks
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


def read_class_mask(path: Path_, classes: Classes) -> NDArray[np.uint8]:
    """A mask file as (height, width): the labels 0 to n_classes - 1, and 255 for void.

    Void marks pixels that do not count. Where classes are numbers, those of a palette count, not its colours.
    `ImageError` is raised for a number or a colour that is neither a class nor void, and for JPEG files, which keep
    neither numbers nor colours exactly.
    """
    opened = open_image(path)
    if opened.format in BLURRING:
        raise ImageError(f"{path} is not a mask of classes: JPEG changes numbers and colours. Save it as PNG.")
    codes = _codes(path, opened, classes.are_colours)
    found = np.unique(codes)
    strangers = [int(code) for code in found if int(code) not in classes.codes]
    if strangers:
        one = strangers[0]
        value = [one // 65536, one // 256 % 256, one % 256] if classes.are_colours else one
        raise ImageError(
            f"{path} holds {value}, which is not a class: name it in the file of the classes, or list it there under "
            '"void".'
        )
    labels = np.array([classes.codes[int(code)] for code in found], dtype=np.uint8)
    return labels[np.searchsorted(found, codes)]


def _codes(path: Path_, opened: Any, are_colours: bool) -> NDArray[np.int64]:
    """The number of each pixel, or ``red * 65536 + green * 256 + blue``."""
    if are_colours:
        return np.asarray(np.asarray(opened.convert("RGB"), dtype=np.int64) @ np.array([65536, 256, 1]))
    numbers = np.asarray(opened)
    if numbers.ndim == 3:
        colours = numbers[..., : len([band for band in opened.getbands() if band != "A"])]
        if (colours != colours[..., :1]).any():
            raise ImageError(
                f"{path} is coloured, but classes are numbers: give their colours, [red, green, blue], in the file "
                "of the classes."
            )
        numbers = colours[..., 0]
    if not np.array_equal(numbers, numbers.astype(np.int64)):
        raise ImageError(f"{path} is not a mask of classes: its numbers are not whole. Save it with 8 bits.")
    return np.asarray(numbers, dtype=np.int64)


@final
class ClassMasks(Mapping[Path, NDArray[np.uint8]]):
    """A mapping from an image's path to its mask of classes, as `read_class_mask` has it, of the image's size.

    A mask is read anew each time. A mask of another size than its image, but with the same ratio of height to width,
    is stretched by the nearest pixel, with a `MaskWarning`. A damaged file, and one of void alone, is left out with a
    `SkippedImageWarning`. A number that is no class, or a mask with another ratio than its image, is a ValueError.
    """

    def __init__(self, files: Mapping[Any, Path_], classes: Classes) -> None:
        self.classes = classes
        self.names = classes.names
        self._files: dict[Path, Path] = {}
        self._sizes: dict[Path, tuple[int, int]] = {}
        #: Which labels there are in any of them.
        self.labels: set[int] = set()
        stretched, refused = [], []
        for image, mask in ((Path(image), Path(mask)) for image, mask in files.items()):
            try:
                open_image(mask)
                size = image_size(image)
            except ImageError as error:
                warnings.warn(f"left out: {error}", SkippedImageWarning, stacklevel=2)
                continue
            try:
                labels = read_class_mask(mask, classes)
                if not same_shape(labels.shape, size):
                    raise ImageError(misfit(mask, labels.shape, image, size))
            except ImageError as error:
                refused.append(str(error))
                continue
            found = set(np.unique(labels).tolist()) - {VOID}
            if not found:
                warnings.warn(f"left out: {mask} is void all over.", SkippedImageWarning, stacklevel=2)
                continue
            if labels.shape != size:
                stretched.append(f"{mask.name} is {sizes(labels.shape, size)}")
            self._files[image], self._sizes[image] = mask, size
            self.labels |= found
        if refused:
            more = f" (The first of {len(refused)} such masks.)" if len(refused) > 1 else ""
            raise ValueError(refused[0] + more)
        if stretched:
            has = f"{len(stretched)} of {len(self)} masks {'has' if len(stretched) == 1 else 'have'}"
            text = f"{has} another size than the image (first: {stretched[0]}): {STRETCHED}"
            warnings.warn(text, MaskWarning, stacklevel=2)

    def __getitem__(self, image: Path) -> NDArray[np.uint8]:
        return stretch(read_class_mask(self._files[image], self.classes), self._sizes[image])

    def __contains__(self, image: object) -> bool:
        return image in self._files

    def __iter__(self) -> Iterator[Path]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


#: Masks of foreground and background, or of classes.
AnyMasks = Masks | ClassMasks
