"""The core: cuts, pinned cuts, pinned chains, threads.

Ratios are the peer's time over ours unless the line says otherwise; CPU time, which other work on the machine hardly
changes, but for the lines of two threads. All perturbed copies are different, as they
are in use: repeating one instance would let the processor learn its branches by heart.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import maxflow
import numpy as np
from scipy.spatial import Delaunay

from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import (
    BinaryGraph,
    Chain,
    Potentials,
    gumbel_noise,
    log_partition_bound,
    marginals,
    perturb,
    potts,
)
from perturbmap.potentials import Floats, Labels

COUPLINGS = {"weak": 0.25, "moderate": 0.5, "strong": 2.0}
cpu_seconds = partial(interleaved, clock=time.process_time)  # of tasks that take one thread
BIG = 1e6  # for the peer: stronger than any cut here


def superpixel_like(n: int, coupling: float, n_copies: int, seed: int) -> tuple[Potentials, Floats]:
    """A planar graph of mean degree 6, unaries of spread 2, perturbed copies; and its edge weights."""
    rng = np.random.default_rng(seed)
    triangles = Delaunay(rng.random((n, 2))).simplices
    edges = np.sort(np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1)
    edges = np.unique(edges, axis=0)
    weights = rng.uniform(0, 2 * coupling, len(edges))
    f = Potentials(rng.normal(0, 2, (n, 2)), potts(weights), edges)
    return perturb(f, gumbel_noise(f, seed, n_copies)), weights


def peer_graph(unary: Floats, edges: Labels, weights: Floats) -> maxflow.GraphFloat:
    graph = maxflow.Graph[float](len(unary), len(edges))
    graph.add_nodes(len(unary))
    graph.add_edges(edges[:, 0], edges[:, 1], weights, weights)
    graph.add_grid_tedges(np.arange(len(unary)), unary[:, 1], unary[:, 0])
    return graph


def peer_cut(unary: Floats, edges: Labels, weights: Floats) -> np.ndarray:
    """One cut, built, solved and read out; True is label 0."""
    graph = peer_graph(unary, edges, weights)
    graph.maxflow()
    return np.asarray(graph.get_grid_segments(np.arange(len(unary))))


def peer_rebuilt(unary: Floats, edges: Labels, weights: Floats, pins: list[int], free: Labels) -> None:
    for d in pins:
        pinned = unary.copy()
        pinned[d, free[d]] -= BIG
        peer_cut(pinned, edges, weights)


def peer_pins(graph: maxflow.GraphFloat, pins: list[int], is_zero: list[bool], sites: Labels | None) -> None:
    """Pins one after another on one graph with its trees re-used; unpinning is left to the next solve."""
    for d in pins:
        up, down = (BIG, 0) if is_zero[d] else (0, BIG)
        graph.add_tedge(d, up, down)
        graph.mark_node(d)
        graph.maxflow(reuse_trees=True)
        if sites is not None:
            graph.get_grid_segments(sites)
        graph.add_tedge(d, down, up)
        graph.mark_node(d)


def peer_reused(unary: Floats, edges: Labels, weights: Floats) -> None:
    graph = peer_graph(unary, edges, weights)
    graph.maxflow()
    sites = np.arange(len(unary), dtype=np.int32)
    peer_pins(graph, sites.tolist(), graph.get_grid_segments(sites).tolist(), sites)


def our_solutions(f: Potentials) -> None:
    """All pinned values and maximisers of every copy, ready for any weighted sum; build and first cut included."""
    BinaryGraph(n_threads=1).pinned(f)


def check_peer() -> None:
    """The peer's pinned labellings and ours are the same: the race is about the same work."""
    f, weights = superpixel_like(150, 0.5, 1, seed=99)
    one = f.with_unary(f.unary[0])
    pinned = BinaryGraph().pinned(one)
    graph = peer_graph(one.unary, one.edges, weights)
    graph.maxflow()
    sites = np.arange(150, dtype=np.int32)
    is_zero = graph.get_grid_segments(sites)
    assert (is_zero == (pinned.free == 0)).all()
    for d in range(150):
        up, down = (BIG, 0) if is_zero[d] else (0, BIG)
        graph.add_tedge(d, up, down)
        graph.mark_node(d)
        graph.maxflow(reuse_trees=True)
        labels = (~graph.get_grid_segments(sites)).astype(np.int32)
        assert abs(one.score(labels)[0] - pinned.values[d, 1 - pinned.free[d]]) < 1e-9
        graph.add_tedge(d, down, up)
        graph.mark_node(d)


