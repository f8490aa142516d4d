"""``python -m fuzz.soak [--minutes 10] [--seed N]``: fits, predictions, files and stores at random, for a long time.

After each piece of work, resident memory, open files and threads are measured. The first third is a warm-up; then all
of it must be flat:

- the median memory of the last third is above that of the second by at most 3 per cent, or 20 MB where that is more;
- no measurement of the last third has more open files, or more threads, than the most of the second.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fuzz.mutations import choose
from fuzz.work import WORK, Work

MOST_SHARE, MOST_BYTES = 0.03, 20 * 2**20
#: Measurements, at least, that a verdict is made from.
FEWEST = 30


@dataclass(frozen=True)
class Measured:
    """What the process has at a time, in seconds from the start, after so many pieces of work."""

    seconds: float
    n_done: int
    memory: float
    files: int
    threads: int

    @classmethod
    def now(cls, seconds: float, n_done: int) -> Measured:
        """Of this process, without the garbage that waits for its collection."""
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        # One of the open files is the listing itself.
        return cls(
            seconds, n_done, resident, len(os.listdir("/proc/self/fd")) - 1, len(os.listdir("/proc/self/task"))
        )


def growth(measured: Sequence[Measured]) -> list[str]:
    """What grew, by the rule above; empty where nothing did."""
    if len(measured) < FEWEST:
        raise ValueError(f"{len(measured)} measurements are too few to tell, it takes {FEWEST}: run it for longer.")
    end = measured[-1].seconds
    second = [m for m in measured if end / 3 <= m.seconds < 2 * end / 3]
    last = [m for m in measured if m.seconds >= 2 * end / 3]
    found = []
    before, after = (statistics.median(m.memory for m in third) for third in (second, last))
    if after > before + max(MOST_SHARE * before, MOST_BYTES):
        found.append(f"memory grew from {before / 2**20:.1f} to {after / 2**20:.1f} MB")
    for name in ("files", "threads"):
        most, most_last = (max(getattr(m, name) for m in third) for third in (second, last))
        if most_last > most:
            found.append(f"{name} grew from {most} to {most_last}")
    return found


def soak(
    seconds: float,
    seed: int,
    work: Sequence[Work] = WORK,
    tell: Callable[[Measured], None] = lambda measured: None,
) -> list[Measured]:
    """Works for so many seconds, and for `FEWEST` pieces, each chosen at random; the measurements after each."""
    rng = np.random.default_rng(seed)
    measured: list[Measured] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perturbmap-soak-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short fits say that they are short
        while (now := time.monotonic() - began) < seconds or len(measured) < FEWEST:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                choose(rng, work)(rng, Path(own))
            measured.append(Measured.now(now, len(measured) + 1))
            tell(measured[-1])
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="of the work; by default from the clock")
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes
    seed = time.time_ns() // 10**6 % 10**9 if arguments.seed is None else arguments.seed
    print(f"seed {seed}\n{'minutes':>8} {'pieces of work':>15} {'memory, MB':>11} {'open files':>11} {'threads':>8}")
    due = 0.0

    def tell(m: Measured) -> None:
        nonlocal due
        if m.seconds >= due:
            due += seconds / 20
            row = f"{m.seconds / 60:8.1f} {m.n_done:15,} {m.memory / 2**20:11.1f} {m.files:11} {m.threads:8}"
            print(row, flush=True)

    found = growth(soak(seconds, seed, tell=tell))
    print("; ".join(found).capitalize() + "." if found else "Flat: neither memory nor open files nor threads grew.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
