"""What classes are taken for: a table of pixels, and the measures that are read from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.images.segmenter import Segmentation
from perturbmap.potentials import Floats


@final
@dataclass(frozen=True, eq=False)
class Confusion:
    """How many pixels of each class were taken for which class; void pixels do not count.

    table : (n_classes, n_classes), pixels by their true class (rows) and the class that was found (columns)

    A class that no mask shows has no accuracy, and one that is neither shown nor found has no intersection over
    union: the value is NaN, and means leave it out.
    """

    table: NDArray[np.int64]

    @classmethod
    def of(cls, found: Segmentation, mask: NDArray[np.uint8]) -> Confusion:
        """The confusion of one image, against a mask of labels as `read_class_mask` has it."""
        k = found.n_labels
        judged = mask < k
        pairs = mask[judged].astype(np.int64) * k + found.mask[judged]
        return cls(np.bincount(pairs, minlength=k * k).reshape(k, k))

    def plus(self, other: Confusion) -> Confusion:
        """The confusion of the images of both tables together."""
        return Confusion(self.table + other.table)

    @property
    def accuracy(self) -> float:
        """The share of pixels whose class was found."""
        total = int(self.table.sum())
        return float(np.trace(self.table)) / total if total else np.nan

    @property
    def class_accuracies(self) -> Floats:
        """For each class, the share of its pixels that were found."""
        return _shares(np.diagonal(self.table), self.table.sum(axis=1))

    @property
    def ious(self) -> Floats:
        """The intersection over union of each class, of its pixels and of the pixels that were taken for it."""
        both = np.diagonal(self.table)
        return _shares(both, self.table.sum(axis=0) + self.table.sum(axis=1) - both)

    @property
    def mean_class_accuracy(self) -> float:
        """The mean of `class_accuracies` over the classes that masks show."""
        return _mean(self.class_accuracies)

    @property
    def mean_iou(self) -> float:
        """The mean of `ious` over the classes that masks show or that were found."""
        return _mean(self.ious)


def _shares(some: NDArray[np.int64], of: NDArray[np.int64]) -> Floats:
    return np.asarray(np.divide(some, of, out=np.full(len(of), np.nan), where=of > 0))


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan
