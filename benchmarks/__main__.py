"""Speed beside peers: a line for each piece of work, with the ratio, the bar and whether it is met."""

import argparse
import json
import os
import time
from pathlib import Path

from benchmarks.harness import benchmarks_of, count_of_met, run_sections
from benchmarks.page import Run, around_the_marks, markdown, write_between_marks

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

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("--only", default="", help="run the benchmarks whose name has this word")
parser.add_argument(
    "--write", type=Path, metavar="PAGE", help="put the results of a full run into this Markdown page"
)
arguments = parser.parse_args()
if arguments.write and arguments.only:
    parser.error("--write is for a full run: leave --only out.")
if arguments.write:
    around_the_marks(arguments.write)  # a page without marks is refused now, not after hours
load, began = os.getloadavg()[0], time.monotonic()
everything = {title: benchmarks_of(module) for title, module in SECTIONS.items()}
sections = list(run_sections(everything, arguments.only))
run = Run.here(load, (time.monotonic() - began) / 60, sections)
OUT.parent.mkdir(parents=True, exist_ok=True)
OUT.write_text(json.dumps(run.as_json(), indent=2) + "\n")
print(f"\n{count_of_met(sections)}; written to {OUT}.")
if arguments.write:
    write_between_marks(arguments.write, markdown(run))
    print(f"The page {arguments.write} has them too.")
