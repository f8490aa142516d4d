"""Ways to find the pinned maximisers of one iteration of Algorithm 2, each with its time: the rows of Table 5.

basic.      y_A and every pin from scratch: D + 1 graphs are built and cut, by our own cuts, in one call, so that no
            pin pays for Python.
one graph.  The same cuts in a graph that is built once and filled D + 1 times: the most that can be had without
            either trick.
dynamic.    One cut, and the flips of *all* sites read off its residual graph. To us a pin that y_A satisfies is y_A
            and costs nothing, so that this trick without the other one is the other label of every site: 2 D values,
            which is what ``MarginalLogLikelihood(integrate_noise=True)`` learns from.
reduction.  y_A, then from scratch only the pins that it does not satisfy.
both.       One cut, and the unsatisfied pins read off: ``integrate_noise=False``.
PyMaxflow.  As basic, by its float graphs; and on one graph with its trees re-used. Only where it is installed.

What is timed leads from perturbed potentials to values and labels; that arrays must be made for D + 1 problems does
not count. "dynamic" and "both" include the weighted moments, which are all that a step needs; the others end with the
labels. It is the processor time of the one thread, so that nothing else on the machine counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perturbmap.noise import gumbel_noise, perturb
from perturbmap.potentials import Floats, Labels, Mask, Potentials
from perturbmap.solvers import Problem
from perturbmap.solvers.passes import Passes
from perturbmap.structures.base import Structure

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Pins:
    """The pins of one iteration, ``max { f(y) : y_d = labels[d] }`` for d in ``sites``; f is perturbed."""

    structure: Structure
    f: Potentials
    labels: Labels
    label_weights: Floats

    @classmethod
    def of_step(cls, problem: Problem, passes: Passes, w: Floats, h: int) -> Pins:
        """The pins of step h at the weights w: the example and the noise that the solver will draw."""
        data, targets = problem.batch(passes.batch(h, 1).indices)
        f = problem.model.potentials(w, data, problem.n_labels)
        noise = gumbel_noise(f, problem.seed, first_draw=h, n_threads=1, domain=problem.domain)[0]
        return cls(problem.structure, perturb(f, noise), targets.labels, targets.label_weights)

    @property
    def sites(self) -> NDArray[np.intp]:
        """The sites whose label is known."""
        return np.flatnonzero(self.labels >= 0)

    def unsatisfied(self, free: Labels) -> NDArray[np.intp]:
        """The sites whose label is known and not that of y_A."""
        return np.flatnonzero((self.labels >= 0) & (self.labels != free))

    def given(self, sites: NDArray[np.intp]) -> Labels:
        """Each of these pins as given labels, ``(n_pins, n_sites)``."""
        given = np.full((len(sites), self.f.n_sites), -1, dtype=np.int32)
        given[np.arange(len(sites)), sites] = self.labels[sites]
        return given

    def unary(self, sites: NDArray[np.intp]) -> Floats:
        """Each of these pins as unary potentials, ``(n_pins, n_sites, 2)``: no maximiser has the other label."""
        unary = np.repeat(self.f.unary[None], len(sites), axis=0)
        enough = 1 + 2 * (np.abs(self.f.unary).max() + np.abs(self.f.tables).sum())
        unary[np.arange(len(sites)), sites, 1 - self.labels[sites]] -= enough
        return unary


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    """Seconds, less those that the clock takes itself."""
    start = time.thread_time()
    result = call()
    stop = time.thread_time()
    return (stop - start) - (time.thread_time() - stop), result


#: Seconds, and the values of the pins of `Pins.sites`.
Timing = tuple[float, Floats]
Way = Callable[[Pins], Timing]


def _from_scratch(p: Pins, given: Labels) -> Timing:
    """Each problem is an example with a graph of its own."""
    batch = Potentials.batch([p.f] * len(given))
    seconds, (_, values) = _timed(lambda: p.structure.maximise(batch, given.ravel()))
    return seconds, values


def _basic(p: Pins) -> Timing:
    free = np.full((1, p.f.n_sites), -1, dtype=np.int32)
    seconds, values = _from_scratch(p, np.concatenate([free, p.given(p.sites)]))
    return seconds, values[1:]


def _one_graph(p: Pins) -> Timing:
    """Each problem is a copy of the same example."""
    f = p.f.with_unary(np.concatenate([p.f.unary[None], p.unary(p.sites)]))
    seconds, (_, values) = _timed(lambda: p.structure.maximise(f))
    return seconds, values[1:, 0]


def _reduction(p: Pins) -> Timing:
    seconds, (free, best) = _timed(lambda: p.structure.maximise(p.f))
    values, wrong = np.full(p.f.n_sites, best[0]), p.unsatisfied(free)
    if wrong.size:
        more, values[wrong] = _from_scratch(p, p.given(wrong))
        seconds += more
    return seconds, values[p.sites]


def _read_off(p: Pins, mask: Mask | None) -> Timing:
    seconds, pinned = _timed(lambda: p.structure.pinned(p.f, pins=mask))
    c = p.label_weights
    weights = c - c.sum(axis=1, keepdims=True) * (np.arange(2) == pinned.free[:, None])
    more, _ = _timed(lambda: pinned.moments(weights))
    return seconds + more, pinned.values[p.sites, p.labels[p.sites]]


def _dynamic(p: Pins) -> Timing:
    return _read_off(p, None)


def _both(p: Pins) -> Timing:
    return _read_off(p, np.arange(2) == p.labels[:, None])


def _peers() -> dict[str, Way]:
    """PyMaxflow's ways, where it is installed; for the tables of `GraphModel`."""
    try:
        import maxflow
    except ImportError:
        return {}

    def graph_of(f: Potentials, unary: Floats, weights: Floats, sites: NDArray[np.intp]) -> Any:
        graph = maxflow.Graph[float](f.n_sites, f.n_edges)
        graph.add_nodes(f.n_sites)
        graph.add_edges(f.edges[:, 0], f.edges[:, 1], weights, weights)
        graph.add_grid_tedges(sites, unary[:, 1], unary[:, 0])
        graph.maxflow()
        return graph

    def values(p: Pins, is_zero: list[Mask]) -> Floats:
        return p.f.score((~np.array(is_zero[1:])).astype(np.int32))[:, 0]

    def rebuilt(p: Pins) -> Timing:
        sites, weights, problems = np.arange(p.f.n_sites), -p.f.tables[:, 0, 1], [p.f.unary, *p.unary(p.sites)]
        seconds, is_zero = _timed(
            lambda: [graph_of(p.f, unary, weights, sites).get_grid_segments(sites) for unary in problems]
        )
        return seconds, values(p, is_zero)

    def reused(p: Pins) -> Timing:
        sites, weights = np.arange(p.f.n_sites), -p.f.tables[:, 0, 1]
        penalties = (p.f.unary - p.unary(p.sites))[np.arange(len(p.sites)), p.sites].tolist()
        pins = list(zip(p.sites.tolist(), penalties, strict=True))

        def solve() -> list[Mask]:
            graph = graph_of(p.f, p.f.unary, weights, sites)
            is_zero = [graph.get_grid_segments(sites)]
            for d, (zero, one) in pins:
                graph.add_tedge(d, zero, one)
                graph.mark_node(d)
                graph.maxflow(reuse_trees=True)
                is_zero.append(graph.get_grid_segments(sites))
                graph.add_tedge(d, one, zero)  # it is unpinned by the next solve
                graph.mark_node(d)
            return is_zero

        seconds, is_zero = _timed(solve)
        return seconds, values(p, is_zero)

    return {"PyMaxflow": rebuilt, "PyMaxflow, re-used": reused}


def all_ways() -> dict[str, Way]:
    """The rows by name; those of PyMaxflow where it is installed."""
    ours: dict[str, Way] = {
        "basic": _basic,
        "one graph": _one_graph,
        "dynamic": _dynamic,
        "reduction": _reduction,
        "both": _both,
    }
    return ours | _peers()
