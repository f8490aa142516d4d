"""Threads of the caller's own, and processes that fork: one structure, one estimator, the same results."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from perturbmap import (
    BinaryGraph,
    Chain,
    Matching,
    Potentials,
    SequenceModel,
    Structure,
    StructuredPredictor,
    Tree,
    grid_edges,
    log_partition_bound,
    marginals,
    potts,
    sample,
)

N_THREADS = 2


def potentials(structure: Structure, seed: int) -> Potentials:
    """So much work that the core takes all the threads it may."""
    rng = np.random.default_rng(seed)
    if isinstance(structure, Matching):
        return Potentials.batch([Potentials(rng.normal(size=(12, 12))) for _ in range(60)])
    if isinstance(structure, BinaryGraph):
        edges = grid_edges(12, 12)
        tables = potts(rng.uniform(0, 1, len(edges)))
        return Potentials.batch([Potentials(rng.normal(size=(144, 2)), tables, edges) for _ in range(20)])
    return Potentials.batch([Potentials(rng.normal(size=(50, 5)), rng.normal(size=(5, 5))) for _ in range(40)])


def answers(structure: Structure, f: Potentials) -> list[np.ndarray]:
    """All that the core can be asked, under noise and without."""
    pinned = structure.pinned(f)
    return [
        *structure.maximise(f),
        pinned.values,
        pinned.moments(np.where(np.isfinite(pinned.values), 1.0, 0.0)).unary,
        *marginals(structure, f, n_perturbations=5, rng=1),
        log_partition_bound(structure, f, n_perturbations=5, rng=1).mean,
        sample(structure, f, 3, rng=1),
    ]


def at_once(work: Callable[[int], Any], n: int) -> list[Any]:
    """Results of ``work(0)``, ``work(1)``, ..., each on a thread of its own, all begun together."""
    begin = threading.Barrier(n)

    def one(i: int) -> Any:
        begin.wait(timeout=60)
        return work(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, range(n)))


@pytest.mark.parametrize(
    "structure", [Chain(N_THREADS), Tree(N_THREADS), BinaryGraph(N_THREADS), Matching(N_THREADS)], ids=repr
)
def test_threads_share_a_structure(structure: Structure) -> None:
    """Two threads with potentials of their own and two with the same ones: what each gets alone."""
    batches = [potentials(structure, seed) for seed in (0, 1, 2, 2)]
    alone = [answers(structure, f) for f in batches]
    for expected, found in zip(alone, at_once(lambda i: answers(structure, batches[i]), 4), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


def test_threads_share_a_pinned_batch() -> None:
    """Moments with other weights are taken of the same pins at the same time."""
    structure = BinaryGraph(N_THREADS)
    f = potentials(structure, 0)
    pinned = structure.pinned(f)
    weights = [np.random.default_rng(i).normal(size=f.unary.shape) for i in range(4)]
    alone = [pinned.moments(w) for w in weights]
    for expected, found in zip(alone, at_once(lambda i: pinned.moments(weights[i]), 4), strict=True):
        assert np.array_equal(expected.unary, found.unary)
        assert expected.pairwise is not None
        assert found.pairwise is not None
        assert np.array_equal(expected.pairwise, found.pairwise)


def fitted() -> tuple[StructuredPredictor, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(int(n), 4)) for n in rng.integers(3, 30, 200)]
    y = [(each[:, 0] + each[:, 1] > 0).astype(int) for each in x]
    return StructuredPredictor(SequenceModel(), random_state=0).fit(x[:20], y[:20]), x


def test_threads_share_a_fitted_estimator() -> None:
    """Each predicts other examples, and fits a copy of its own."""
    predictor, x = fitted()
    parts = [x[i::4] for i in range(4)]

    def predict(i: int) -> list[np.ndarray]:
        return [*predictor.predict(parts[i]), *predictor.predict_marginals(parts[i])]

    alone = [predict(i) for i in range(4)]
    for expected, found in zip(alone, at_once(predict, 4), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
    weights = at_once(lambda _: fitted()[0].coef_, 2)
    assert all(np.array_equal(predictor.coef_, w) for w in weights)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS's own libraries do not survive a fork")
def test_a_forked_child_predicts_after_its_parent_used_threads() -> None:
    """No thread of the core outlives its call, so that a child has all it needs."""
    predictor, x = fitted()
    structure = BinaryGraph(N_THREADS)
    f = potentials(structure, 0)
    expected = [*predictor.predict_marginals(x), *answers(structure, f)]
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        theirs.send([*predictor.predict_marginals(x), *answers(structure, f)])

    process = context.Process(target=child)
    process.start()
    assert ours.poll(60), "the child hangs"
    found = ours.recv()
    process.join(60)
    assert process.exitcode == 0
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
