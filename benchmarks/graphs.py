"""Graphs of many labels, repulsion among them: moves, pins, maxima, marginals, a step of learning.

Ratios are the peer's time over ours unless the line says otherwise. Peers are PyMaxflow's expansion moves on a grid,
those of gco, toulbar2, damped loopy belief propagation, and pins one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import gco
import numpy as np
import pytoulbar2
from maxflow.fastmin import aexpansion_grid
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter

from benchmarks.against_work import planar
from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import (
    PINNED,
    Graph,
    MarginalLogLikelihood,
    Potentials,
    grid_edges,
    gumbel_noise,
    marginals,
    perturb,
    potts,
)
from perturbmap.inference import Converging
from perturbmap.inference.elimination import sum_out
from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.structures.base import PinnedOneByOne, Structure

HEIGHT, WIDTH = 321, 481


def image() -> Iterator[Line]:
    """Eight labels on the pixels of an image: regions, seen through noise as large as their contrast."""
    rng, k, weight = np.random.default_rng(0), 8, 1.5
    truth = np.argmax([gaussian_filter(rng.normal(size=(HEIGHT, WIDTH)), 15) for _ in range(k)], axis=0)
    costs = rng.normal(size=(HEIGHT, WIDTH, k)) - np.eye(k)[truth]
    apart = weight * (1 - np.eye(k))
    edges = grid_edges(HEIGHT, WIDTH)

    def build() -> Potentials:
        return Potentials(-costs.reshape(-1, k), -apart, edges)

    peer, ours = interleaved(
        [lambda: aexpansion_grid(costs, apart), lambda: Graph(n_threads=1).maximise(build())], 3, time.process_time
    )
    yield Line("expansion, 321 x 481 pixels, 8 labels, build included", "PyMaxflow, aexpansion_grid", peer / ours, 2)
    lead = Graph().maximise(build())[1][0] - build().score(aexpansion_grid(costs, apart).ravel())[0]
    yield Line("  score, ours minus the peer's", "PyMaxflow, aexpansion_grid", float(lead), 0)


def superpixels(n_copies: int, k: int = 21) -> Potentials:
    rng = np.random.default_rng(1)
    edges = planar(150, 0.5, 1, 1).edges
    f = Potentials(rng.normal(0, 2, (150, k)), potts(rng.uniform(0, 2, len(edges)), k), edges)
    return perturb(f, gumbel_noise(f, 1, n_copies))


def moves_of_gco(f: Potentials, weights: Floats) -> list[Labels]:
    """The copies one after another, in one call of the library each."""
    differ = 1.0 - np.eye(f.n_labels)
    return [
        gco.cut_general_graph(f.edges, weights, -unary, differ, n_iter=-1, algorithm="expansion") for unary in f.stack
    ]


def moves() -> Iterator[Line]:
    """Graphs as large as those of superpixels, all different; and all their pins."""
    f = superpixels(100)
    weights = f.tables[:, 0, 0] - f.tables[:, 0, 1]
    one = Graph(n_threads=1)
    peer, ours, pins = interleaved(
        [lambda: moves_of_gco(f, weights), lambda: one.maximise(f), lambda: one.pinned(f)], 5, time.process_time
    )
    yield Line("expansion, 100 graphs of 150 sites and 21 labels", "gco", peer / ours, 5)
    theirs = np.array([f.with_unary(u).score(y)[0] for u, y in zip(f.stack, moves_of_gco(f, weights), strict=True)])
    yield Line("  mean score, ours minus the peer's", "gco", float((one.maximise(f)[1][:, 0] - theirs).mean()), 0)
    yield Line("all 3,150 pins of each, time", "one maximisation of ours", pins / ours, 4, at_least=False)


def frustrated_grid(seed: int) -> Potentials:
    rng, edges = np.random.default_rng(seed), grid_edges(20, 20)
    signed = rng.choice([-1.0, 1.0], len(edges)) * rng.exponential(1.0, len(edges))
    return Potentials(rng.normal(size=(400, 4)), signed[:, None, None] * np.eye(4), edges)


def dense(seed: int) -> Potentials:
    rng, n, k = np.random.default_rng(seed), 60, 11
    edges = np.array([(i, j) for i in range(n) for j in range(i)])
    return Potentials(rng.normal(size=(n, k)), 0.5 * rng.normal(size=(len(edges), k, k)), edges)


def proved(f: Potentials, seconds: int) -> float:
    """The best score that toulbar2 finds in so much time."""
    problem = pytoulbar2.CFN(ubinit=1e7, resolution=5)
    for d, scores in enumerate(f.unary):
        problem.AddVariable(f"y{d}", range(f.n_labels))
        problem.AddFunction([d], (scores.max() - scores).tolist())
    for (i, j), table in zip(f.edges.tolist(), f.tables, strict=True):
        problem.AddFunction([i, j], (table.max() - table).ravel().tolist())
    found = problem.Solve(timeLimit=seconds)
    return float(f.score(np.array(found[0]))[0]) if found else -np.inf


def maxima(n_instances: int = 3, seconds: int = 60) -> Iterator[Line]:
    """The best labelling of models that repel, with a tenth of the peer's time at most."""
    for name, make, effort in (
        ("grids of 20 x 20 with 4 labels, half repulsive", frustrated_grid, 100),
        ("60 sites, 11 labels, dense", dense, 100),
    ):
        gaps, ours, theirs = [], 0.0, 0.0
        for seed in range(n_instances):
            f = make(seed)
            began = time.process_time()
            value = float(Graph(n_threads=1, effort=effort).maximise(f)[1][0])
            middle = time.process_time()
            best = proved(f, seconds)
            ours += middle - began
            theirs += time.process_time() - middle
            gaps.append(100 * (best - value) / abs(best))
        yield Line(f"maximum of {name}, gap in %", "toulbar2, 60 s", float(np.mean(gaps)), 0.5, at_least=False)
        yield Line("  time of all, ours over the peer's", "toulbar2, 60 s", ours / theirs, 0.1, at_least=False)


