"""``python -m benchmarks [--only WORD]``."""

import argparse
from pathlib import Path

from benchmarks import baselines, core, graphs, learning, solvers, store
from benchmarks.harness import report

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("--only", default="", help="run the benchmarks whose name has this word")
arguments = parser.parse_args()
everything = [
    *core.BENCHMARKS,
    *graphs.BENCHMARKS,
    *learning.BENCHMARKS,
    *solvers.BENCHMARKS,
    *baselines.BENCHMARKS,
    *store.BENCHMARKS,
]
report(everything, arguments.only, Path("build/bench.json"))
