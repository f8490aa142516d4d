"""Lines of the benchmark table: the work, the peer, the ratio of medians, the bar and whether it is met."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


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

    @property
    def ratio_text(self) -> str:
        """Three digits, and all of them before the point."""
        return f"{self.ratio:,.0f}" if 100 <= self.ratio < 1e9 else f"{self.ratio:.3g}"


class MissingError(Exception):
    """A benchmark cannot run here; the message says what it lacks."""


@dataclass(frozen=True)
class Benchmark:
    """Something to run, with a name, so that ONLY can choose before it runs; a text among its lines is a remark."""

    name: str
    run: Callable[[], Iterator[Line | str]]


@dataclass
class Section:
    """What one file of benchmarks found: lines, remarks, and the names of those that did not run, with the reason.

    It took so many minutes.
    """

    title: str
    lines: list[Line] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    minutes: float = 0.0


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


def benchmarks_of(module: str) -> list[Benchmark]:
    """The benchmarks of a file; one that says what is missing where a library that it imports is not installed."""
    try:
        return list(importlib.import_module(f"benchmarks.{module}").BENCHMARKS)
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed"

        def run() -> Iterator[Line]:
            raise MissingError(reason)
            yield

        return [Benchmark(module, run)]


def run_sections(sections: Mapping[str, Sequence[Benchmark]], only: str) -> Iterator[Section]:
    """Runs the benchmarks whose name has the word ``only``, and prints each line as it comes."""
    chosen = {title: [b for b in some if only.lower() in b.name.lower()] for title, some in sections.items()}
    if not any(chosen.values()):
        names = "\n  ".join(b.name for some in sections.values() for b in some)
        raise SystemExit(f"No benchmark has the word {only!r} in its name. There are:\n  {names}")
    print(f"{'ratio':>8}  {'bar':>7}  met  {'work':<76}  peer", flush=True)
    for title, some in chosen.items():
        section, began = Section(title), time.monotonic()
        for benchmark in some:
            _run_into(section, benchmark)
        section.minutes = (time.monotonic() - began) / 60
        if some:
            yield section


def _run_into(section: Section, benchmark: Benchmark) -> None:
    try:
        for line in benchmark.run():
            if isinstance(line, str):
                section.remarks.append(line)
                print(f"  {line}", flush=True)
                continue
            section.lines.append(line)
            met = "yes" if line.met else "NO"
            print(f"{line.ratio_text:>8}  {line.bar_text:>7}  {met:<3}  {line.work:<76}  {line.peer}", flush=True)
    except (MissingError, ModuleNotFoundError) as reason:
        section.skipped[benchmark.name] = str(reason)
        print(f"  skipped: {benchmark.name}: {reason}", flush=True)


def count_of_met(sections: Iterable[Section]) -> str:
    """How many bars are met, as a sentence without its end."""
    lines = [line for section in sections for line in section.lines]
    return f"{sum(line.met for line in lines)} of {len(lines)} bars met"