def belief_propagation(f: Potentials, damping: float = 0.5, n_rounds: int = 500) -> Floats:
    """Marginals by damped loopy sum-product, until messages rest; all messages at once."""
    i, j = f.edges.T
    source, target = np.concatenate([i, j]), np.concatenate([j, i])
    back = np.concatenate([np.arange(len(i), 2 * len(i)), np.arange(len(i))])
    tables = np.concatenate([f.tables, f.tables.swapaxes(1, 2)])
    messages = np.zeros((len(source), f.n_labels))
    for _ in range(n_rounds):
        belief = f.unary.copy()
        np.add.at(belief, target, messages)
        out = np.logaddexp.reduce((belief[source] - messages[back])[:, :, None] + tables, axis=1)
        out -= np.logaddexp.reduce(out, axis=1, keepdims=True)
        change = np.abs(out - messages).max(initial=0)
        messages = damping * messages + (1 - damping) * out
        if change < 1e-6:
            break
    belief = f.unary.copy()
    np.add.at(belief, target, messages)
    return np.asarray(np.exp(belief - np.logaddexp.reduce(belief, axis=1, keepdims=True)))


def marginal_errors() -> Iterator[Line]:
    """Grids of 10 x 12 with three labels, half of the edges repulsive: too wide for exact sums by default.

    The reference is an exact sum with sixteen times the memory.
    """
    means = []
    for coupling in (0.5, 1.0, 2.0, 4.0):
        errors = []
        for seed in (100, 101):
            rng, edges = np.random.default_rng(seed), grid_edges(10, 12)
            signed = rng.choice([-1.0, 1.0], len(edges)) * rng.exponential(coupling, len(edges))
            f = Potentials(rng.normal(size=(120, 3)), signed[:, None, None] * np.eye(3), edges)
            exact = sum_out(f, None, 1, 2**26).marginals
            found = [
                marginals(Graph(), f, method=Converging(max_seconds=20.0), rng=0).mean,
                marginals(Graph(), f, method=PINNED, n_perturbations=300, rng=0).mean,
                belief_propagation(f),
            ]
            errors.append([np.abs(q - exact).mean() for q in found])
        means.append(np.mean(errors, axis=0))
        ours, pinned, peer = means[-1]
        bar, where = (0.5 if coupling > 1 else 1.0), f"10 x 12, 3 labels, half repulsive, coupling {coupling:g}"
        yield Line(f"error, CONVERGING over peer, {where}", "loopy belief propagation", ours / peer, bar, False)
        yield Line(f"error, PINNED over peer, {where}", "loopy belief propagation", pinned / peer, bar, False)
    ours, pinned, peer = np.mean(means, axis=0)
    yield Line("  mean error, CONVERGING over peer", "loopy belief propagation", ours / peer, 1, at_least=False)
    yield Line("  mean error, PINNED over peer", "loopy belief propagation", pinned / peer, 1, at_least=False)


class OneByOne(Structure):
    """`Graph` whose pins are solved one after another."""

    is_exact = False

    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        return Graph(n_threads=1).maximise(f, given)

    def pinned(self, f: Potentials, pins: ArrayLike | None = None, given: ArrayLike | None = None) -> PinnedOneByOne:
        return PinnedOneByOne(self, f, None, None)


def step() -> Iterator[Line]:
    """The gradient of the weighted likelihood of one photo's graph: 150 superpixels, 21 classes."""
    f = superpixels(1)
    f = f.with_unary(f.unary[0])
    objective = MarginalLogLikelihood()
    known = SiteLabels.of(Graph().argmax(f), 21, f.layout)
    targets = objective.targets(known)
    noise = gumbel_noise(f, 0, 1)[0]
    peer, ours = interleaved(
        [
            lambda: objective.value_and_grad(f, targets, OneByOne(), noise),
            lambda: objective.value_and_grad(f, targets, Graph(n_threads=1), noise),
        ],
        3,
        time.process_time,
    )
    yield Line("a gradient of the marginal likelihood, 150 sites, 21 labels", "pins one by one", peer / ours, 20)


BENCHMARKS = [
    Benchmark("graphs: expansion on an image", image),
    Benchmark("graphs: expansion and pins of superpixels", moves),
    Benchmark("graphs: maxima", maxima),
    Benchmark("graphs: marginals", marginal_errors),
    Benchmark("graphs: a gradient", step),
]
