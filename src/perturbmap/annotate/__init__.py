"""From marks on a photo to a mask, and to where it is in doubt; needs ``pip install "perturbmap[images]"``."""

from perturbmap.annotate.answer import Answer, answer
from perturbmap.annotate.marks import Box, Mark, Stroke, marks_from_json, marks_to_json, paint
from perturbmap.annotate.photo import Photo, prepare

__all__ = [
    "Answer",
    "Box",
    "Mark",
    "Photo",
    "Stroke",
    "answer",
    "marks_from_json",
    "marks_to_json",
    "paint",
    "prepare",
]
