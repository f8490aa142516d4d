"""Marks on a photo: what they paint, and what JSON is taken for them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skimage", reason="scikit-image is not installed")

from perturbmap.annotate import Box, Stroke, marks_from_json, marks_to_json, paint
from perturbmap.annotate.marks import MOST_MARKS, MOST_POINTS

SHAPE = (60, 80)


def test_a_stroke_is_what_its_brush_covers() -> None:
    """A pixel is marked if its centre is within the radius of the line, but for half a pixel at the rim."""
    (x0, y0), (x1, y1) = (15.0, 20.0), (55.0, 40.0)
    found = paint([Stroke(1, 6.0, ((x0, y0), (x1, y1)))], SHAPE)
    y, x = np.mgrid[:60, :80] + 0.5
    along = (((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / ((x1 - x0) ** 2 + (y1 - y0) ** 2)).clip(0, 1)
    distance = np.hypot(x - x0 - along * (x1 - x0), y - y0 - along * (y1 - y0))
    assert (found[distance < 5] == 1).all()
    assert (found[distance > 7] == -1).all()


def test_later_strokes_lie_above_earlier_ones() -> None:
    """And an eraser leaves nothing known."""
    first, second, eraser = (Stroke(k, 5, ((20, 20),)) for k in (0, 1, -1))
    assert paint([first, second], SHAPE)[20, 20] == 1
    assert paint([second, first], SHAPE)[20, 20] == 0
    assert (paint([first, second, eraser], SHAPE) == -1).all()
    assert paint([eraser, first], SHAPE)[20, 20] == 0


def test_a_box_makes_background_of_what_is_outside_of_all_boxes() -> None:
    """Strokes lie above boxes, whenever they were drawn; an eraser frees what a box has taken."""
    boxes = [Box(10, 10, 30, 30), Box(50, 20, 70, 50)]
    found = paint(boxes, SHAPE)
    y, x = np.mgrid[:60, :80] + 0.5
    inside = (x > 10) & (x < 30) & (y > 10) & (y < 30) | (x > 50) & (x < 70) & (y > 20) & (y < 50)
    np.testing.assert_array_equal(found, np.where(inside, -1, 0))
    assert paint([Stroke(1, 3, ((5, 5),)), *boxes], SHAPE)[5, 5] == 1
    assert paint([*boxes, Stroke(-1, 3, ((5, 5),))], SHAPE)[5, 5] == -1


def test_a_box_outside_the_photo_leaves_background_alone() -> None:
    """Nothing of the photo is inside; a box around all of it leaves everything unknown."""
    assert (paint([Box(200, 200, 300, 300)], SHAPE) == 0).all()
    assert (paint([Box(-50, -50, 300, 300)], SHAPE) == -1).all()


@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
def test_marks_keep_their_place_in_other_sizes(scale: float) -> None:
    """The picture of a reduced photo shows them at the same share of its width, however thin they are."""
    shape = round(60 * scale), round(80 * scale)
    found = paint([Stroke(1, 0.5, ((40, 30),))], shape, scale)
    y, x = np.nonzero(found == 1)
    assert len(y) > 0
    assert abs((x + 0.5).mean() / shape[1] - 0.5) < 1 / shape[1]
    assert abs((y + 0.5).mean() / shape[0] - 0.5) < 1 / shape[0]


def test_strokes_may_leave_the_photo() -> None:
    """What is outside is not there."""
    found = paint([Stroke(1, 4, ((-1000, 30), (1000, 30)))], SHAPE)
    assert (found[30] == 1).all()
    assert (found[:20] == -1).all()


def test_marks_come_back_from_json() -> None:
    """Through a text and back they are equal."""
    marks = (Stroke(1, 2.5, ((1.0, 2.0), (3.25, 4.0))), Box(1.0, 2.0, 30.0, 40.0), Stroke(-1, 7.0, ((5.0, 5.0),)))
    assert marks_from_json(json.loads(json.dumps(marks_to_json(marks))), 2) == marks
    assert marks_from_json([], 2) == ()


STROKE = {"label": 1, "radius": 2.0, "points": [[1.0, 2.0]]}


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("x", "marks must be a list"),
        ({}, "marks must be a list"),
        ([STROKE] * (MOST_MARKS + 1), "at most 5000"),
        ([{**STROKE, "points": [[0.0, 0.0]] * 60_000}] * 2, "at most 100000 points together, but have 120000"),
        ([{**STROKE, "points": [[0.0, 0.0]] * (MOST_POINTS + 1)}], r"marks\[0\].points must be a list of 1 to"),
        ([STROKE, 3], r"marks\[1\] must be .*but has int"),
        ([{"label": 1}], r"marks\[0\] must be .*but has \['label'\]"),
        ([{**STROKE, "box": [0, 0, 1, 1]}], r"marks\[0\] must be"),
        ([{**STROKE, "label": 2}], r"marks\[0\].label must be a class from 0 to 1, .*but is 2"),
        ([{**STROKE, "label": -2}], "label must be"),
        ([{**STROKE, "label": True}], "label must be"),
        ([{**STROKE, "label": 1.0}], "label must be"),
        ([{**STROKE, "radius": 0}], "radius must be greater than 0"),
        ([{**STROKE, "radius": float("nan")}], "radius must be a number .*but is nan"),
        ([{**STROKE, "radius": "3"}], "radius must be a number"),
        ([{**STROKE, "radius": 1e9}], "radius must be a number of at most 100,000 pixels"),
        ([{**STROKE, "points": []}], "points must be a list"),
        ([{**STROKE, "points": [[1.0, float("nan")]]}], r"points\[0\] must be 2 numbers"),
        ([{**STROKE, "points": [[1.0, 2.0], [float("inf"), 0]]}], r"points\[1\] must be 2 numbers"),
        ([{**STROKE, "points": [[1.0]]}], r"points\[0\] must be 2 numbers"),
        ([{**STROKE, "points": [[1, 10**400]]}], r"points\[0\] must be 2 numbers"),
        ([{**STROKE, "points": [[True, 1]]}], r"points\[0\] must be 2 numbers"),
        ([{"box": [0, 0, 1]}], r"marks\[0\].box must be 4 numbers"),
        ([{"box": [5, 0, 1, 1]}], "left < right"),
        ([{"box": [0, 0, 1, float("nan")]}], "box must be 4 numbers"),
    ],
)
def test_other_json_is_refused_by_name(value: Any, complaint: str) -> None:
    """The error says which mark, what came, and what it should be; it never repeats a huge body."""
    with pytest.raises(ValueError, match=complaint) as caught:
        marks_from_json(value, 2)
    assert len(str(caught.value)) < 300
