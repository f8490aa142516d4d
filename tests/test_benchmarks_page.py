"""What `make bench` writes: a page that can be read, with what was met, what was missed and what did not run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import page
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
