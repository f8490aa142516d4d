"""The horse experiment's folder, or another class's, from a download of PASCAL VOC2012 (and SBD, where there is one).

::

    OUT/images/small, OUT/masks/small   VOC's segmentation images that show the class
    OUT/images/test, OUT/masks/test     for evaluation alone
    OUT/images/medium                   others with boxes of the class
    OUT/images/unlabelled               others, of which nothing is known
    OUT/boxes.json                      all boxes of small, test and medium: id -> [[xmin, ymin, xmax, ymax], ...]

Masks: 0 background, 1 the class, 255 void. All is reduced to 400 pixels of the longer side. SBD (Hariharan et al.,
2011) has masks of images that VOC has only boxes for: a part of those, drawn with a seed, is the test set. Without
SBD, VOC's "train" is small and its "val" is the test set.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perturbmap.images.encoding import encode
from perturbmap.images.folders import Boxes, list_images
from perturbmap.images.reading import VOID, ImageError, Path_, SkippedImageWarning, open_image
from perturbmap.support.progress import Progress, as_progress

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
#: Actions that show a class for sure; their images have boxes of people alone.
ACTIONS = {"horse": "ridinghorse"}
LONGER_SIDE = 400

Mask = NDArray[np.uint8]


@final
@dataclass
class Split:
    """Image ids of each part, and the masks of those that have one."""

    small: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    medium: list[str] = field(default_factory=list)
    unlabelled: list[str] = field(default_factory=list)
    masks: dict[str, Mask] = field(default_factory=dict)


def prepare_voc(
    root: Path_,
    out: Path_,
    class_name: str = "horse",
    *,
    sbd: Path_ | None = None,
    unlabelled: Path_ | None = None,
    n_test: int | None = None,
    seed: int = 0,
    progress: bool | Progress = True,
) -> dict[str, int]:
    """Makes the folder ``out``, which must not exist, and says how many images each part has.

    sbd : SBD's folder; ``n_test`` of the images with a mask there alone (half by default) become the test set
    unlabelled : a folder of further images; those of VOC's action set come by themselves, for horses
    """
    target = Path(out)
    if target.exists():
        raise FileExistsError(f"{target} exists: name a folder that does not.")
    if class_name not in CLASSES:
        raise ValueError(f"class must be one of {', '.join(CLASSES)}, but is {class_name!r}.")
    voc = _find_voc(Path(root))
    further = {} if unlabelled is None else list_images(unlabelled)
    target.parent.mkdir(parents=True, exist_ok=True)
    boxes = _read_boxes(voc, class_name)
    split = _split(voc, class_name, boxes, None if sbd is None else _find_sbd(Path(sbd)), n_test, seed)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        counts = _write(temporary, voc, split, boxes, further, progress)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return counts


# Finding.


def _find_voc(root: Path) -> Path:
    needed = ("JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Segmentation")
    for folder in (root, root / "VOC2012", root / "VOCdevkit" / "VOC2012"):
        if all((folder / name).is_dir() for name in needed):
            return folder
    raise ValueError(
        f"{root} is not VOC2012: neither it nor a folder VOC2012 in it has {', '.join(needed)}. "
        "Unpack VOCtrainval_11-May-2012.tar and give the folder VOCdevkit."
    )


# No file system takes a longer name.
_LONGEST_ID = 200


def _find_sbd(root: Path) -> Path:
    for folder in (root, root / "dataset", root / "benchmark_RELEASE" / "dataset"):
        if (folder / "cls").is_dir():
            return folder / "cls"
    raise ValueError(f"{root} is not SBD: it has no folder cls, dataset/cls or benchmark_RELEASE/dataset/cls.")


def _ids(path: Path) -> list[str]:
    """The first word of each line; those of an action set count where the last is 1."""
    lines = [line.split() for line in path.read_text().splitlines()]
    if any(words and len(words[0]) > _LONGEST_ID for words in lines):
        raise ValueError(f"{path} holds a name of more than {_LONGEST_ID} letters: it is not a list of VOC's images.")
    return list(dict.fromkeys(words[0] for words in lines if words and (len(words) == 1 or words[-1] == "1")))


def _read_boxes(voc: Path, class_name: str) -> dict[str, Boxes]:
    """All boxes of the class, by id, in pixels of the original images."""
    found: dict[str, Boxes] = {}
    for path in sorted((voc / "Annotations").glob("*.xml")):
        try:
            objects = [entry for entry in ET.parse(path).getroot().iter("object")]
            named = [entry for entry in objects if (entry.findtext("name") or "").strip() == class_name]
            boxes = [[_number(entry, side) for side in ("xmin", "ymin", "xmax", "ymax")] for entry in named]
        except (ET.ParseError, ValueError) as error:
            _leave_out(f"{path} is not an annotation of VOC ({error}).")
            continue
        if boxes:
            found[path.stem] = boxes
    return found


def _number(entry: ET.Element, side: str) -> float:
    text = entry.findtext(f"bndbox/{side}")
    if text is None or not math.isfinite(float(text)):
        raise ValueError(f"a box has no {side}")
    return float(text)


def _split(
    voc: Path, class_name: str, boxes: dict[str, Boxes], sbd: Path | None, n_test: int | None, seed: int
) -> Split:
    sets, index = voc / "ImageSets", CLASSES.index(class_name) + 1
    split = Split()
    segmented: set[str] = set()
    for name, part in (("train", split.small), ("val", split.small if sbd is not None else split.test)):
        for image in _ids(sets / "Segmentation" / f"{name}.txt"):
            segmented.add(image)
            mask = _voc_mask(voc / "SegmentationClass" / f"{image}.png", index)
            if mask is not None:
                split.masks[image] = mask
                part.append(image)
    if not split.small:
        raise ValueError(f"{voc} has no segmentation image of the class {class_name}.")
    if sbd is not None:
        drawn = [image for image in boxes if image not in segmented and (sbd / f"{image}.mat").is_file()]
        candidates = [drawn[n] for n in np.random.default_rng(seed).permutation(len(drawn))]
        n_test = len(candidates) // 2 if n_test is None else n_test
        for image in candidates:
            if len(split.test) >= n_test:
                break
            mask = _sbd_mask(sbd / f"{image}.mat", index)
            if mask is not None:
                split.masks[image] = mask
                split.test.append(image)
    split.medium = sorted(set(boxes) - set(split.masks))
    action = sets / "Action" / f"{ACTIONS.get(class_name)}_trainval.txt"
    if action.is_file():
        split.unlabelled = sorted(set(_ids(action)) - segmented - set(boxes))
    return split


def _voc_mask(path: Path, index: int) -> Mask | None:
    """The mask in a file of VOC; None where it cannot be read or does not show the class."""
    try:
        values = np.asarray(open_image(path))
    except (ImageError, FileNotFoundError) as error:
        _leave_out(str(error))
        return None
    if values.ndim != 2:
        _leave_out(f"{path} has no palette, so that classes cannot be told.")
        return None
    return _as_mask(values, index)


def _sbd_mask(path: Path, index: int) -> Mask | None:
    from scipy.io import loadmat

    try:
        return _as_mask(np.asarray(loadmat(path)["GTcls"]["Segmentation"][0, 0]), index)
    except Exception as error:  # a damaged file may raise anything
        _leave_out(f"{path} is not a segmentation of SBD ({error}).")
        return None


def _as_mask(values: NDArray[Any], index: int) -> Mask | None:
    mask = np.where(values == index, 1, np.where(values == VOID, VOID, 0)).astype(np.uint8)
    return mask if (mask == 1).any() else None


def _leave_out(complaint: str) -> None:
    warnings.warn(f"left out: {complaint}", SkippedImageWarning, stacklevel=3)


# Writing.


def _write(
    folder: Path,
    voc: Path,
    split: Split,
    boxes: dict[str, Boxes],
    further: dict[str, Path],
    progress: bool | Progress,
) -> dict[str, int]:
    known = {*split.small, *split.test, *split.medium, *split.unlabelled}
    for stem in [stem for stem in further if stem in known]:
        _leave_out(f"{further.pop(stem)} has the name of an image of VOC.")
    jobs = [(part, image, voc / "JPEGImages" / f"{image}.jpg") for part in _PARTS for image in getattr(split, part)]
    jobs += [("unlabelled", stem, path) for stem, path in further.items()]
    for part in _PARTS:
        (folder / "images" / part).mkdir(parents=True)
    for part in ("small", "test"):
        (folder / "masks" / part).mkdir(parents=True)
    scaled: dict[str, Boxes] = {}
    counts = dict.fromkeys(_PARTS, 0)
    bar = as_progress(progress)
    bar.begin("writing images")
    try:
        for n, (part, image, path) in enumerate(jobs):
            bar.advance(n / len(jobs))
            try:
                size, reduced = _write_image(path, folder / "images" / part / f"{image}.jpg")
                if image in split.masks:
                    _write_mask(split.masks[image], size, reduced, folder / "masks" / part / f"{image}.png")
            except (ImageError, FileNotFoundError) as error:
                (folder / "images" / part / f"{image}.jpg").unlink(missing_ok=True)
                _leave_out(str(error))
                continue
            counts[part] += 1
            if part != "unlabelled" and image in boxes:
                scaled[image] = [scale_box(box, size, reduced) for box in boxes[image]]
    finally:
        if bar is not progress:
            bar.close()
    (folder / "boxes.json").write_text(json.dumps(dict(sorted(scaled.items()))) + "\n", encoding="utf-8")
    return counts


_PARTS = ("small", "test", "medium", "unlabelled")


def _write_image(source: Path, target: Path) -> tuple[tuple[int, int], tuple[int, int]]:
    """Writes the reduced image; returns (width, height) before and after."""
    image = open_image(source)
    scale = min(1.0, LONGER_SIDE / max(image.size))
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    if size == image.size and image.format == "JPEG":
        shutil.copyfile(source, target)
    else:
        reduced = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        target.write_bytes(encode(reduced, "JPEG", quality=95))
    return image.size, size


def _write_mask(mask: Mask, size: tuple[int, int], reduced: tuple[int, int], target: Path) -> None:
    if mask.shape != size[::-1]:
        raise ImageError(
            f"the mask of {target.stem} is {mask.shape[1]} x {mask.shape[0]} pixels, its image {size[0]} x {size[1]}."
        )
    target.write_bytes(encode(Image.fromarray(mask).resize(reduced, Image.Resampling.NEAREST), "PNG"))


def scale_box(box: Iterable[float], size: tuple[int, int], reduced: tuple[int, int]) -> list[float]:
    """A box of VOC (pixels from 1, both ends inside) in the reduced image, with all pixels that it touches there."""
    xmin, ymin, xmax, ymax = box
    x, y = reduced[0] / size[0], reduced[1] / size[1]
    lower = [max(1, math.floor((xmin - 1) * x + 1e-9) + 1), max(1, math.floor((ymin - 1) * y + 1e-9) + 1)]
    upper = [min(reduced[0], math.ceil(xmax * x - 1e-9)), min(reduced[1], math.ceil(ymax * y - 1e-9))]
    return [*lower, *upper]
