"""The same seed gives the same bits, whatever the threads and the batches; and memory stays bounded."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from perturbmap import (
    COUNTED,
    INTEGRATED,
    PINNED,
    BinaryGraph,
    Chain,
    Matching,
    Potentials,
    Tree,
    grid_edges,
    log_partition_bound,
    marginals,
    potts,
    sample,
)
from perturbmap.inference import MarginalMethod

from .instances import example

STRUCTURES = [Chain(), Tree(), BinaryGraph(), Matching()]


def batch(structure: Chain | Tree | BinaryGraph | Matching, n: int) -> Potentials:
    rng = np.random.default_rng(5)
    k = 2 if isinstance(structure, BinaryGraph) else 5
    return Potentials.batch([example(structure, int(s), k, rng, has_ties=False) for s in rng.integers(1, 6, n)])


@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_results_do_not_depend_on_the_number_of_threads(
    structure: Chain | Tree | BinaryGraph | Matching,
) -> None:
    """Bounds, marginals, samples, moments: bit-identical for 1, 2 and 5 threads."""
    f = batch(structure, 400)
    weights = np.random.default_rng(1).normal(size=f.unary.shape)
    results = []
    for n_threads in (1, 2, 5):
        s = structure.with_threads(n_threads)
        pinned = s.pinned(f)
        moments = pinned.moments(weights)
        results.append(
            [
                *log_partition_bound(s, f, n_perturbations=9, rng=3),
                *marginals(s, f, n_perturbations=9, rng=3),
                sample(s, f, 5, rng=3),
                pinned.values,
                moments.unary,
                np.zeros(1) if moments.pairwise is None else moments.pairwise,
            ]
        )
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("method", [COUNTED, INTEGRATED, PINNED], ids=repr)
@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_results_do_not_depend_on_the_split_into_batches(
    structure: Chain | Tree | BinaryGraph | Matching, method: MarginalMethod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of examples gives the same bits at once, in parts, and in chunks of any size."""
    f = batch(structure, 9)

    def run(part: Potentials) -> list[np.ndarray]:
        return [
            *log_partition_bound(structure, part, n_perturbations=70, rng=4),
            *marginals(structure, part, method=method, n_perturbations=70, rng=4),
            sample(structure, part, 6, rng=4).T,
        ]

    whole = run(f)
    parts = [run(f[:2]), run(f[2:3]), run(f[3:])]
    for i, expected in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([p[i] for p in parts]), expected)
    monkeypatch.setattr("perturbmap.inference.draws._CHUNK", 40)
    for a, b in zip(run(f), whole, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("has_ties", [False, True])
def test_a_graph_is_cut_in_one_order_with_one_copy_and_with_many(has_ties: bool) -> None:
    """Copies one by one, a chunk of one draw and a chunk of many: the same bits, the same ties."""
    rng = np.random.default_rng(8)
    side, n = 5, 120
    edges = grid_edges(side, side)
    numbers = 0.1 * rng.integers(-5, 6, (n, side**2, 2)) if has_ties else rng.normal(size=(n, side**2, 2))
    tables = potts(0.1 * rng.integers(0, 6, len(edges)) if has_ties else rng.uniform(0, 1, len(edges)))
    together = Potentials(numbers, tables, edges)
    alone = [Potentials(u, tables, edges) for u in numbers]
    for s in (BinaryGraph(1), BinaryGraph(3)):
        labels, _ = s.maximise(together)
        free, values = s.pinned_values(together)
        assert np.array_equal(labels, free)
        for i, one in enumerate(alone):
            assert np.array_equal(s.argmax(one), labels[i])
            assert np.array_equal(s.pinned_values(one)[1], values[i])
    assert len({a.tobytes() for a in labels}) > n // 4


def test_marginals_are_the_same_bits_where_a_chunk_holds_one_draw() -> None:
    """So many sites that one thread takes one draw at a time, two threads two, and a slice of them many."""
    rng = np.random.default_rng(9)
    edges = grid_edges(5, 5)
    f = Potentials.batch(
        [Potentials(rng.normal(size=(25, 2)), potts(rng.uniform(0, 1, len(edges))), edges) for _ in range(2600)]
    )
    one, two, many = (marginals(BinaryGraph(n), f, n_perturbations=10, rng=1) for n in (1, 2, 7))
    part = marginals(BinaryGraph(1), f[40:90], n_perturbations=10, rng=1)
    assert np.array_equal(one.mean, two.mean)
    assert np.array_equal(one.mean, many.mean)
    assert np.array_equal(one.standard_error, many.standard_error)
    assert np.array_equal(one.mean[40 * 25 : 90 * 25], part.mean)


def test_an_integer_seed_repeats_and_a_generator_moves_on() -> None:
    """Two calls with rng=1 agree; two calls with one Generator do not."""
    f = batch(Chain(), 3)
    rng = np.random.default_rng(1)
    once, again = (log_partition_bound(Chain(), f, n_perturbations=5, rng=1).mean for _ in range(2))
    np.testing.assert_array_equal(once, again)
    first, second = (log_partition_bound(Chain(), f, n_perturbations=5, rng=rng).mean for _ in range(2))
    assert (first != second).all()


@pytest.mark.slow
def test_many_perturbations_of_a_large_graph_run_in_bounded_memory() -> None:
    """100 perturbations of 20,000 sites need no more memory than 20 of them (their noise alone is 32 MB)."""
    f = Potentials(np.random.default_rng(0).normal(size=(20_000, 2)), potts(0.3), grid_edges(100, 200))

    def peak(n: int) -> int:
        tracemalloc.start()
        marginals(BinaryGraph(), f, n_perturbations=n, rng=0)
        log_partition_bound(BinaryGraph(), f, n_perturbations=n, rng=0)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(1)
    # 32 groups of sums for the standard errors, 10 MB, are there from 32 perturbations on.
    assert peak(100) < peak(20) + 15e6


FIT = """
import warnings
import numpy as np
import perturbmap as pm
rng = np.random.default_rng(0)
X = [pm.Example(rng.normal(size=(60, 1500)), pm.grid_edges(6, 10)) for _ in range(12)]
y = [(x.features[:, 0] > 0).astype(int) for x in X]
y[0] = None
warnings.simplefilter("ignore")
for objective, solver in [(None, pm.DoubleSGD(n_passes=3)), (pm.StructuredHinge(), pm.BCFW(n_passes=2))]:
    parts = (pm.GraphModel(), pm.BinaryGraph(), objective)
    estimator = pm.StructuredPredictor(*parts, solver=solver, l2=0.1, random_state=0).fit(X, y)
    print(estimator.coef_.tobytes().hex(), np.concatenate(estimator.predict_marginals(X)).tobytes().hex())
"""


@pytest.mark.slow
def test_a_fit_does_not_depend_on_the_threads_of_blas() -> None:
    """Nor do marginals: BLAS would sum in another order."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", FIT],
            check=True,
            capture_output=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": str(n), "MKL_NUM_THREADS": str(n)},
        )
        for n in (1, 2)
    ]
    assert len(runs[0].stdout) > 10_000
    assert runs[0].stdout == runs[1].stdout
