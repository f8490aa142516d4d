"""Sequences: what a chain tells besides its maximum, beside one Viterbi pass or one sum of our own.

Every chain has unary potentials of its own, and all share one table, as those of a `SequenceModel` do. Times are CPU
times of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time

import numpy as np

from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import Chain, Potentials
from perturbmap.potentials import Layout

N_CHAINS, LENGTH, N_LABELS = 64, 50, 26


def chains() -> Potentials:
    rng = np.random.default_rng(0)
    layout = Layout.of_counts([LENGTH] * N_CHAINS)
    shape = (layout.n_sites, N_LABELS)
    return Potentials.on(layout, rng.normal(0, 2, shape), rng.normal(0, 1, (N_LABELS, N_LABELS)))


def k_best() -> Iterator[Line]:
    structure, f = Chain(n_threads=1), chains()
    for k, bar in ((10, 12), (100, 100)):
        ours, viterbi = interleaved(
            [partial(structure.k_best, f, k), partial(structure.maximise, f)], repeats=25, clock=process_time
        )
        what = f"{k} best labellings, chain of {LENGTH}, K={N_LABELS}: time over Viterbi's"
        yield Line(what, "our own Viterbi pass", ours / viterbi, bar, at_least=False)


def what_sums_tell() -> Iterator[Line]:
    """Entropies, and ten spans of three sites in each chain, beside the forward-backward pass that both need."""
    structure, f = Chain(n_threads=1), chains()
    spans = [(n, first, [0, 1, 2]) for n in range(N_CHAINS) for first in range(0, LENGTH - 3, 5)]
    tasks: list[Callable[[], object]] = [
        partial(structure.entropy, f),
        partial(structure.span_probabilities, f, spans),
        partial(structure.sample, f, 10, rng=0),
        partial(structure.log_partition, f),
    ]
    *ours, sums = interleaved(tasks, repeats=25, clock=process_time)
    names = ("entropy", f"probabilities of {len(spans) // N_CHAINS} spans of 3 sites", "10 exact samples")
    for name, seconds, bar in zip(names, ours, (2, 5, 10), strict=True):
        what = f"{name}, chain of {LENGTH}, K={N_LABELS}: time over log-partition's"
        yield Line(what, "our own sums", seconds / sums, bar, at_least=False)


def forbidden() -> Iterator[Line]:
    """Three pairs in ten: beside none, and beside a large negative number in the tables."""
    f = chains()
    pairs = np.random.default_rng(1).random((N_LABELS, N_LABELS)) < 0.7
    plain, ruled = Chain(n_threads=1), Chain(n_threads=1, allowed=pairs)
    assert f.pairwise is not None
    lowered = Potentials.on(f.layout, f.unary, np.where(pairs, f.pairwise, -1e4))
    tasks: list[Callable[[], object]] = [
        partial(ruled.maximise, f),
        partial(plain.maximise, f),
        partial(ruled.log_partition, f),
        partial(plain.log_partition, f),
        partial(plain.log_partition, lowered),
    ]
    best, best_of_all, sums, sums_of_all, sums_lowered = interleaved(tasks, repeats=25, clock=process_time)
    what = f"3 pairs of 10 forbidden, chain of {LENGTH}, K={N_LABELS}"
    yield Line(f"{what}: best labels, time over that with none", "ourselves", best / best_of_all, 1.5, at_least=False)
    yield Line(
        f"{what}: log-partition, time over that with none", "ourselves", sums / sums_of_all, 1.5, at_least=False
    )
    yield Line(f"{what}: log-partition", "ourselves, -1e4 in the tables", sums_lowered / sums, 1)


BENCHMARKS = [
    Benchmark("k best labellings of sequences", k_best),
    Benchmark("entropy, spans and samples of sequences", what_sums_tell),
    Benchmark("forbidden pairs of sequences", forbidden),
]
