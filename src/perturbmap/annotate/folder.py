"""Photos, and beside them a folder of all that annotation leaves behind, in files that a person can read.

NAME.png is the mask of NAME.jpg, once it has been accepted; NAME.marks.json has the strokes and boxes drawn on it;
boxes.json the boxes of all photos, as ``segment fit --boxes`` reads them; classes.json what the masks show, where it
is not foreground and background; model.pm what was learned last; progress.json how good it was, each time;
features.pm the visual words, learned once. What can be computed again is in .cache. Each file is written atomically,
so that whoever is killed loses nothing but what they were drawing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perturbmap.annotate.marks import Box, Mark, marks_from_json, marks_to_json
from perturbmap.images import Classes, ImageError, read_class_mask, read_mask
from perturbmap.images.class_results import class_picture
from perturbmap.images.classes import CLASSES_FILE
from perturbmap.images.encoding import encode
from perturbmap.images.folders import Boxes, list_images, read_boxes
from perturbmap.images.reading import SMALLEST_SIDE, image_size
from perturbmap.support.damage import parse_json
from perturbmap.support.files import lock, write_atomically

BOXES, MODEL, WORDS, PROGRESS, CACHE = "boxes.json", "model.pm", "features.pm", "progress.json", ".cache"
MASK_SUFFIX, MARKS_SUFFIX = ".png", ".marks.json"
TWO_NAMES = ("background", "foreground")
TWO_COLOURS = ((52, 120, 220), (235, 0, 150))


class UnknownPhotoError(LookupError):
    """A name that no photo of the folder has."""


@final
class AnnotationFolder:
    """A folder of photos, by name, and the folder of their masks, which is made where it is not there.

    photos : image files, as `list_images` finds them; a photo's name is that of its file without the suffix
    masks : by default the photos' folder with "-masks" after its name
    classes : what masks show; by default what classes.json in the folder of masks says, or background and foreground
    """

    def __init__(
        self,
        photos: str | os.PathLike[str],
        masks: str | os.PathLike[str] | None = None,
        classes: Classes | None = None,
    ) -> None:
        self.photos = Path(photos).resolve()
        self.masks = self.photos.with_name(self.photos.name + "-masks") if masks is None else Path(masks).resolve()
        if self.masks == self.photos:
            raise ValueError(f"masks must be another folder than photos, but both are {self.photos}.")
        self.files = list_images(self.photos)
        self.masks.mkdir(parents=True, exist_ok=True)
        self.cache.mkdir(exist_ok=True)
        self.classes = self._agree(classes)
        self._sizes: dict[str, tuple[int, int]] = {}
        #: Why a photo cannot be used, by its name.
        self.broken: dict[str, str] = {}
        for name, path in self.files.items():
            self._look_at(name, path)
        self._check_masks()

    def _agree(self, classes: Classes | None) -> Classes | None:
        """The classes of the masks that are there; ValueError where others are asked for."""
        path = self.masks / CLASSES_FILE
        if path.is_file():
            there = Classes.read(path)
            if classes is not None and classes.to_json() != there.to_json():
                raise ValueError(f"classes must be those of {path}, but differ: name another folder of masks.")
            return there
        if classes is not None:
            if any(self.masks.glob(f"*{MASK_SUFFIX}")):
                raise ValueError(
                    f"classes cannot be given to {self.masks}, whose masks show a foreground: name another folder."
                )
            self._write(path, classes.to_json())
        return classes

    def _look_at(self, name: str, path: Path) -> None:
        """Learns the photo's size from its header, or why it cannot be used."""
        try:
            name.encode()
            self._sizes[name] = image_size(path)
            if min(self._sizes[name]) < SMALLEST_SIDE:
                raise ImageError(f"{path.name} is smaller than {SMALLEST_SIDE} pixels on a side.")
        except UnicodeEncodeError:
            self.broken[name] = "Its name is no text: rename the file."
        except (ImageError, OSError) as error:
            self.broken[name] = str(error)

    def _check_masks(self) -> None:
        strange = [
            path.name
            for path in sorted(self.masks.iterdir())
            if path.stem in self.files and path.suffix.lower() in Image.registered_extensions()
            if path.suffix != MASK_SUFFIX
        ]
        if strange:
            raise ValueError(
                f"{self.masks} holds {strange[0]}, but masks that are made here are PNG files: save it as "
                f"{Path(strange[0]).stem}{MASK_SUFFIX}, or name another folder of masks."
            )

    @property
    def cache(self) -> Path:
        """The folder of what can be computed again."""
        return self.masks / CACHE

    @property
    def model(self) -> Path:
        """The file of what was learned last."""
        return self.masks / MODEL

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the labels: background and foreground, or the classes."""
        return TWO_NAMES if self.classes is None else self.classes.names

    @property
    def colours(self) -> list[list[int]]:
        """The colour of each label in pictures, [red, green, blue]."""
        if self.classes is None:
            return [list(colour) for colour in TWO_COLOURS]
        return [[int(part) for part in colour] for colour in self.classes.colours]

    def path(self, name: str) -> Path:
        """The file of a photo; UnknownPhotoError for a name that is not in the list."""
        try:
            return self.files[name]
        except KeyError:
            raise UnknownPhotoError(f"no photo is called {name!r}.") from None

    def size(self, name: str) -> tuple[int, int]:
        """(height, width) of a photo as it is shown; (0, 0) where it is broken."""
        self.path(name)
        return self._sizes.get(name, (0, 0))

    def usable(self) -> list[str]:
        """The names of the photos that are not broken, sorted."""
        return [name for name in self.files if name not in self.broken]

    # Marks, and the boxes among them.

    def marks(self, name: str) -> tuple[Mark, ...]:
        """What was drawn on a photo, in its order; ValueError where the file is damaged."""
        path = self._file(name, MARKS_SUFFIX)
        try:
            return marks_from_json(parse_json(path.read_bytes()), len(self.names))
        except FileNotFoundError:
            return ()
        except ValueError as error:
            raise ValueError(f"{path.name} cannot be read ({error}) Mend it or remove it.") from None

    def has_marks(self, name: str) -> bool:
        """Whether something was drawn on a photo."""
        return self._file(name, MARKS_SUFFIX).is_file()

    def write_marks(self, name: str, marks: Sequence[Mark]) -> None:
        """Keeps what was drawn on a photo; its boxes are written to boxes.json too."""
        path = self._file(name, MARKS_SUFFIX)
        before = self.marks(name)
        if marks:
            self._write(path, marks_to_json(tuple(marks)))
        else:
            path.unlink(missing_ok=True)
        size = self.size(name)
        if boxes_of(marks, size) != boxes_of(before, size):
            boxes = {**self.boxes(), name: boxes_of(marks, size)}
            self._write(self.masks / BOXES, {name: boxes[name] for name in sorted(boxes) if boxes[name]})

    def boxes(self) -> dict[str, Boxes]:
        """The boxes of all photos that have some, as `read_boxes` has them."""
        path = self.masks / BOXES
        return read_boxes(path) if path.is_file() else {}

    # Masks.

    def is_accepted(self, name: str) -> bool:
        """Whether a photo has a mask."""
        return self._file(name, MASK_SUFFIX).is_file()

    def accepted(self) -> dict[str, Path]:
        """The mask files of the photos that have one and can be read."""
        return {name: self._file(name, MASK_SUFFIX) for name in self.usable() if self.is_accepted(name)}

    def mask(self, name: str) -> NDArray[np.uint8]:
        """The mask of a photo, (height, width): its labels, and 255 for void; `ImageError` where it is broken."""
        path = self._file(name, MASK_SUFFIX)
        return read_mask(path, self.path(name)) if self.classes is None else read_class_mask(path, self.classes)

    def write_mask(self, name: str, mask: NDArray[np.uint8]) -> None:
        """Writes a mask of labels as ``segment`` reads it: black and white, or the numbers or colours of classes."""
        if mask.shape != self.size(name):
            raise ValueError(f"mask must have the size of the photo, {self.size(name)}, but has {mask.shape}.")
        labels = mask.astype(np.uint8)
        picture = Image.fromarray(255 * labels) if self.classes is None else class_picture(labels, self.classes)
        content = encode(picture, "PNG")
        write_atomically(self._file(name, MASK_SUFFIX), lambda file: file.write(content))

    def remove_mask(self, name: str) -> None:
        """Takes an accepted mask back; what was drawn stays."""
        self._file(name, MASK_SUFFIX).unlink(missing_ok=True)

    # What was learned.

    def progress(self) -> dict[str, Any]:
        """What progress.json holds, as a lesson writes it; nothing where it is not there, or damaged."""
        try:
            found = parse_json((self.masks / PROGRESS).read_bytes())
        except (OSError, ValueError):
            found = {}
        kept = found if isinstance(found, dict) else {}
        errors, doubts = kept.get("errors"), kept.get("doubts")
        return {
            **kept,
            "errors": [one for one in errors if _is_error(one)] if isinstance(errors, list) else [],
            "doubts": {n: v for n, v in doubts.items() if _is_number(v)} if isinstance(doubts, dict) else {},
        }

    def write_progress(self, progress: dict[str, Any]) -> None:
        """Writes progress.json anew, whole or not at all."""
        self._write(self.masks / PROGRESS, progress)

    def hold(self) -> int:
        """Locks the folder for this process, until it ends; ValueError where another works in it."""
        handle = os.open(self.cache / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        if lock(handle) is False:
            os.close(handle)
            raise ValueError(
                f"{self.masks} is in use by another perturbmap annotate: go to its page, or end it first."
            )
        return handle

    def _file(self, name: str, suffix: str) -> Path:
        self.path(name)
        return self.masks / f"{name}{suffix}"

    def _write(self, path: Path, value: Any) -> None:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":") if path.name.endswith(MARKS_SUFFIX) else None
        )
        write_atomically(path, lambda file: file.write(text.encode()))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_error(entry: Any) -> bool:
    """Whether an entry of progress.json has all that the curve shows."""
    keys = ("n_masks", "balanced_error", "standard_error", "iou")
    return isinstance(entry, dict) and all(_is_number(entry.get(key)) for key in keys)


def boxes_of(marks: Sequence[Mark], size: tuple[int, int]) -> Boxes:
    """The boxes among marks as in PASCAL VOC: [xmin, ymin, xmax, ymax], pixels that count from 1 and belong to them.

    What reaches beyond the photo, (height, width), is cut off, and a box outside of it left out.
    """
    height, width = size
    boxes: Boxes = []
    for box in marks:
        if isinstance(box, Box):
            left, top = max(0, math.floor(box.left)) + 1, max(0, math.floor(box.top)) + 1
            right, bottom = min(width, math.ceil(box.right)), min(height, math.ceil(box.bottom))
            if left <= right and top <= bottom:
                boxes.append([left, top, right, bottom])
    return boxes
