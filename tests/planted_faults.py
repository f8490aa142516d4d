"""A family of cases that fail in every way there is, for the tests of `fuzz.harness`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from fuzz.family import Case, Family

HOLDS, RAISES, ABORTS, HANGS, EATS, LEAVES = range(6)


def start(folder: Path) -> Case:
    def case(rng: np.random.Generator) -> None:
        """What the seed says; seeds go through the ways in turn."""
        way = next(n for n in range(6) if rng.bit_generator.state == np.random.default_rng(n).bit_generator.state)
        if way == RAISES:
            raise KeyError("planted")
        if way == ABORTS:
            os.abort()
        if way == HANGS:
            time.sleep(1000)
        if way == EATS:
            np.ones(2**27)
        if way == LEAVES:
            os._exit(3)

    return case


FAMILY = Family("faults", start, memory=2**29)
