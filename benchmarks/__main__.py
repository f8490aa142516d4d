"""``python -m benchmarks [--only WORD] [--instances N]``."""

import argparse
from pathlib import Path

from benchmarks import (
    annotate,
    baselines,
    converging,
    core,
    graphs,
    learning,
    networks,
    sequences,
    solvers,
    sparse_store,
    store,
    tagging,
    tokens,
)
from benchmarks.harness import report

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("--only", default="", help="run the benchmarks whose name has this word")
parser.add_argument(
    "--instances", type=int, default=2, help="of each kind, where methods are compared; 10 take hours"
)
arguments = parser.parse_args()
everything = [
    *core.BENCHMARKS,
    *sequences.BENCHMARKS,
    *graphs.BENCHMARKS,
    *learning.BENCHMARKS,
    *tokens.BENCHMARKS,
    *tagging.BENCHMARKS,
    *networks.BENCHMARKS,
    *solvers.BENCHMARKS,
    *baselines.BENCHMARKS,
    *store.BENCHMARKS,
    *sparse_store.BENCHMARKS,
    *annotate.BENCHMARKS,
    *converging.benchmarks(arguments.instances),
]
report(everything, arguments.only, Path("build/bench.json"))
