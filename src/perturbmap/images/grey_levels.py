"""Grey masks: the two greys that nearly all of their pixels are near, and the threshold between them.

A mask becomes grey by JPEG, by a soft brush, or when its size is changed. Its areas are then near one grey or the
other, and what is between them is no wider than a few pixels. A third grey that covers areas stands for something
else, unknown or another class, and is never put on one side; nor is a picture whose greys are everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter

N_GREYS = 256
LEAST_CONTRAST = 64  # between the two; numbers that are closer are labels of something else
NEAR, NEARLY_ALL = 1 / 6, 0.9  # of the contrast; of the pixels
FEW_GREYS = 4  # so few are numbers that someone chose: each must be one of the two, or next to it
EVEN, OFF = 1 / 16, 1 / 8  # of the contrast: the spread of an even area, and how far it is from both
SLACK = 4  # greys, by which compression shifts areas of one number
LARGEST_THIRD, LARGEST_SHIFTED = 0.0003, 0.05  # shares of the pixels, in areas of a third grey, or of shifted ones


@final
@dataclass(frozen=True)
class Levels:
    """The grey of background and that of foreground, from 0 to 255."""

    low: int
    high: int

    @property
    def threshold(self) -> int:
        """The least grey that is foreground."""
        return math.ceil((self.low + self.high) / 2)

    def agree(self, other: Levels) -> bool:
        """Whether both may come from one set of masks."""
        near = NEAR * min(self.high - self.low, other.high - other.low)
        return abs(self.low - other.low) <= near and abs(self.high - other.high) <= near


def two_levels(grey: NDArray[Any]) -> Levels:
    """The two greys that nearly all pixels are near, of values from 0 to 255; ValueError, which says why, if none."""
    values = np.rint(grey).astype(np.uint8)
    counts = np.bincount(values.ravel(), minlength=N_GREYS)
    greys = np.flatnonzero(counts)
    if greys[-1] - greys[0] < LEAST_CONTRAST:
        raise ValueError(f"its numbers, {greys[0]} to {greys[-1]}, are too close to each other to be dark and bright")
    levels = _peaks(counts)
    contrast = levels.high - levels.low
    if contrast < LEAST_CONTRAST:
        raise ValueError(f"most of it is of similar greys, near {levels.low} and {levels.high}")
    every = np.arange(N_GREYS)
    apart = np.minimum(abs(every - levels.low), abs(every - levels.high))
    share = counts[apart <= NEAR * contrast].sum() / values.size
    if share < NEARLY_ALL:
        raise ValueError(f"only {share:.0%} of its pixels are near two greys, {levels.low} and {levels.high}")
    third = _third(values, greys, apart, contrast)
    if third is not None:
        first, second, last = sorted((levels.low, levels.high, third))
        raise ValueError(f"it holds {first}, {second} and {last}, of which one may stand for unknown")
    return levels


def _third(values: NDArray[np.uint8], greys: NDArray[Any], apart: NDArray[Any], contrast: int) -> int | None:
    """A grey that is neither of the two, of this distance from both, but covers areas; None where there is none."""
    if len(greys) <= FEW_GREYS and apart[greys].max() > 1:
        return int(greys[apart[greys].argmax()])
    spread = maximum_filter(values, 3) - minimum_filter(values, 3)
    smooth = values[(spread <= EVEN * contrast) & (apart[values] > OFF * contrast)]
    areas = np.bincount(values[spread == 0], minlength=N_GREYS)
    exact, shifted = np.where(apart > SLACK, areas, 0), np.where((apart > 0) & (apart <= SLACK), areas, 0)
    for found, largest in (
        (np.bincount(smooth, minlength=N_GREYS), LARGEST_THIRD),
        (exact, LARGEST_THIRD),
        (shifted, LARGEST_SHIFTED),
    ):
        if found.sum() > largest * values.size:
            return int(found.argmax())
    return None


def _peaks(counts: NDArray[np.intp]) -> Levels:
    """The most frequent grey on each side of the split of greatest variance between the sides (Otsu, 1979)."""
    every = np.arange(N_GREYS)
    below, mass = np.cumsum(counts)[:-1], np.cumsum(counts * every)
    above = counts.sum() - below
    apart = mass[:-1] / np.maximum(below, 1) - (mass[-1] - mass[:-1]) / np.maximum(above, 1)
    split = 1 + int(np.argmax(below * above * apart**2))
    return Levels(int(counts[:split].argmax()), split + int(counts[split:].argmax()))
