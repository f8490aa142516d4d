"""What a user draws on a photo: strokes and boxes, as labels of pixels and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from perturbmap.potentials.site_labels import UNKNOWN

MOST_MARKS = 5_000
MOST_POINTS = 100_000  # of all strokes together
FARTHEST = 100_000.0  # pixels, of a point from the corner of the photo; and of a radius
ERASER = -1


@final
@dataclass(frozen=True)
class Stroke:
    """A line of round brush marks, which gives a label to the pixels it covers.

    label : 0 for background, 1 for foreground, or a class; -1 erases what earlier strokes and boxes have marked
    radius : of the brush
    points : (x, y) of the line, in pixels of the photo at full size; a single one is a disk
    """

    label: int
    radius: float
    points: tuple[tuple[float, float], ...]


@final
@dataclass(frozen=True)
class Box:
    """A rectangle around the object, in pixels of the photo at full size: outside is background, inside unknown.

    Several boxes are of several objects: what is outside of all of them is background.
    """

    left: float
    top: float
    right: float
    bottom: float


#: The label of each pixel, -1 where it is unknown.
Painted = NDArray[np.int8]
#: What a user has drawn: a `Stroke` or a `Box`.
Mark = Stroke | Box


def paint(marks: Sequence[Mark], shape: tuple[int, int], at_scale: float = 1.0) -> Painted:
    """The label of each pixel, ``shape`` = (rows, columns), -1 where it is unknown.

    ``at_scale`` is the size of the picture as a share of the photo's full size. Strokes lie above boxes, and a later
    stroke above an earlier one. Every stroke marks the pixels under its points at least, however thin it is.
    """
    boxes = [mark for mark in marks if isinstance(mark, Box)]
    labels = np.full(shape, UNKNOWN, dtype=np.int8)
    if boxes:
        y, x = ((np.arange(n) + 0.5) / at_scale for n in shape)
        labels[:] = 0
        for box in boxes:
            inside = ((box.top <= y) & (y <= box.bottom))[:, None] & (box.left <= x) & (x <= box.right)
            labels[inside] = UNKNOWN
    strokes = [mark for mark in marks if isinstance(mark, Stroke)]
    if not strokes:
        return labels
    # Pillow draws numbers from 0: labels are moved up by two, and 0 is where nothing was drawn.
    picture = Image.new("L", (shape[1], shape[0]))
    pen = ImageDraw.Draw(picture)
    for stroke in strokes:
        _draw(pen, stroke, at_scale)
    drawn = np.asarray(picture, dtype=np.int16)
    return np.where(drawn > 0, drawn - 2, labels).astype(np.int8)


def _draw(pen: ImageDraw.ImageDraw, stroke: Stroke, at_scale: float) -> None:
    """Disks at the points, joined by broad lines; a pixel's number is the coordinate of its centre."""
    radius, fill = stroke.radius * at_scale - 0.5, stroke.label + 2
    points = [(x * at_scale - 0.5, y * at_scale - 0.5) for x, y in stroke.points]
    if radius >= 1:
        for x, y in points:
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
        if len(points) > 1:
            pen.line(points, fill=fill, width=round(2 * radius + 1))
    else:
        thin = [(round(x), round(y)) for x, y in points]
        pen.point(thin, fill=fill)
        if len(thin) > 1:
            pen.line(thin, fill=fill, width=1)


def marks_to_json(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """The marks as what `json.dumps` takes; `marks_from_json` is the way back."""
    return [
        {"box": [mark.left, mark.top, mark.right, mark.bottom]}
        if isinstance(mark, Box)
        else {"label": mark.label, "radius": mark.radius, "points": [list(point) for point in mark.points]}
        for mark in marks
    ]


def marks_from_json(values: Any, n_classes: int = 2) -> tuple[Mark, ...]:
    """The marks that `marks_to_json` wrote; ValueError, which names the mark, for anything else.

    At most 5,000 marks with 100,000 points together are taken, labels below ``n_classes``, and coordinates up to
    100,000 pixels from the corner of the photo.
    """
    if not isinstance(values, list) or len(values) > MOST_MARKS:
        what = f"has {len(values)}" if isinstance(values, list) else f"is a {type(values).__name__}"
        raise ValueError(f"marks must be a list of at most {MOST_MARKS} strokes and boxes, but {what}.")
    marks = tuple(_mark(f"marks[{n}]", value, n_classes) for n, value in enumerate(values))
    n_points = sum(len(mark.points) for mark in marks if isinstance(mark, Stroke))
    if n_points > MOST_POINTS:
        raise ValueError(f"marks must have at most {MOST_POINTS} points together, but have {n_points}.")
    return marks


def _mark(name: str, value: Any, n_classes: int) -> Mark:
    if isinstance(value, Mapping) and set(value) == {"box"}:
        left, top, right, bottom = _numbers(f"{name}.box", value["box"], 4)
        if left >= right or top >= bottom:
            raise ValueError(
                f"{name}.box must be [left, top, right, bottom] with left < right and top < bottom, but is "
                f"{[left, top, right, bottom]}."
            )
        return Box(left, top, right, bottom)
    if not isinstance(value, Mapping) or set(value) != {"label", "radius", "points"}:
        raise ValueError(
            f'{name} must be {{"label", "radius", "points"}} for a stroke, or {{"box"}}, but has '
            f"{sorted(map(str, value))[:5] if isinstance(value, Mapping) else type(value).__name__}."
        )
    label, points = value["label"], value["points"]
    if not isinstance(label, int) or isinstance(label, bool) or not ERASER <= label < n_classes:
        raise ValueError(
            f"{name}.label must be a class from 0 to {n_classes - 1}, or -1 for an eraser, but is {_short(label)}."
        )
    (radius,) = _numbers(f"{name}.radius", [value["radius"]], 1)
    if radius <= 0:
        raise ValueError(f"{name}.radius must be greater than 0 pixels, but is {radius}.")
    if not isinstance(points, list) or not 1 <= len(points) <= MOST_POINTS:
        raise ValueError(f"{name}.points must be a list of 1 to {MOST_POINTS} pairs [x, y], but is {_short(points)}.")
    pairs = [_numbers(f"{name}.points[{n}]", point, 2) for n, point in enumerate(points)]
    return Stroke(label, radius, tuple((x, y) for x, y in pairs))


def _numbers(name: str, values: Any, n: int) -> list[float]:
    """So many finite numbers, none of them far out; else a ValueError."""
    are_numbers = isinstance(values, list) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
    )
    if not are_numbers or len(values) != n or not all(abs(v) <= FARTHEST and math.isfinite(v) for v in values):
        many = f"{n} numbers" if n > 1 else "a number"
        shown = values[0] if n == 1 and isinstance(values, list) else values
        raise ValueError(f"{name} must be {many} of at most {FARTHEST:,.0f} pixels, but is {_short(shown)}.")
    return [float(v) for v in values]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
