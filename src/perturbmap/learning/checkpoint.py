"""Checkpoints: what a fit needs to go on, in a file that is known to be of this very fit."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.potentials import SiteLabels
from perturbmap.support import archive
from perturbmap.support.checks import check_number
from perturbmap.support.description import fingerprint
from perturbmap.support.files import check_writable

_KEYS = ["fingerprint", "seed", "finished", "stage", "iteration", "history", "n_looks_since_best", "best_loss"]


class Contents(NamedTuple):
    """What a checkpoint holds: numbers and texts, and arrays, by name."""

    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


@final
class Checkpoint:
    """A file that is written every so many seconds, and taken up again if it is of the same fit."""

    def __init__(self, path: str | os.PathLike[str], seconds: float, identity: str) -> None:
        self._path, self._identity = path, identity
        self._interval = check_number("checkpoint_seconds", seconds, or_equal=True)
        check_writable(path)
        self._written = time.perf_counter()

    def read(self) -> Contents | None:
        """What was written, if anything was; ValueError where it belongs to another fit."""
        if not os.path.exists(self._path):
            return None
        about, arrays = archive.read(self._path, "checkpoint", _KEYS, [])
        if about["fingerprint"] != self._identity:
            raise ValueError(
                f"the checkpoint {self._path} belongs to a fit with other data or parameters: remove it, or name "
                "another."
            )
        return Contents(about, arrays)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.perf_counter() - self._written >= self._interval

    def write(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Writes the file anew, whole or not at all."""
        archive.write(self._path, "checkpoint", {"fingerprint": self._identity, **about}, arrays)
        self._written = time.perf_counter()


def identity_of_fit(parameters: Mapping[str, Any], data: Sequence[tuple[Dataset, SiteLabels]]) -> str:
    """What tells one fit from another: its parameters, less those of parts that only change the speed; its data."""
    digest = hashlib.blake2b(fingerprint(dict(parameters)).encode(), digest_size=16)
    for examples, known in data:
        digest.update(examples.fingerprint())
        digest.update(np.ascontiguousarray(known.q).data)
    return digest.hexdigest()
