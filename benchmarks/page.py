"""A run of all benchmarks as Markdown: the machine, the versions, and a table for each section."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Section, count_of_met

#: What a run is written between; the rest of a page is left alone.
BEGIN = "<!-- `make bench WRITE=docs/benchmarks.md` writes from here -->"
END = "<!-- to here -->"
#: What times depend on: ours, what it rests on, and the peers.
LIBRARIES = (
    *("perturbmap", "numpy", "scipy", "scikit-learn", "torch"),
    *("PyMaxflow", "python-crfsuite", "gco-wrapper", "pytoulbar2", "pytorch-crf", "torch-struct"),
)


def processor() -> str:
    """The name of the processor, and how many of its cores are ours."""
    names = [platform.processor() or platform.machine()]
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")] or names
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{names[0]}, {cores} cores"


def versions() -> dict[str, str]:
    """The version of each library that is installed, Python among them."""
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Run:
    """One full run: where and when it was, how busy the machine was at its beginning, and what it found."""

    machine: str
    day: str
    load: float
    versions: dict[str, str]
    minutes: float
    sections: Sequence[Section]

    @classmethod
    def here(cls, load: float, minutes: float, sections: Sequence[Section]) -> Run:
        """A run that was made on this machine and ends now."""
        return cls(processor(), date.today().isoformat(), load, versions(), minutes, sections)

    def as_json(self) -> dict[str, Any]:
        """All of it as numbers, texts, lists and dicts."""
        found = asdict(self)
        for section, ours in zip(found["sections"], self.sections, strict=True):
            for line, our_line in zip(section["lines"], ours.lines, strict=True):
                line.update(ratio=float(our_line.ratio), met=our_line.met)
        return found


def markdown(run: Run) -> str:
    """The run as a part of a page."""
    return "\n".join(_rows(run))


def _rows(run: Run) -> Iterator[str]:
    used = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    yield f"One run of `make bench` on {run.day}: {run.minutes:.0f} minutes on {run.machine}, whose load was"
    yield f"{run.load:.1f} when it began. {used}."
    yield ""
    yield f"**{count_of_met(run.sections)}.**"
    for section in run.sections:
        yield from ("", f"### {section.title}")
        if section.lines:
            yield from ("", "| work | beside | ratio | bar | met |", "|---|---|---|---|---|")
        for line in section.lines:
            met = "yes" if line.met else "**no**"
            yield f"| {_cell(line.work)} | {_cell(line.peer)} | {line.ratio_text} | {line.bar_text} | {met} |"
        if section.remarks:
            yield ""
            yield from (f"- {remark}" for remark in section.remarks)
        if section.skipped:
            yield ""
            yield from (f"- *{name}* did not run: {reason}." for name, reason in section.skipped.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def around_the_marks(page: Path) -> tuple[str, str]:
    """What stands before and after the place for results, the marks among it."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(
            f"{page} must have the line {BEGIN!r} and after it the line {END!r}: results go between them."
        )
    return before + begin, end + after


def write_between_marks(page: Path, text: str) -> None:
    """Puts a text in place of what stands between the two marks of a page."""
    before, after = around_the_marks(page)
    page.write_text(f"{before}\n\n{text}\n\n{after}", encoding="utf-8")
