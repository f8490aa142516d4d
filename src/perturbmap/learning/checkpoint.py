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
from perturbmap.learning.taking_up import kept_count, kept_history, kept_seed
from perturbmap.potentials import SiteLabels
from perturbmap.support import archive
from perturbmap.support.checks import check_number
from perturbmap.support.damage import shown
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
        """What was written, if anything was; ValueError where it is damaged, or belongs to another fit."""
        if not os.path.exists(self._path):
            return None
        about, arrays = archive.read(self._path, "checkpoint", _KEYS, [])
        if about["fingerprint"] != self._identity:
            raise ValueError(
                f"the checkpoint {self._path} belongs to a fit with other data or parameters: remove it, or name "
                "another."
            )
        try:
            return Contents(_checked(about, arrays), arrays)
        except ValueError as error:
            raise self.damaged(error) from None

    def damaged(self, error: ValueError) -> ValueError:
        """The error of a fit that cannot go on with what was written."""
        why = str(error).rstrip(".")
        return ValueError(f"the checkpoint {self._path} is damaged ({why}): remove it, and the fit begins anew.")

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.perf_counter() - self._written >= self._interval

    def write(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Writes the file anew, whole or not at all."""
        archive.write(self._path, "checkpoint", {"fingerprint": self._identity, **about}, arrays)
        self._written = time.perf_counter()


def _checked(about: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The same, if it is something that a fit can have written; the arrays are looked at when they are used."""
    finished, loss = about["finished"], about["best_loss"]
    if not isinstance(finished, list) or not all(isinstance(name, str) for name in finished):
        raise ValueError(f"its finished stages are {shown(finished)}")
    if len(set(finished)) < len(finished) or not isinstance(about["stage"], str):
        raise ValueError(f"its stages are {shown(finished)} and {shown(about['stage'])}")
    if ("best" in arrays) != (type(loss) is float):
        raise ValueError(f"its least validation loss is {shown(loss)}")
    missing = [name for name in (f"finished_{n}" for n in range(len(finished))) if name not in arrays]
    if missing:
        raise ValueError(f"it lacks {missing[0]}")
    kept_seed(about["seed"])
    kept_history(about["history"])
    for key in ("iteration", "n_looks_since_best"):
        kept_count(key, about[key])
    return about


def identity_of_fit(parameters: Mapping[str, Any], data: Sequence[tuple[Dataset, SiteLabels]]) -> str:
    """What tells one fit from another: its parameters, less those of parts that only change the speed; its data."""
    digest = hashlib.blake2b(fingerprint(dict(parameters)).encode(), digest_size=16)
    for examples, known in data:
        digest.update(examples.fingerprint())
        digest.update(np.ascontiguousarray(known.q).data)
    return digest.hexdigest()
