"""Folders of images: which files count, which mask and which boxes belong to which image."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from perturbmap.support.damage import reason, shown

MASK_ENDING = "_mask"  # what a mask may have after its image's name, as those that `segment predict` writes

Boxes = list[list[float]]


@lru_cache(maxsize=1)
def _suffixes() -> frozenset[str]:
    """The suffixes of the files that Pillow reads."""
    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN)


def list_images(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """The image files of a folder by their stems, sorted; hidden files, others and subfolders do not count.

    ValueError where there is none, or where two have one stem: masks, boxes and results go by it.
    """
    files = sorted(
        path
        for path in Path(folder).iterdir()
        if path.suffix.lower() in _suffixes() and not path.name.startswith(".") and path.is_file()
    )
    if not files:
        raise ValueError(f"{folder} holds no image files (subfolders are not looked into).")
    found: dict[str, Path] = {}
    for path in files:
        if path.stem in found:
            raise ValueError(
                f"{found[path.stem].name} and {path.name} in {folder} differ in their suffix alone, but masks, boxes "
                "and results go by the name before it: rename or remove one."
            )
        found[path.stem] = path
    return found


def match_masks(images: Mapping[str, Path], masks: Mapping[str, Path]) -> tuple[dict[Path, Path], list[Path]]:
    """Masks by their images, and the masks without one; the mask of ``NAME.jpg`` is ``NAME.*`` or ``NAME_mask.*``.

    ValueError where no mask belongs to any image.
    """
    matched: dict[Path, Path] = {}
    for ending in ("", MASK_ENDING):
        for stem, image in images.items():
            if image not in matched and stem + ending in masks:
                matched[image] = masks[stem + ending]
    if not matched:
        image, mask = next(iter(images.values())), next(iter(masks.values()))
        raise ValueError(
            f"no mask belongs to any image: the mask of {image.name} must be {image.stem}.png or "
            f"{image.stem}{MASK_ENDING}.png, but masks are named like {mask.name}. Rename one or the other."
        )
    used = set(matched.values())
    return matched, [mask for mask in masks.values() if mask not in used]


def read_boxes(path: str | os.PathLike[str]) -> dict[str, Boxes]:
    """Boxes by stem, from JSON, ``{"NAME": [[xmin, ymin, xmax, ymax], ...], ...}``; NAME may have a suffix."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({reason(error)}).") from None
    if not isinstance(found, dict):
        raise ValueError(
            f'{path} must hold {{"NAME": [[xmin, ymin, xmax, ymax], ...], ...}}, but is a {type(found)}.'
        )
    boxes: dict[str, Boxes] = {}
    for name, entries in found.items():
        if not isinstance(entries, list) or not all(map(_is_box, entries)):
            raise ValueError(
                f"{path} must hold a list of [xmin, ymin, xmax, ymax] for {shown(name)}, but has {shown(entries)}."
            )
        has_suffix = Path(name).suffix.lower() in _suffixes()
        boxes[Path(name).stem if has_suffix else name] = entries
    return boxes


def _is_box(entry: Any) -> bool:
    numbers = isinstance(entry, list) and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in entry)
    return numbers and len(entry) == 4
