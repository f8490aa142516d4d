"""The words of a text file, taken one after another, with errors that say where."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import final

import numpy as np

from perturbmap.potentials import Floats


@final
class Tokens:
    """Words between white space; line breaks mean nothing, as in the UAI formats."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
        self._data = data.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in data or not self._data.isascii():
            raise ValueError(
                f"{path} is not a text file in the UAI format: it holds bytes that are not plain text. "
                "If it is packed, unpack it first."
            )
        self.words = self._data.split()
        self.position = 0
        if not self.words:
            raise ValueError(f"{path} is empty.")

    @property
    def lines(self) -> list[bytes]:
        """The lines of the file, for what only line breaks can tell."""
        return self._data.splitlines()

    @property
    def n_left(self) -> int:
        """The number of words that have not been taken."""
        return len(self.words) - self.position

    def error(self, index: int, expected: str) -> ValueError:
        """An error that says what was expected at word ``index``, and what stands there in which line."""
        if index >= len(self.words):
            return ValueError(f"{self.path} is truncated: after {len(self.words)} words there should be {expected}.")
        at = next(islice(re.finditer(rb"\S+", self._data), index, None)).start()
        line = self._data.count(b"\n", 0, at) + 1
        word = self.words[index].decode()
        shown = repr(word if len(word) <= 30 else word[:30] + "...")
        return ValueError(f"{self.path}, line {line}, word {index + 1}: expected {expected}, but found {shown}.")

    def word(self, expected: str) -> str:
        """Takes the next word, which must be there."""
        if not self.n_left:
            raise self.error(self.position, expected)
        self.position += 1
        return self.words[self.position - 1].decode()

    def integer(self, expected: str, low: int, high: int) -> int:
        """The next word, a plain integer from ``low`` to ``high``."""
        if self.position >= len(self.words):
            raise self.error(self.position, expected)
        word = self.words[self.position]
        # int() alone would take signs and underscores, and refuse very long numbers in words of its own.
        if not word.isdigit() or len(word) > 18 or not low <= int(word) <= high:
            raise self.error(self.position, expected)
        self.position += 1
        return int(word)

    def skip(self, n: int, expected: str) -> slice:
        """The place of the next ``n`` words, which must be there."""
        if n > self.n_left:
            raise self.error(len(self.words), f"{expected}: {n - self.n_left} words more")
        self.position += n
        return slice(self.position - n, self.position)

    def numbers(self, parts: list[slice], expected: str) -> Floats:
        """The words of all these places as finite numbers, none negative."""
        words = [word for part in parts for word in self.words[part]]
        try:
            values = np.array([float(word) for word in words], dtype=np.float64)
            # A number that is too small for a double would pass for zero, which forbids a label.
            bad = [i for i in np.flatnonzero(values == 0).tolist() if re.match(rb"[+-]?[0.]*[1-9]", words[i])]
            bad += np.flatnonzero(~np.isfinite(values) | (values < 0)).tolist()
            bad += [i for i, word in enumerate(words) if b"_" in word] if b"_" in self._data else []
        except ValueError:
            bad = [i for i, word in enumerate(words) if not _is_number(word)]
        if bad:
            starts = np.cumsum([0, *(part.stop - part.start for part in parts)])
            first = min(bad)
            part = int(np.searchsorted(starts, first, side="right")) - 1
            raise self.error(parts[part].start + first - int(starts[part]), expected)
        return values

    def finish(self) -> None:
        """Raises an error if any words are left."""
        if self.n_left:
            raise self.error(self.position, f"the end of the file, {self.n_left} words earlier")


def _is_number(word: bytes) -> bool:
    try:
        return np.isfinite(float(word)) and b"_" not in word
    except ValueError:
        return False
