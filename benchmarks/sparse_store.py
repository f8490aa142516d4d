"""Sparse features in a store: steps and whole gradients beside those in memory.

Sentences of twenty words, each with twenty binary features of 300,000, the rarer ones seldom; seventeen labels. Times
are CPU times of one thread.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import Chain, DoubleSGD, ExactLogLikelihood, SequenceModel, Store, StructuredPredictor, write_store
from perturbmap.solvers import Problem
from perturbmap.solvers.everything import Everything

N_SENTENCES, N_WORDS, N_PRESENT, N_FEATURES, N_LABELS = 4000, 20, 20, 300_000, 17
N_SHARDS = 8


@cache
def sentences() -> tuple[list[Any], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    starts = np.arange(0, N_WORDS * N_PRESENT + 1, N_PRESENT)
    X, y = [], []
    for _ in range(N_SENTENCES):
        columns = (N_FEATURES ** rng.random(N_WORDS * N_PRESENT)).astype(np.int32) % N_FEATURES
        X.append(sp.csr_array((np.ones(len(columns)), columns, starts), shape=(N_WORDS, N_FEATURES)))
        y.append(columns[::N_PRESENT] % N_LABELS)
    return X, y


def problems(folder: Path) -> list[Problem]:
    """The same problem on a store, and in memory."""
    X, y = sentences()
    n_bytes = sum(x.nnz for x in X) * 8
    write_store(folder, X, y, classes=list(range(N_LABELS)), shard_bytes=n_bytes // N_SHARDS)
    store = Store(folder)
    tagger = StructuredPredictor(SequenceModel(), Chain(n_threads=1), ExactLogLikelihood(), l2=1e-3, random_state=0)
    found = [tagger.problem(store, store.y), tagger.problem(X, y)]
    assert all(problem.learned is not None for problem in found)  # which counts before the clock runs
    return found


def steps() -> Iterator[Line]:
    """The same steps, of 16 sentences."""
    solver = DoubleSGD(batch_size=16)
    with tempfile.TemporaryDirectory(prefix="perturbmap-bench-") as folder:
        stored, listed = problems(Path(folder) / "store")

        def run(problem: Problem) -> None:
            solver.run(problem, solver.start(problem), n_iter=N_SENTENCES // 16)

        mapped, in_memory = interleaved([lambda: run(stored), lambda: run(listed)], clock=process_time)
    what = f"steps per second, sparse store of {N_SENTENCES:,} sentences in the page cache"
    yield Line(what, f"in memory, {1e3 * in_memory / (N_SENTENCES // 16):.1f} ms each", in_memory / mapped, 0.8)


def gradients() -> Iterator[Line]:
    """A gradient over all sentences: of a store, the columns of a chunk are numbered anew each time."""
    with tempfile.TemporaryDirectory(prefix="perturbmap-bench-") as folder:
        both = problems(Path(folder) / "store")
        assert both[0].learned is not None
        w = np.zeros(both[0].learned.sum())
        stored, listed = map(Everything, both)
        with stored, listed:
            mapped, in_memory = interleaved(
                [lambda: stored.value_and_grad(w), lambda: listed.value_and_grad(w)], clock=process_time
            )
    what = f"gradients per second, sparse store of {N_SENTENCES:,} sentences in the page cache"
    yield Line(what, f"in memory, {in_memory:.2f} s each", in_memory / mapped, 0.4)


BENCHMARKS = [
    Benchmark("sparse store steps", steps),
    Benchmark("sparse store gradients", gradients),
]
