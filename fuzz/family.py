"""What can be fuzzed: a family of cases, each made from a seed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: Runs one case, made from the generator; whatever it raises is a failure.
Case = Callable[[np.random.Generator], None]

FAMILIES = ("structures", "files", "commands")


@dataclass(frozen=True)
class Family:
    """A kind of cases.

    counted : what one case is, in the plural
    start : makes what all cases share, in a folder that is removed at the end, and returns the case
    memory : bytes that cases may take beside those that the process has after ``start``; None for no limit
    """

    counted: str
    start: Callable[[Path], Case]
    memory: int | None = None


def find_family(name: str) -> Family:
    """The family of one of the names above, or that of any module, by its whole name."""
    family = importlib.import_module(name if "." in name else f"fuzz.{name}").FAMILY
    assert isinstance(family, Family)
    return family
