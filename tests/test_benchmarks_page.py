"""What `make bench` writes: a page that can be read, with what was met, what was missed and what did not run."""

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import harness, page
from benchmarks.harness import Benchmark, Line, MissingError, Section, benchmarks_of, run_sections

RUN = page.Run(
    machine="A processor, 2 cores",
    day="2026-01-31",
    load=0.24,
    versions={"Python": "3.11.7", "numpy": "2.4.0"},
    minutes=61.4,
    sections=[
        Section(
            "Cuts",
            [Line("all pins, D=150", "PyMaxflow", 1813.4, 120), Line("one cut | alone", "PyMaxflow", 0.964, 2)],
            ["microseconds per pin: 0.17"],
        ),
        Section("Tagging", [], [], {"tagging: learning": "TAGGING=folder must name the sentences"}),
    ],
)

WRITTEN = """\
One run of `make bench` on 2026-01-31: 61 minutes on A processor, 2 cores, whose load was
0.2 when it began. Python 3.11.7, numpy 2.4.0.

**1 of 2 bars met.**

### Cuts

| work | beside | ratio | bar | met |
|---|---|---|---|---|
| all pins, D=150 | PyMaxflow | 1,813 | >= 120 | yes |
| one cut \\| alone | PyMaxflow | 0.964 | >= 2 | **no** |

- microseconds per pin: 0.17

### Tagging

- *tagging: learning* did not run: TAGGING=folder must name the sentences."""


def test_a_run_reads_well() -> None:
    """Machine, day, versions, a table for each section, and the reason of whatever did not run."""
    assert page.markdown(RUN) == WRITTEN
    assert json.loads(json.dumps(RUN.as_json()))["sections"][0]["lines"][1]["met"] is False


def test_results_go_between_the_marks_and_the_rest_stays(tmp_path: Path) -> None:
    """A second run takes the place of the first; a page without the marks is refused and kept."""
    target = tmp_path / "page.md"
    target.write_text(f"# Before\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n")
    for text in ("first", "second"):
        page.write_between_marks(target, text)
    assert target.read_text() == f"# Before\n\n{page.BEGIN}\n\nsecond\n\n{page.END}\n\nafter\n"
    target.write_text("no marks")
    with pytest.raises(SystemExit, match="must have the line"):
        page.write_between_marks(target, "third")
    assert target.read_text() == "no marks"


def test_the_page_of_the_documentation_has_the_marks() -> None:
    """`make bench WRITE=docs/benchmarks.md` finds its place."""
    before, after = page.around_the_marks(Path(__file__).parents[1] / "docs" / "benchmarks.md")
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


def test_the_command_writes_a_full_run_and_no_part_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sections are in the page and in the file; with ``--only``, the page is refused and stays as it is."""

    def works() -> Iterator[Line]:
        yield Line("work", "peer", 3.0, 2)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(harness, "benchmarks_of", lambda module: [Benchmark(module, works)])
    target = tmp_path / "page.md"
    target.write_text(f"{page.BEGIN}\n{page.END}\n")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "core", "--write", "page.md"])
    with pytest.raises(SystemExit):
        runpy.run_module("benchmarks", run_name="__main__")
    assert target.read_text() == f"{page.BEGIN}\n{page.END}\n"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--write", "page.md"])
    runpy.run_module("benchmarks", run_name="__main__")
    titles = [line for line in target.read_text().splitlines() if line.startswith("### ")]
    found = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert titles == [f"### {section['title']}" for section in found["sections"]]
    assert len(titles) > 10
    assert f"{len(titles)} of {len(titles)} bars met" in target.read_text()
