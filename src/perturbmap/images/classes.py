"""Classes of things in images: their names, and the numbers or colours that stand for them in masks."""

from __future__ import annotations

import colorsys
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.images.reading import VOID
from perturbmap.support.damage import parse_json, shown

CLASSES_FILE = "classes.json"  # where a folder of masks says what they show
VOID_KEY = "void"
LONGEST_NAME = 60
MOST = VOID  # classes: their numbers are bytes, and one of them is void
_EXAMPLE = (
    '{"grass": 1, "cow": 2, "void": [0, 255]}, or with colours, {"grass": [0, 128, 0], ..., "void": [[0, 0, 0]]}'
)
# Hues that follow each other far apart, whatever their number; two kinds of brightness tell near ones apart.
_HUE_STEP, _SHADES = 0.618034, ((0.85, 0.95), (0.95, 0.62), (0.45, 0.98))

Value = int | tuple[int, int, int]


@final
@dataclass(frozen=True)
class Classes:
    """What masks show: the names of classes, and the number or the colour of each; label k is the k-th of them.

    values : a dict from each name to a number from 0 to 255, or to a colour (red, green, blue); all are numbers, or
        all are colours
    void : numbers or colours of pixels that do not count

    >>> from perturbmap.images import Classes
    >>> Classes({"grass": 1, "cow": 2}, void=(0, 255)).names
    ('grass', 'cow')
    """

    values: Mapping[str, Value]
    void: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        every = [*self.values.values(), *self.void]
        for value in every:
            if not _is_number(value) and not _is_colour(value):
                raise ValueError(
                    "classes must be numbers from 0 to 255, or colours of three such numbers, but one is "
                    f"{shown(value)}: write {_EXAMPLE}."
                )
        if len({isinstance(value, tuple) for value in every}) > 1:
            raise ValueError("classes must be all numbers or all colours, those of void too, but are some of each.")
        if len(set(every)) < len(every):
            twice = next(value for value in every if every.count(value) > 1)
            raise ValueError(f"classes must have one number or colour each, but {shown(twice)} stands for two.")
        for name in self.values:
            if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
                raise ValueError(
                    f"classes must have names of 1 to {LONGEST_NAME} letters, but one is called {shown(name)}."
                )
        if not 2 <= len(self.values) <= MOST:
            raise ValueError(f"classes must be from 2 to {MOST}, but there are {len(self.values)}: write {_EXAMPLE}.")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Classes:
        """Reads classes from a JSON file: an object from names to numbers or colours, and from "void" to a list."""
        try:
            return cls.from_json(parse_json(Path(path).read_bytes()))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, found: Any) -> Classes:
        """Makes classes from what `to_json` returned; raises ValueError for anything else."""
        if not isinstance(found, dict):
            raise ValueError(f"it must hold {_EXAMPLE}, but is {shown(found)}.")
        void = found.get(VOID_KEY, [])
        if not isinstance(void, list):
            raise ValueError(f'"{VOID_KEY}" must be a list of numbers or of colours, but is {shown(void)}.')
        names = {name: _value(value) for name, value in found.items() if name != VOID_KEY}
        return cls(names, tuple(_value(value) for value in void))

    def to_json(self) -> dict[str, Any]:
        """Names to numbers or colours, and a list of those of void, as in a file."""
        named: dict[str, Any] = {n: list(v) if isinstance(v, tuple) else v for n, v in self.values.items()}
        return {**named, VOID_KEY: [list(v) if isinstance(v, tuple) else v for v in self.void]}

    def __len__(self) -> int:
        return len(self.values)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their labels."""
        return tuple(self.values)

    @cached_property
    def are_colours(self) -> bool:
        """Whether masks show classes by colours, and not by numbers."""
        return isinstance(next(iter(self.values.values())), tuple)

    @cached_property
    def colours(self) -> NDArray[np.uint8]:
        """The colour of each class in pictures, (n_classes, 3): its own, or, of a number, one unlike the others."""
        if self.are_colours:
            return np.array(list(self.values.values()), dtype=np.uint8)
        return np.array([_distinct(k) for k in range(len(self))], dtype=np.uint8)

    @cached_property
    def codes(self) -> dict[int, int]:
        """A dict from each number, or from ``red * 65536 + green * 256 + blue``, to its label; void is 255."""
        labels = {_code(value): k for k, value in enumerate(self.values.values())}
        return {**dict.fromkeys(map(_code, self.void), VOID), **labels}


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 255


def _is_colour(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and all(map(_is_number, value))


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _code(value: Value) -> int:
    return value if isinstance(value, int) else int(np.dot(value, (65536, 256, 1)))


def _distinct(k: int) -> Iterable[int]:
    saturation, brightness = _SHADES[k % len(_SHADES)]
    return [round(255 * part) for part in colorsys.hsv_to_rgb(k * _HUE_STEP % 1.0, saturation, brightness)]