def small_pins(name: str, bars: tuple[float, float]) -> Iterator[Line]:
    """D = 150: against a rebuilt graph and against re-used trees, with the labels read out."""
    check_peer()
    n_copies, n_rebuilt = 100, 15
    f, weights = superpixel_like(150, COUPLINGS[name], n_copies, seed=1)
    free = BinaryGraph().argmax(f)

    def ours() -> None:
        our_solutions(f)

    def rebuilt() -> None:
        for copy in range(3):
            pins = list(range(copy, 150, 150 // n_rebuilt))
            peer_rebuilt(f.unary[copy], f.edges, weights, pins, free[copy])

    def reused() -> None:
        for unary in f.unary[:10]:
            peer_reused(unary, f.edges, weights)

    us, slow, fast = cpu_seconds([ours, rebuilt, reused])
    per_pin = us / (n_copies * 150)
    PIN_COST[150, name] = per_pin
    work = f"all pinned solutions, D=150, {name} coupling"
    yield Line(work, "PyMaxflow, rebuilt for each pin", slow / (3 * n_rebuilt) / per_pin, bars[0])
    yield Line(work, "PyMaxflow, reuse_trees", fast / (10 * 150) / per_pin, bars[1])


PIN_COST: dict[tuple[int, str], float] = {}


def large_pins(n: int, name: str) -> Iterator[Line | str]:
    """D = 2,000 and 20,000: the peer's pins are sampled, and neither build, first cut nor read-out is counted."""
    n_copies = max(1, 20_000 // n)
    f, weights = superpixel_like(n, COUPLINGS[name], n_copies, seed=2)
    rng = np.random.default_rng(0)
    graph = peer_graph(f.unary[0], f.edges, weights)
    graph.maxflow()
    is_zero = graph.get_grid_segments(np.arange(n)).tolist()

    def reused() -> None:
        peer_pins(graph, rng.integers(0, n, samples).tolist(), is_zero, None)

    pins = rng.integers(0, n, 3).tolist()
    samples, free = 300, BinaryGraph().argmax(f)[0]
    us, fast, slow = cpu_seconds(
        [
            lambda: our_solutions(f),
            reused,
            lambda: peer_rebuilt(f.unary[0], f.edges, weights, pins, free),
        ],
        repeats=5,
    )
    per_pin = us / (n_copies * n)
    PIN_COST[n, name] = per_pin
    work = f"all pinned solutions, D={n:,}, {name} coupling"
    yield Line(work, "PyMaxflow, rebuilt for each pin", slow / len(pins) / per_pin, 5)
    bar = 6.2 if (n, name) == (2000, "strong") else 5
    yield Line(work, "PyMaxflow, reuse_trees, no read-out", fast / samples / per_pin, bar)
    if n == 20_000 and name == "strong":
        for coupling in COUPLINGS:
            sizes = [d for d in (150, 2000, 20_000) if (d, coupling) in PIN_COST]
            costs = [f"D={d:,}: {PIN_COST[d, coupling] * 1e6:.2f}" for d in sizes]
            yield f"microseconds per pin, ours, {coupling} coupling: " + ", ".join(costs)


def one_cut() -> Iterator[Line]:
    """Cuts of D = 150 one by one, from arrays to labels, and as copies of a batch."""
    f, weights = superpixel_like(150, COUPLINGS["moderate"], 100, seed=3)
    structure = BinaryGraph(n_threads=1)
    tables = potts(weights)
    edges = np.array(f.edges)

    def singly() -> None:
        for unary in f.unary:
            structure.argmax(Potentials(unary, tables, edges))

    def peer() -> None:
        for unary in f.unary:
            peer_cut(unary, edges, weights)

    together, alone, theirs = cpu_seconds([lambda: structure.argmax(f), singly, peer])
    yield Line("one cut, D=150, build included, of a batch of 100", "PyMaxflow", theirs / together, 2)
    yield Line("one cut, D=150, build included, called singly", "PyMaxflow", theirs / alone, 2)


def grid(side: int, coupling: float) -> tuple[Floats, Floats, Labels]:
    from perturbmap import grid_edges

    rng = np.random.default_rng(4)
    edges = grid_edges(side, side)
    f = Potentials(rng.normal(0, 2, (side * side, 2)))
    return f.unary + gumbel_noise(f, 4)[0], rng.uniform(0, 2 * coupling, len(edges)), edges


def our_grid_cut(unary: Floats, weights: Floats, edges: Labels) -> None:
    BinaryGraph(n_threads=1).argmax(Potentials(unary, potts(weights), edges))


def large_grid(coupling: float) -> Iterator[Line]:
    """A megapixel: time here, memory in fresh processes, above what the arrays of the problem take."""
    unary, weights, edges = grid(1000, coupling)
    us, theirs = cpu_seconds(
        [lambda: our_grid_cut(unary, weights, edges), lambda: peer_cut(unary, edges, weights)], repeats=5
    )
    work = f"one cut, 1000 x 1000 grid, build included, mean edge weight {coupling:g}"
    yield Line(work, "PyMaxflow", theirs / us, 1)
    ours_mb, theirs_mb = (_memory(solver, coupling) for solver in ("our_grid_cut", "peer"))
    yield Line(
        f"{work}: memory, theirs over ours",
        f"PyMaxflow ({theirs_mb:.0f} MB, ours {ours_mb:.0f})",
        theirs_mb / ours_mb,
        1,
    )


def _memory(solver: str, coupling: float) -> float:
    code = f"from benchmarks.core import measure_memory; measure_memory({solver!r}, {coupling})"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def measure_memory(solver: str, coupling: float) -> None:
    """Prints the peak resident memory, in MB, that one grid cut adds."""
    unary, weights, edges = grid(1000, coupling)

    def resident(field: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))

    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the problem
    before = resident("VmRSS")
    if solver == "peer":
        peer_cut(unary, edges, weights)
    else:
        our_grid_cut(unary, weights, edges)
    print(resident("VmHWM") - before)


def chain_pins(length: int) -> Iterator[Line]:
    """Values and moments of all pins of a chain against one Viterbi pass."""
    rng = np.random.default_rng(5)
    k, n = 26, 1600 // length
    f = Potentials.batch([Potentials(rng.normal(0, 1, (length, k)), rng.normal(0, 1, (k, k)))] * n)
    structure = Chain(n_threads=1)
    weights = rng.normal(size=f.unary.shape)
    # pinned() has the values, moments() the rest.
    everything, viterbi = cpu_seconds(
        [lambda: structure.pinned(f).moments(weights), lambda: structure.argmax(f)], repeats=15
    )
    yield Line(
        f"values and moments of all pins, chain of {length}, K=26: time over Viterbi's",
        "our own Viterbi pass",
        everything / viterbi,
        3,
        at_least=False,
    )


def threads() -> Iterator[Line]:
    """100 perturbations of 150 graphs: marginals and bound, two threads against one."""
    examples = [superpixel_like(150, 0.5, 1, seed=100 + i)[0] for i in range(150)]
    f = Potentials.batch([e.with_unary(e.unary[0]) for e in examples])
    for name, infer in (("pinned marginals", marginals), ("log-partition bound", log_partition_bound)):
        one, two = interleaved(
            [partial(infer, BinaryGraph(n_threads=n), f, n_perturbations=100, rng=0) for n in (1, 2)],
            repeats=5,
        )
        yield Line(f"{name}, 100 perturbations of 150 graphs of D=150, 2 threads", "1 thread", one / two, 1.7)


BENCHMARKS = [
    *(
        Benchmark(f"pins 150 {name}", partial(small_pins, name, bars))
        for name, bars in {"weak": (120.0, 12.0), "moderate": (80.0, 8.0), "strong": (28.0, 7.0)}.items()
    ),
    *(Benchmark(f"pins {n} {name}", partial(large_pins, n, name)) for n in (2000, 20_000) for name in COUPLINGS),
    Benchmark("cut 150", one_cut),
    Benchmark("cut grid 0.5", partial(large_grid, 0.5)),
    Benchmark("cut grid 2", partial(large_grid, 2.0)),
    Benchmark("chain 8", partial(chain_pins, 8)),
    Benchmark("chain 100", partial(chain_pins, 100)),
    Benchmark("threads", threads),
]
