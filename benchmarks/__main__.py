"""Speed beside peers: a line for each piece of work, with the ratio, the bar and whether it is met."""

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import IO

from benchmarks.harness import Section, benchmarks_of, count_of_met, run_sections
from benchmarks.page import Run, around_the_marks, write_between_marks
from perturbmap.support.files import write_atomically

OUT = Path("build/bench.json")
#: Titles of the sections, and the files whose benchmarks they have.
SECTIONS = {
    "Pinned solutions and cuts": "core",
    "What chains tell": "sequences",
    "Graphs of many labels": "graphs",
    "Learning": "learning",
    "Names of features": "tokens",
    "Tagging": "tagging",
    "A chain on top of a network": "networks",
    "Stochastic steps": "solvers",
    "CRF and structured SVM": "baselines",
    "The store": "store",
    "Sparse features in a store": "sparse_store",
    "Strokes of an annotator": "annotate",
    "Marginals and log Z that converge": "converging",
}


def _write(text: str, file: IO[bytes]) -> None:
    file.write(text.encode())


parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("--only", default="", help="run the benchmarks whose name has this word")
parser.add_argument("--section", default="", help="run the sections whose title has this word")
parser.add_argument(
    "--write", type=Path, metavar="PAGE", help="put the results into this Markdown page, whole sections"
)
arguments = parser.parse_args()
chosen = {title: file for title, file in SECTIONS.items() if arguments.section.lower() in title.lower()}
if not chosen:
    parser.error(f"no section has {arguments.section!r} in its title; there are {', '.join(SECTIONS)}.")
if arguments.write and arguments.only:
    parser.error("--write takes whole sections: leave --only out, or choose by --section.")
if arguments.write:
    around_the_marks(arguments.write)  # a page without marks is refused now, not after hours
load = os.getloadavg()[0]
sections: list[Section] = []
OUT.parent.mkdir(parents=True, exist_ok=True)
# After each section, so that a run that is ended keeps what it has: all sections take half an hour, or twice that
# where the machine is slow.
for section in run_sections({title: benchmarks_of(file) for title, file in chosen.items()}, arguments.only):
    sections.append(section)
    run = Run.here(load, sections)
    write_atomically(OUT, partial(_write, json.dumps(run.as_json(), indent=2) + "\n"))
    if arguments.write:
        write_between_marks(arguments.write, run, list(SECTIONS))
print(f"\n{count_of_met(sections)}; written to {OUT}.")
if arguments.write:
    print(f"The page {arguments.write} has them too.")
