"""What `make bench` writes: a page that can be read, with what was met, what was missed and what did not run."""

import json
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import harness, page
from benchmarks.harness import Benchmark, Line, MissingError, Section, benchmarks_of, run_sections

RUN = page.Run(
    machine="A processor, 2 cores",
    day="2026-01-31",
    load=0.24,
    versions={"Python": "3.11.7", "numpy": "2.4.0"},
    sections=[
        Section(
            "Cuts",
            [Line("all pins, D=150", "PyMaxflow", 1813.4, 120), Line("one cut | alone", "PyMaxflow", 0.964, 2)],
            ["microseconds per pin: 0.17"],
            minutes=61.4,
        ),
        Section("Tagging", [], [], {"tagging: learning": "TAGGING=folder must name the sentences"}),
    ],
)

WRITTEN = """\
**1 of 2 bars met.**

### Cuts

2026-01-31, 61.4 minutes on A processor, 2 cores, whose load was 0.2 before; Python 3.11.7, numpy 2.4.0.

| work | beside | ratio | bar | met |
|---|---|---|---|---|
| all pins, D=150 | PyMaxflow | 1,813 | >= 120 | yes |
| one cut \\| alone | PyMaxflow | 0.964 | >= 2 | **no** |

- microseconds per pin: 0.17

### Tagging

2026-01-31, 0.0 minutes on A processor, 2 cores, whose load was 0.2 before; Python 3.11.7, numpy 2.4.0.

- *tagging: learning* did not run: TAGGING=folder must name the sentences."""


def test_a_run_reads_well(tmp_path: Path) -> None:
    """Machine, day, versions, a table for each section, and the reason of whatever did not run."""
    assert written(tmp_path, RUN) == WRITTEN
    assert json.loads(json.dumps(RUN.as_json()))["sections"][0]["lines"][1]["met"] is False


def written(folder: Path, *runs: page.Run) -> str:
    """What stands between the marks of a page after these runs; the rest of it is as it was."""
    target = folder / "page.md"
    target.write_text(f"# Before\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n")
    for run in runs:
        page.write_between_marks(target, run, ["Cuts", "Chains", "Tagging"])
    text = target.read_text()
    before, after = f"# Before\n\n{page.BEGIN}\n\n", f"\n\n{page.END}\n\nafter\n"
    assert text.startswith(before)
    assert text.endswith(after)
    return text[len(before) : -len(after)]


def test_a_section_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    """The others stay as they are, in their order; all bars are counted again."""
    better = replace(RUN, sections=[Section("Cuts", [Line("one cut", "PyMaxflow", 2.5, 2)])])
    more = replace(RUN, sections=[Section("Chains", [Line("ten best", "Viterbi", 2.0, 1.5, at_least=False)])])
    text = written(tmp_path, RUN, better, more)
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Cuts",
        "### Chains",
        "### Tagging",
    ]
    assert text.startswith("**1 of 2 bars met.**")
    assert "all pins" not in text
    assert text.endswith(WRITTEN[WRITTEN.index("### Tagging") :])


def test_a_page_without_marks_is_refused_and_kept(tmp_path: Path) -> None:
    """The error says which lines it must have."""
    target = tmp_path / "page.md"
    target.write_text("no marks")
    with pytest.raises(SystemExit, match="must have the line"):
        page.write_between_marks(target, RUN, ["Cuts"])
    assert target.read_text() == "no marks"


def test_the_page_of_the_documentation_has_the_marks() -> None:
    """`make bench WRITE=docs/benchmarks.md` finds its place."""
    before, _, after = page.around_the_marks(Path(__file__).parents[1] / "docs" / "benchmarks.md")
    assert before
    assert after


def test_what_is_missing_is_named_and_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Data that nobody named, and a library that is not installed, cost their own lines and no others."""

    def lacks_data() -> Iterator[Line]:
        raise MissingError("DATA=folder must name it")
        yield

    def works() -> Iterator[Line | str]:
        yield "a remark"
        yield Line("work", "peer", 3.0, 2)

    missing = benchmarks_of("no_such_file")
    everything = {"A": [Benchmark("data", lacks_data), Benchmark("works", works)], "B": missing}
    a, b = run_sections(everything, only="")
    assert [line.work for line in a.lines] == ["work"]
    assert a.remarks == ["a remark"]
    assert a.skipped == {"data": "DATA=folder must name it"}
    assert b.skipped == {"no_such_file": "benchmarks.no_such_file is not installed"}
    assert "skipped: data: DATA=folder must name it" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="No benchmark has the word 'nothing'"):
        list(run_sections(everything, only="nothing"))


def test_the_command_writes_whole_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sections are in the page and in the file, or the one that is named; a part of one is refused."""

    def works() -> Iterator[Line]:
        yield Line("work", "peer", 3.0, 2)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(harness, "benchmarks_of", lambda module: [Benchmark(module, works)])
    target = tmp_path / "page.md"
    target.write_text(f"{page.BEGIN}\n{page.END}\n")

    def titles(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments, "--write", "page.md"])
        runpy.run_module("benchmarks", run_name="__main__")
        found = json.loads((tmp_path / "build" / "bench.json").read_text())
        return [section["title"] for section in found["sections"]]

    for refused in (["--only", "core"], ["--section", "nothing"]):
        with pytest.raises(SystemExit):
            titles(*refused)
    assert target.read_text() == f"{page.BEGIN}\n{page.END}\n"
    assert titles("--section", "tagging") == ["Tagging"]
    assert "**1 of 1 bars met.**" in target.read_text()
    every = titles()
    assert len(every) > 10
    assert [line for line in target.read_text().splitlines() if line.startswith("### ")] == [
        f"### {t}" for t in every
    ]
    assert f"**{len(every)} of {len(every)} bars met.**" in target.read_text()
