"""The store: memory of a fit, steps beside those in memory, marginals and fits on two processes.

Examples are like superpixels: 150 sites of a planar graph, 1,969 features in float32, four features per edge, two
labels. A few random blocks are written again and again. Stores are made in temporary folders and removed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core import superpixel_like
from benchmarks.harness import Benchmark, Line, MissingError, interleaved
from perturbmap import (
    BinaryGraph,
    DoubleSGD,
    Example,
    GraphModel,
    LocalSGD,
    MarginalLogLikelihood,
    PlainStep,
    Solver,
    Store,
    StructuredPredictor,
    write_store,
)
from perturbmap.data.store.writing import SHARD_BYTES
from perturbmap.solvers import Problem

N_SITES, N_FEATURES, N_EDGE_FEATURES = 150, 1969, 4
EXAMPLE_BYTES = N_SITES * N_FEATURES * 4
N_BLOCKS = 16
GB = 10**9


@cache
def blocks() -> list[tuple[Example, np.ndarray]]:
    """A few examples; a direction of the features, and an edge's likeness, know something of the labels."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=N_FEATURES).astype(np.float32)
    signal *= 0.06 / np.linalg.norm(signal)
    made = []
    for seed in range(N_BLOCKS):
        edges = superpixel_like(N_SITES, 0.5, 1, seed=seed)[0].edges
        y = (np.cumsum(rng.normal(size=N_SITES)) > 0).astype(np.int32)
        features = rng.normal(0, 0.6 / np.sqrt(N_FEATURES), (N_SITES, N_FEATURES)).astype(np.float32)
        features += np.outer(2 * y - 1, signal)
        alike = (
            rng.random((len(edges), N_EDGE_FEATURES)) * np.where(y[edges[:, 0]] == y[edges[:, 1]], 1, 0.5)[:, None]
        )
        made.append((Example(features, edges, alike.astype(np.float32)), y))
    return made


def examples(n: int) -> Iterator[tuple[Example, np.ndarray]]:
    return islice((blocks()[i % N_BLOCKS] for i in range(n)), n)


@contextmanager
def made_store(n: int, n_shards: int | None = None, room: int = 0) -> Iterator[Path]:
    """The folder of a store of n examples, removed at the end; the disk must have ``room`` bytes."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < room:
        raise MissingError(
            f"{tempfile.gettempdir()} has {free / GB:.1f} GB to spare, a store of this size asks for more"
        )
    with tempfile.TemporaryDirectory(prefix="perturbmap-bench-") as folder:
        write_store(
            Path(folder) / "store",
            (x for x, _ in examples(n)),
            (y for _, y in examples(n)),
            classes=[0, 1],
            shard_bytes=SHARD_BYTES if n_shards is None else n * EXAMPLE_BYTES // n_shards,
        )
        yield Path(folder) / "store"


def predictor(solver: Solver[Any], n_jobs: int | None = None) -> StructuredPredictor:
    """One thread: processes are compared with one."""
    return StructuredPredictor(
        GraphModel(),
        BinaryGraph(n_threads=1),
        MarginalLogLikelihood(),
        l2=0.03,
        solver=solver,
        n_jobs=n_jobs,
        random_state=0,
    )


def memory() -> Iterator[Line]:
    """One pass over 8 GB in a fresh process: the peak above that of a process that fitted next to nothing."""
    n = -(-8 * GB // EXAMPLE_BYTES)
    with made_store(n, room=10 * GB) as folder:
        code = f"from benchmarks.store import measure_memory; measure_memory({str(folder)!r})"
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
        before, after = map(float, done.stdout.split())
    yield Line(
        f"peak memory of a fit on a store of {n * EXAMPLE_BYTES / GB:.1f} GB, in GB",
        f"imports and a tiny fit, {before:.2f} GB",
        after - before,
        1,
        at_least=False,
    )


def measure_memory(folder: str) -> None:
    """Prints the peak resident memory, mapped pages among it, before and after one pass over a store, in GB."""
    tiny = list(examples(4))
    one_pass = predictor(DoubleSGD(n_passes=1))
    one_pass.fit([x for x, _ in tiny], [y for _, y in tiny])
    before = peak_resident()
    store = Store(folder)
    one_pass.fit(store, store.y)
    print(before, peak_resident())


def peak_resident() -> float:
    # Not ru_maxrss: a process inherits that of the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 / GB for line in lines if line.startswith("VmHWM"))


def steps() -> Iterator[Line]:
    """The same steps, of 16 examples, on mapped features and on those of a list."""
    n = 340
    pairs = list(examples(n))
    solver = DoubleSGD(batch_size=16, step=PlainStep(0.01))  # the default would read all features of a list first
    with made_store(n) as folder:
        assert folder is not None
        store = Store(folder)
        problems = [
            predictor(solver).problem(X, y)
            for X, y in ((store, store.y), ([x for x, _ in pairs], [y for _, y in pairs]))
        ]

        def run(problem: Problem) -> None:
            solver.run(problem, solver.start(problem), n_iter=2 * n // 16)

        mapped, in_memory = interleaved([lambda: run(problems[0]), lambda: run(problems[1])])
    yield Line(
        f"steps per second, store of {n * EXAMPLE_BYTES / GB:.1f} GB in the page cache",
        "in memory",
        in_memory / mapped,
        0.8,
    )


def two_processes_marginals() -> Iterator[Line]:
    """100 perturbations of 2,000 examples."""
    with made_store(2000, room=3 * GB) as folder:
        store = Store(folder)
        fitted = predictor(DoubleSGD(n_passes=5)).fit(*map(list, zip(*examples(N_BLOCKS), strict=True)))

        def infer(n_jobs: int) -> None:
            fitted.set_params(n_jobs=n_jobs).predict_marginals(store)

        for _ in range(4):  # until most shards were checked by both processes, which share them out by chance
            infer(2)
        one, two = interleaved([lambda: infer(1), lambda: infer(2)], repeats=5)
    yield Line("marginals of 2,000 examples of a store, 2 processes", f"1 process, {one:.1f} s", one / two, 1.7)


def two_processes_fit() -> Iterator[Line]:
    """Rounds of local steps on eight shards; each of a fit's processes finds the shards it had before."""
    n, n_passes = 4000, 1
    with made_store(n, n_shards=8, room=7 * GB) as folder:
        store = Store(folder)

        def fit(n_jobs: int) -> None:
            predictor(LocalSGD(DoubleSGD(n_passes=n_passes)), n_jobs).fit(store, store.y)

        one, two = interleaved([lambda: fit(1), lambda: fit(2)], repeats=5)
    yield Line(
        f"passes per second, rounds on {len(store.shards)} shards, 2 processes",
        f"1 process, {n_passes / one:.2f} per second",
        one / two,
        1.6,
    )


BENCHMARKS = [
    Benchmark("store memory", memory),
    Benchmark("store steps", steps),
    Benchmark("store marginals processes", two_processes_marginals),
    Benchmark("store fit processes", two_processes_fit),
]
