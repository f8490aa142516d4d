"""``python -m fuzz [--minutes 1] [--seed N] [FAMILY ...]``, or ``python -m fuzz FAMILY:SEED`` for one case alone.

A failure is one line, which runs the case again; the exit code is 1 where there was any.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from fuzz.family import FAMILIES, find_family
from fuzz.harness import run

#: Lines of failures for each family; more are counted.
MOST_LINES = 20
PREFIX = "make fuzz SANITIZE=1" if "libasan" in os.environ.get("LD_PRELOAD", "") else "make fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("what", nargs="*", default=FAMILIES, help=f"of {', '.join(FAMILIES)}; or FAMILY:SEED")
    parser.add_argument("--minutes", type=float, default=1.0, help="of all families together")
    parser.add_argument("--seed", type=int, help="of the first case of each family; by default from the clock")
    arguments = parser.parse_args()
    seed = time.time_ns() // 10**6 % 10**9 if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    n_failures = 0
    for what in arguments.what:
        name, _, case = what.partition(":")
        if case:
            n_failures += run_one(name, int(case))
        else:
            n_failures += run_many(name, seed, 60 * arguments.minutes / len(arguments.what))
    return 1 if n_failures else 0


def run_one(name: str, seed: int) -> int:
    """One case, with all that it writes."""
    failures = run(name, seed, n_cases=1, verbose=True).failures
    print(f"{name}:{seed} {'fails: ' + failures[seed] if failures else 'holds'}")
    return len(failures)


def run_many(name: str, first: int, seconds: float) -> int:
    """As many cases as there is time for; a line for each failure, and one for all."""
    counted, n_lines = find_family(name).counted, 0

    def tell(seed: int, text: str) -> None:
        nonlocal n_lines
        n_lines += 1
        if n_lines <= MOST_LINES:
            print(f'{PREFIX} CASE="{name}:{seed}"  # {" ".join(text.split())[:400]}', flush=True)

    tally = run(name, first, seconds=seconds, tell=tell)
    left_out = f" ({n_lines - MOST_LINES} not shown)" if n_lines > MOST_LINES else ""
    n_failures = len(tally.failures)
    print(
        f"{name} {tally.n_cases:,} {counted}, {n_failures} failure{'' if n_failures == 1 else 's'}{left_out}",
        flush=True,
    )
    return n_failures


if __name__ == "__main__":
    sys.exit(main())
