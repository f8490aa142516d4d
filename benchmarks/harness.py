"""Lines of the benchmark table: the work, the peer, the ratio of medians, the bar and whether it is met."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One result. ``at_least`` says which way the bar goes."""

    work: str
    peer: str
    ratio: float
    bar: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        return bool(self.ratio >= self.bar if self.at_least else self.ratio <= self.bar)

    @property
    def bar_text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bar:g}"


@dataclass(frozen=True)
class Benchmark:
    """Something to run, with the names of the lines it makes, so that ONLY can choose before it runs."""

    name: str
    run: Callable[[], Iterator[Line]]


def interleaved(
    tasks: Sequence[Callable[[], object]], repeats: int = 9, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Median seconds of each task; the tasks take turns, so that a slow moment hits all of them."""
    for task in tasks:
        task()
    seconds: list[list[float]] = [[] for _ in tasks]
    for _ in range(repeats):
        for task, times in zip(tasks, seconds, strict=True):
            start = clock()
            task()
            times.append(clock() - start)
    return [statistics.median(times) for times in seconds]


def report(benchmarks: Sequence[Benchmark], only: str, out: Path) -> None:
    """Runs the benchmarks whose name has the word ``only``; prints each line as it comes, writes all to ``out``."""
    chosen = [b for b in benchmarks if only.lower() in b.name.lower()]
    if not chosen:
        names = "\n  ".join(b.name for b in benchmarks)
        raise SystemExit(f"No benchmark has the word {only!r} in its name. There are:\n  {names}")
    lines: list[Line] = []
    print(f"{'ratio':>8}  {'bar':>7}  met  {'work':<76}  peer", flush=True)
    for benchmark in chosen:
        for line in benchmark.run():
            lines.append(line)
            print(
                f"{line.ratio:>8.3g}  {line.bar_text:>7}  {'yes' if line.met else 'NO':<3}  "
                f"{line.work:<76}  {line.peer}",
                flush=True,
            )
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"work": x.work, "peer": x.peer, "ratio": float(x.ratio), "bar": x.bar_text, "met": x.met} for x in lines]
    out.write_text(json.dumps(rows, indent=2) + "\n")
    print(f"\n{sum(x.met for x in lines)} of {len(lines)} bars met; written to {out}.")
