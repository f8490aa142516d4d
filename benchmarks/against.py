"""Compares two checkouts: ``python -m benchmarks.against /other/checkout/.venv/bin/python [--only WORD]``.

Both interpreters run the same work (``against_work.py``) in turn; a line is the other's median CPU time over ours, so
that below 1 we have become slower. Nothing may fall below 0.92, and the median of all lines not below 0.98.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

WORK = Path(__file__).with_name("against_work.py")
LEAST, LEAST_MEDIAN = 0.92, 0.98
#: CPU seconds of one measurement, at least: a task of a millisecond is run a hundred times.
LONG_ENOUGH = 0.1


class Worker:
    """An interpreter that waits for the number of a task."""

    def __init__(self, python: str) -> None:
        command = [python, "-P", str(WORK)] if sys.version_info >= (3, 11) else [python, str(WORK)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tasks: list[str] = json.loads(self._read())

    def seconds(self, task: int, repeats: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{task} {repeats}\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker ended: see its error above.")
        return line

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("python", help="the other checkout's interpreter")
    parser.add_argument("--only", default="", help="run the lines whose name has this word")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    ours, theirs = Worker(sys.executable), Worker(arguments.python)
    assert ours.tasks == theirs.tasks
    ratios = []
    try:
        for task, name in enumerate(ours.tasks):
            if arguments.only.lower() not in name.lower():
                continue
            times: list[list[float]] = [[], []]
            warm = max(worker.seconds(task, 1) for worker in (ours, theirs))
            inside = max(1, math.ceil(LONG_ENOUGH / warm))
            for _ in range(arguments.repeats):
                for worker, found in zip((ours, theirs), times, strict=True):
                    found.append(worker.seconds(task, inside))
            us, them = (statistics.median(found) for found in times)
            ratios.append(them / us)
            word = "" if them / us >= LEAST else "  SLOWER"
            print(f"{them / us:6.3f}  {1e3 * us:9.1f} ms  {name}{word}", flush=True)
    finally:
        ours.close()
        theirs.close()
    median = statistics.median(ratios)
    print(
        f"{median:6.3f}  median of {len(ratios)} lines (at least {LEAST_MEDIAN}); least {min(ratios):.3f} ({LEAST})"
    )


if __name__ == "__main__":
    main()
