"""Results of benchmarks as parts of a Markdown page: each section with its tables, the machine, and the versions."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Section
from perturbmap.experiments.results import machine
from perturbmap.support.files import write_atomically

#: What results are written between; the rest of a page is left alone.
BEGIN = "<!-- `make bench WRITE=docs/benchmarks.md` writes from here -->"
END = "<!-- to here -->"
#: What times depend on: ours, what it rests on, and the peers.
LIBRARIES = (
    *("perturbmap", "numpy", "scipy", "scikit-learn", "torch"),
    *("PyMaxflow", "python-crfsuite", "gco-wrapper", "pytoulbar2", "pytorch-crf", "torch-struct"),
)
_YES, _NO = "yes", "**no**"


def processor() -> str:
    """The name of the processor, and how many of its cores are ours."""
    names = [platform.processor() or platform.machine()]
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")] or names
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{names[0]}, {cores} cores"


def versions() -> dict[str, str]:
    """The version of each library that is installed, Python among them, and which kernels BLAS takes."""
    found = {"Python": platform.python_version(), "BLAS": machine()["BLAS"]}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Run:
    """A run of one section or more: where and when it was, how busy the machine was before, and what it found."""

    machine: str
    day: str
    load: float
    versions: dict[str, str]
    sections: Sequence[Section]

    @classmethod
    def here(cls, load: float, sections: Sequence[Section]) -> Run:
        """A run that was made on this machine and ends now."""
        return cls(processor(), date.today().isoformat(), load, versions(), sections)

    def as_json(self) -> dict[str, Any]:
        """All of it as numbers, texts, lists and dicts."""
        found = asdict(self)
        for section, ours in zip(found["sections"], self.sections, strict=True):
            for line, our_line in zip(section["lines"], ours.lines, strict=True):
                line.update(ratio=float(our_line.ratio), met=our_line.met)
        return found


def parts(run: Run) -> dict[str, str]:
    """Each section as a part of a page, by its title."""
    return {section.title: "\n".join(_rows(run, section)) for section in run.sections}


def _rows(run: Run, section: Section) -> Iterator[str]:
    used = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    yield f"### {section.title}"
    yield ""
    yield f"{run.day}, {section.minutes:.1f} minutes on {run.machine}, whose load was {run.load:.1f} before; {used}."
    if section.lines:
        yield from ("", "| work | beside | ratio | bar | met |", "|---|---|---|---|---|")
    for line in section.lines:
        met = _YES if line.met else _NO
        yield f"| {_cell(line.work)} | {_cell(line.peer)} | {line.ratio_text} | {line.bar_text} | {met} |"
    if section.remarks:
        yield ""
        yield from (f"- {remark.strip()}" for remark in section.remarks)
    if section.skipped:
        yield ""
        yield from (f"- *{name}* did not run: {reason}." for name, reason in section.skipped.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def around_the_marks(page: Path) -> tuple[str, str, str]:
    """What stands before the place for results, the first mark with it; there; and after, with the other mark."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    there, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(
            f"{page} must have the line {BEGIN!r} and after it the line {END!r}: results go between them."
        )
    return before + begin, there, end + after


def write_between_marks(page: Path, run: Run, order: Sequence[str]) -> None:
    """Puts the sections of a run in place of those of the same titles; others stay, if they are in ``order``."""
    before, there, after = around_the_marks(page)
    pieces = re.split(r"^(?=### )", there, flags=re.MULTILINE)[1:]
    found = {piece.partition("\n")[0].removeprefix("### "): piece.strip() for piece in pieces}
    found.update(parts(run))
    text = "\n\n".join(found[title] for title in order if title in found)
    met, missed = (sum(row.endswith(f"| {word} |") for row in text.splitlines()) for word in (_YES, _NO))
    whole = f"{before}\n\n**{met} of {met + missed} bars met.**\n\n{text}\n\n{after}"
    write_atomically(page, lambda file: file.write(whole.encode()))
