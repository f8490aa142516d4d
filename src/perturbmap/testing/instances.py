"""Random small instances: potentials, and labels that are given. What fits a structure is for its owner to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from perturbmap.potentials import Floats, Labels, Potentials, chain_edges, offsets_of, potts
from perturbmap.structures.base import InfeasibleError, Structure
from perturbmap.testing.failure import describe

#: ``make(rng, n_sites, n_labels, integers)``: the potentials of one random example that fits a structure; of small
#: integers, so that ties are likely, or of real numbers.
Make = Callable[[np.random.Generator, int, int, bool], Potentials]

#: Numbers of sites and labels that can be listed quickly, the smallest first.
SIZES: tuple[tuple[int, int], ...] = tuple(
    sorted(
        ((n, k) for n in range(1, 7) for k in range(1, 5) if k**n <= 256), key=lambda size: (size[0] * size[1], size)
    )
)

# So that an instance that is printed is the instance, and ties are still unlikely.
_DECIMALS = 6


def numbers(rng: np.random.Generator, shape: tuple[int, ...], integers: bool, scale: float = 1.0) -> Floats:
    """Small integers, or normal numbers with few enough decimals to be printed."""
    if integers:
        return rng.integers(-2, 3, shape).astype(np.float64)
    return rng.normal(0, scale, shape).round(_DECIMALS)


def unaries(rng: np.random.Generator, n_sites: int, n_labels: int, integers: bool) -> Potentials:
    """Random potentials without edges, for structures that take unary potentials only."""
    return Potentials(numbers(rng, (n_sites, n_labels), integers, 1.5))


def chains(rng: np.random.Generator, n_sites: int, n_labels: int, integers: bool) -> Potentials:
    """Random potentials of a chain: consecutive sites joined, by tables of any sign, one for each edge or for all."""
    return _with_tables(rng, n_sites, n_labels, integers, chain_edges(offsets_of([n_sites])))


def forests(rng: np.random.Generator, n_sites: int, n_labels: int, integers: bool) -> Potentials:
    """Random potentials of one tree or several, with edges in any direction, some twice, and tables of any sign."""
    names = rng.permutation(n_sites)
    pairs = [(int(names[rng.integers(i)]), int(names[i])) for i in range(1, n_sites) if rng.random() < 0.85]
    return _with_tables(rng, n_sites, n_labels, integers, _turned(rng, pairs))


def graphs(rng: np.random.Generator, n_sites: int, n_labels: int, integers: bool) -> Potentials:
    """Random potentials of any graph, cycles and parallel edges among them, with any tables."""
    pairs = [(i, j) for i in range(n_sites) for j in range(n_sites) if i != j]
    chosen = [pairs[int(e)] for e in rng.integers(0, len(pairs), rng.integers(0, 2 * n_sites))] if pairs else []
    return _with_tables(rng, n_sites, n_labels, integers, _turned(rng, chosen))


def attractive_graphs(rng: np.random.Generator, n_sites: int, n_labels: int, integers: bool) -> Potentials:
    """Random potentials of any graph, cycles and parallel edges among them, whose edges favour equal labels.

    With two labels, tables are supermodular, ``f00 + f11 >= f01 + f10``; with more, those of Potts.
    """
    f = graphs(rng, n_sites, n_labels, integers)
    assert f.pairwise is not None
    couplings = np.abs(numbers(rng, f.pairwise.shape[:-2], integers))
    if n_labels != 2:
        return Potentials(f.unary, couplings[..., None, None] * potts(1.0, n_labels), f.edges)
    tables = f.pairwise.copy()
    lacking = tables[..., 0, 1] + tables[..., 1, 0] - tables[..., 0, 0] - tables[..., 1, 1]
    tables[..., 1, 1] += np.maximum(0, lacking) + couplings * (rng.random(couplings.shape) < 0.5)
    return Potentials(f.unary, tables.round(_DECIMALS), f.edges)


def _turned(rng: np.random.Generator, pairs: list[tuple[int, int]]) -> Labels:
    edges = [pair[::-1] if rng.random() < 0.5 else pair for pair in pairs]
    if edges and rng.random() < 0.2:
        edges.append(edges[0][::-1])  # a parallel edge
    return np.array(edges, dtype=np.int32).reshape(-1, 2)


def _with_tables(rng: np.random.Generator, n_sites: int, n_labels: int, integers: bool, edges: Labels) -> Potentials:
    unary = numbers(rng, (n_sites, n_labels), integers, 1.5)
    shape = (n_labels, n_labels) if rng.random() < 0.3 else (len(edges), n_labels, n_labels)
    tables = numbers(rng, shape, integers)
    tables[rng.random(shape[:-2]) < 0.15] = 0
    return Potentials(unary, tables, edges)


@final
@dataclass(frozen=True)
class Case:
    """One example or a batch of them, and labels that are given, if any."""

    f: Potentials
    given: Labels | None = None

    def describe(self) -> str:
        """The potentials, and the given labels."""
        return f"{describe_potentials(self.f)}\n{describe(given=self.given)}"


def describe_potentials(f: Potentials) -> str:
    """The arrays of potentials; of a batch, also where its examples begin."""
    offsets = {} if len(f) == 1 else {"site_offsets": f.site_offsets, "edge_offsets": f.edge_offsets}
    return describe(unary=f.unary, pairwise=f.pairwise, edges=f.edges, **offsets)


def single_cases(
    rng: np.random.Generator,
    make: Make,
    definition: Structure,
    sizes: Sequence[tuple[int, int]],
    n_repeats: int,
    *,
    integers: bool = True,
) -> Iterator[Case]:
    """Single examples of these sizes, in this order: of each size some with given labels, and some of integers."""
    for n_sites, n_labels in sizes:
        for repeat in range(n_repeats):
            f = make(rng, n_sites, n_labels, integers and repeat % 4 >= 2)
            yield Case(f, some_labels(rng, definition, f) if repeat % 2 else None)


def batches(
    rng: np.random.Generator,
    make: Make,
    definition: Structure,
    sizes: Sequence[tuple[int, int]],
    n_repeats: int,
    *,
    integers: bool = True,
) -> Iterator[Case]:
    """Batches of two and three examples of these sizes, those with the fewest labels first; see `single_cases`."""
    for n_labels in sorted({k for _, k in sizes}):
        counts = [n for n, k in sizes if k == n_labels]
        for repeat in range(n_repeats):
            chosen = rng.choice(counts, 2 + repeat % 2)
            f = Potentials.batch([make(rng, int(n), n_labels, integers and repeat % 4 >= 2) for n in chosen])
            yield Case(f, some_labels(rng, definition, f) if repeat % 2 else None)


def a_labelling(rng: np.random.Generator, definition: Structure, f: Potentials) -> Labels:
    """A random labelling that the definition allows."""
    other = 10.0 * rng.normal(size=f.unary.shape)
    return definition.argmax(f.with_unary(np.where(np.isneginf(f.unary), -np.inf, other)))


def some_labels(rng: np.random.Generator, definition: Structure, f: Potentials) -> Labels:
    """Labels of about a third of the sites, -1 elsewhere, which some allowed labelling has."""
    return np.where(rng.random(f.n_sites) < 0.35, a_labelling(rng, definition, f), -1).astype(np.int32)


def is_possible(definition: Structure, f: Potentials, given: Labels) -> bool:
    """Whether some allowed labelling has these labels."""
    try:
        definition.maximise(f, given)
    except InfeasibleError:
        return False
    return True
