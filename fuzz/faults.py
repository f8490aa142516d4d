"""Every allocation of the core made to fail once: a MemoryError or the right answer, no leak, no abort.

Needs the build with the counting allocator (cpp/faults.cpp), which ``make faults`` makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import perturbmap as pm
from perturbmap import _core
from perturbmap.inference.elimination import sample_out, sum_out
from perturbmap.inference.sweeps import sweeps
from perturbmap.structures import SummableStructure

core: Any = _core  # the functions of the test build are not among those that it declares


def potentials(structure: pm.Structure, rng: np.random.Generator) -> pm.Potentials:
    """A batch with three copies, so large that threads are started; an empty example among them."""
    if isinstance(structure, pm.Matching):
        f = pm.Potentials.batch([pm.Potentials(rng.normal(size=(n, 12))) for n in (12, 0, 7, 12, 12)])
    elif isinstance(structure, pm.BinaryGraph):
        edges = pm.grid_edges(12, 12)
        f = pm.Potentials.batch(
            [pm.Potentials(rng.normal(size=(144, 2)), pm.potts(rng.uniform(0, 2, len(edges))), edges)] * 6
        )
    else:
        f = pm.Potentials.batch([chain_or_tree(structure, n, rng) for n in (900, 0, 9, 900)])
    return f.with_unary(f.unary + rng.normal(size=(3, *f.unary.shape)))


def chain_or_tree(structure: pm.Structure, n: int, rng: np.random.Generator) -> pm.Potentials:
    """A chain, or a tree in which each site hangs from one before it."""
    unary, table = rng.normal(size=(n, 5)), rng.normal(size=(5, 5))
    if isinstance(structure, pm.Chain):
        return pm.Potentials(unary, table)
    return pm.Potentials(unary, table, [(rng.integers(0, i), i) for i in range(1, n)])


def calls(structure: pm.Structure, f: pm.Potentials) -> Iterator[tuple[str, Callable[[], list[Any]]]]:
    """What the core can be asked, each as a function that returns arrays."""
    weights = np.ones(f.unary.shape)
    pinned = structure.pinned(f)

    def moments() -> list[Any]:
        found = pinned.moments(np.where(np.isfinite(pinned.values), weights, 0.0))
        return [found.unary, found.pairwise]

    yield "maximise", lambda: list(structure.maximise(f))
    yield "pinned", lambda: [structure.pinned(f).values]
    yield "moments", moments
    yield "noise", lambda: [pm.gumbel_noise(f, 0, 50, n_threads=structure.n_threads)]
    one = f.with_unary(f.unary[0])
    if structure.sweeps is not None:
        labels = structure.argmax(f)
        yield "sweeps", lambda: list(sweeps(structure, one, None, labels, 0, 0, 1, 2))
    if structure.is_plain:
        n_threads = structure.n_threads or 1
        yield "sum_out", lambda: list(sum_out(one, None, n_threads))
        yield "sample_out", lambda: list(sample_out(one, None, np.full((2, f.n_sites), 0.4), n_threads))
    if isinstance(structure, SummableStructure):
        sums = structure.pinned_sums(f)
        yield "log_partition", lambda: [structure.log_partition(f)[0]]
        yield "pinned_sums", lambda: [structure.pinned_sums(f).values]
        yield "moments of sums", lambda: [sums.moments(np.where(np.isfinite(sums.values), weights, 0.0)).unary]
        yield "sample", lambda: [structure.sample(one, 3, rng=0)]
        yield "entropy", lambda: [structure.entropy(f)]
        spans = [(0, 0, [0]), (0, [0, int(f.layout.site_counts[0]) - 1], [0, 0])]
        yield "spans", lambda: [structure.span_probabilities(f, spans)]
    if isinstance(structure, (pm.Chain, pm.Tree)):
        yield "k_best", lambda: list(structure.k_best(f, 5))


def fail_each(name: str, call: Callable[[], list[Any]]) -> int:
    """Makes the first allocation of the call fail, then the second, and so on; returns how many there are."""
    expected = call()
    live = core.live_allocations()
    for n in range(1, sys.maxsize):
        core.fail_allocation(n)
        try:
            found = call()
        except MemoryError:
            found = None
        has_failed = core.has_failed()
        if core.live_allocations() != live:
            raise SystemExit(f"{name}: failing allocation {n} leaks {core.live_allocations() - live} blocks")
        if found is not None and not all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)):
            raise SystemExit(f"{name}: failing allocation {n} changes the result")
        if not has_failed:
            return n - 1
    raise AssertionError


def structures(n_threads: int) -> list[pm.Structure]:
    """One of each kind."""
    plain = [kind(n_threads) for kind in (pm.Chain, pm.Tree, pm.BinaryGraph, pm.Matching)]
    return [*plain, pm.Chain(n_threads, allowed=~np.eye(3, dtype=bool))]


def main() -> None:
    if not hasattr(core, "fail_allocation"):
        raise SystemExit("this core has no counting allocator: use make faults")
    rng = np.random.default_rng(0)
    total = 0
    for n_threads in (1, 3):
        for structure in structures(n_threads):
            for name, call in calls(structure, potentials(structure, rng)):
                n = fail_each(f"{structure}.{name}", call)
                print(f"{structure!r:24} {name:16} {n:5} allocations failed one by one")
                total += n
    print(f"{total:,} failures: each a MemoryError or the right answer, no leak")


if __name__ == "__main__":
    main()
