"""All accepted masks in one zip: PNG files as they are, and what they show as COCO JSON."""

from __future__ import annotations

import json
import zipfile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.images.classes import CLASSES_FILE

COCO_FILE = "coco.json"


def write_zip(folder: AnnotationFolder, file: IO[bytes]) -> int:
    """Writes masks/NAME.png, classes.json where there is one, and coco.json; returns the number of masks."""
    masks = folder.accepted()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in masks.values():
            archive.write(path, f"masks/{path.name}", zipfile.ZIP_STORED)  # PNG is packed
        if folder.classes is not None:
            archive.writestr(f"masks/{CLASSES_FILE}", json.dumps(folder.classes.to_json()))
        archive.writestr(COCO_FILE, json.dumps(coco(folder)))
    return len(masks)


def coco(folder: AnnotationFolder) -> dict[str, Any]:
    """The accepted masks as COCO has them: one annotation for each label that a photo shows.

    Its segmentation is a run-length encoding, of the whole region of the label. Of background and foreground, the
    foreground alone is a category; of classes, all are.
    """
    labels = range(1, 2) if folder.classes is None else range(len(folder.names))
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for name in folder.accepted():
        mask = folder.mask(name)
        height, width = mask.shape
        images.append({"id": len(images) + 1, "file_name": folder.path(name).name, "width": width, "height": height})
        for label in labels:
            inside = mask == label
            if inside.any():
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": len(images),
                        "category_id": label + (folder.classes is not None),
                        "iscrowd": 0,
                        "area": int(inside.sum()),
                        "bbox": bounding_box(inside),
                        "segmentation": {"size": [height, width], "counts": run_lengths(inside)},
                    }
                )
    categories = [
        {"id": label + (folder.classes is not None), "name": folder.names[label], "supercategory": ""}
        for label in labels
    ]
    return {"images": images, "annotations": annotations, "categories": categories}


def run_lengths(inside: NDArray[np.bool_]) -> list[int]:
    """Lengths of the runs of 0 and 1 in turn, column by column, beginning with 0: COCO's uncompressed RLE.

    >>> import numpy as np
    >>> from perturbmap.annotate.export import run_lengths
    >>> run_lengths(np.array([[0, 1, 1], [0, 1, 0]], dtype=bool))
    [2, 3, 1]
    """
    pixels = inside.ravel(order="F")
    changes = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    counts = np.diff(np.concatenate([[0], changes, [pixels.size]])).tolist()
    return [0, *counts] if pixels[0] else counts


def bounding_box(inside: NDArray[np.bool_]) -> list[int]:
    """[left, top, width, height] of the pixels that are inside, in pixels counted from 0."""
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    left, top = int(columns[0]), int(rows[0])
    return [left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1]
