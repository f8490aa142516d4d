"""An annotator who knows the truth: strokes in the largest wrong region until the mask is good enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, label

from perturbmap.annotate import Answer, Mark, Stroke
from perturbmap.images.superpixels import stretch

VOID = 255
LARGEST, SMALLEST = 10.0, 2.0  # radii of brushes, in pixels of a photo of 400


@dataclass(frozen=True)
class Session:
    """What became of one photo, after 0, 1, 2, ... strokes: lists of the same length.

    overlaps : intersection over union of the foreground
    doubted, wrong : the share of pixels that should be wrong by the answer's doubt, and the share that is
    wall, cpu : seconds that the answer took
    """

    overlaps: list[float]
    doubted: list[float]
    wrong: list[float]
    wall: list[float]
    cpu: list[float]

    def n_strokes(self, overlap: float, most: int) -> int:
        """How many strokes it took to reach this overlap; ``most`` where it never did."""
        return next((n for n, reached in enumerate(self.overlaps) if reached >= overlap), most)


def overlap_of(mask: NDArray[np.uint8], truth: NDArray[np.uint8]) -> float:
    """Intersection over union of the foreground; void does not count."""
    judged = truth != VOID
    found, true = (mask == 1) & judged, (truth == 1) & judged
    union = (found | true).sum()
    return float((found & true).sum() / union) if union else 1.0


def next_stroke(mask: NDArray[np.uint8], truth: NDArray[np.uint8]) -> Stroke:
    """A disk in the largest connected region of one kind of mistake, where that is broadest.

    The usual protocol (Xu et al., 2016; Sofiiuk et al., 2022, who click there): the pixel farthest from all that is
    not such a mistake, and a brush of half that distance.
    """
    best: tuple[int, int, NDArray[np.bool_]] | None = None
    for true in (0, 1):
        regions, n = label((truth == true) & (mask != true))
        if n:
            areas = np.bincount(regions.ravel())[1:]
            largest = int(areas.argmax())
            if best is None or areas[largest] > best[0]:
                best = int(areas[largest]), true, regions == largest + 1
    assert best is not None
    depth = distance_transform_edt(np.pad(best[2], 1))[1:-1, 1:-1]
    y, x = np.unravel_index(int(depth.argmax()), depth.shape)
    size = max(truth.shape) / 400
    radius = min(max(float(depth.max()) / 2, SMALLEST * size), LARGEST * size)
    return Stroke(best[1], radius, ((float(x) + 0.5, float(y) + 0.5),))


def annotate(
    ask: Callable[[list[Mark]], tuple[Answer, float]], truth: NDArray[np.uint8], overlap: float, most: int
) -> Session:
    """Strokes until the overlap is reached, at most so many; ``ask`` has the answer to marks and its CPU seconds."""
    marks: list[Mark] = []
    session = Session([], [], [], [], [])
    while True:
        found, cpu = ask(marks)
        session.overlaps.append(overlap_of(found.mask, truth))
        judged = truth != VOID
        session.wrong.append(float((found.mask != truth)[judged].mean()))
        session.doubted.append(float(stretch(found.doubt, truth.shape)[judged].mean() / 510))
        session.wall.append(found.seconds)
        session.cpu.append(cpu)
        if session.overlaps[-1] >= overlap or len(marks) == most:
            return session
        marks.append(next_stroke(found.mask, truth))
