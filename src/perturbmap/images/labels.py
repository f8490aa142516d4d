"""From masks and boxes on pixels to labels of superpixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.images.reading import VOID
from perturbmap.images.superpixels import Superpixels
from perturbmap.potentials import Labels
from perturbmap.potentials.site_labels import UNKNOWN


def _map(regions: Labels | Superpixels) -> Labels:
    return regions.map if isinstance(regions, Superpixels) else np.asarray(regions)


def labels_from_mask(regions: Labels | Superpixels, mask: NDArray[Any], n_labels: int = 2) -> Labels:
    """The label that covers most of each superpixel, (n_superpixels,); the smallest where several cover as much.

    ``mask`` is as `read_mask` has it, background (0) and foreground (1), or as `read_class_mask` has it, with as many
    labels as there are classes. Void pixels do not count; a superpixel of nothing else gets -1.
    """
    where = _map(regions)
    values = np.asarray(mask)
    if values.shape != where.shape:
        raise ValueError(f"mask must have the size of the superpixel map, {where.shape}, but has {values.shape}.")
    if not ((values >= 0) & (values < n_labels) | (values == VOID)).all():
        what = "0 (background), 1 (foreground)" if n_labels == 2 else f"the labels 0 to {n_labels - 1}"
        how = "read_mask" if n_labels == 2 else "read_class_mask"
        raise ValueError(f"mask must hold {what} and 255 (void) alone; {how} makes it so.")
    n = int(where.max()) + 1
    judged = values != VOID
    pairs = where[judged].astype(np.int64) * n_labels + values[judged]
    areas = np.bincount(pairs, minlength=n * n_labels).reshape(n, n_labels)
    return np.where(areas.sum(axis=1) > 0, areas.argmax(axis=1), UNKNOWN).astype(np.int32)


def fill_unknown(regions: Superpixels, labels: Labels) -> Labels:
    """Fills in unknown labels: a superpixel of void alone gets the label of most area among its labelled neighbours.

    A mask's void is often the seam between two labels, where either will do; left as it is, a single such superpixel
    would make an example a partly labelled one.
    """
    filled = np.array(labels, dtype=np.int32)
    if len(filled) != len(regions) or not (filled >= 0).any():
        raise ValueError(f"labels must be one for each superpixel, {len(regions)}, and some of them must be known.")
    here, there = np.concatenate([regions.edges, regions.edges[:, ::-1]]).T
    while (filled < 0).any():
        known = filled[there] >= 0
        votes = np.zeros((len(filled), int(filled.max()) + 1))
        np.add.at(votes, (here[known], filled[there[known]]), regions.areas[there[known]])
        reached = (filled < 0) & (votes.sum(axis=1) > 0)
        filled[reached] = votes[reached].argmax(axis=1)
    return filled


def labels_from_boxes(regions: Labels | Superpixels, boxes: Any) -> Labels:
    """Labels from boxes around the foreground: 0 for a superpixel outside every box, -1 (unknown) for the others.

    The result has a label for each superpixel, (n_superpixels,): 0 where no pixel is in any box. A box is
    ``[xmin, ymin, xmax, ymax]`` as in PASCAL VOC: pixels are counted from 1 and both ends belong to it, so that
    ``[1, 1, width, height]`` is the whole image. If an end is a fraction, the pixel that it touches belongs to the
    box. What reaches beyond the image is cut off. Without any box all is background.
    """
    where = _map(regions)
    height, width = where.shape
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        array = array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4 or not np.isfinite(array).all():
        raise ValueError(f"boxes must be a list of [xmin, ymin, xmax, ymax], but is {boxes!r}.")
    inside = np.zeros(where.shape, dtype=bool)
    for box in array:
        x0, y0 = np.floor(box[:2]).astype(int) - 1
        x1, y1 = np.ceil(box[2:]).astype(int)
        if box[0] > box[2] or box[1] > box[3] or x0 >= width or y0 >= height or x1 <= 0 or y1 <= 0:
            raise ValueError(
                f"boxes holds {box.tolist()}, which is empty or outside the image of {width} x {height} pixels: "
                "boxes are [xmin, ymin, xmax, ymax], in pixels of the image as shown."
            )
        inside[max(0, y0) : y1, max(0, x0) : x1] = True
    labels = np.zeros(int(where.max()) + 1, dtype=np.int32)
    labels[np.unique(where[inside])] = UNKNOWN
    return labels
