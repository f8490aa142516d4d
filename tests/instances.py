"""Random small instances of every structure, and the enumeration that defines each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from perturbmap import BinaryGraph, BruteForce, Chain, Matching, Potentials, Structure, Tree
from perturbmap.potentials import Floats, Labels


def is_injective(y: Labels) -> bool:
    return len(set(y.tolist())) == len(y)


@dataclass(frozen=True)
class Instance:
    """A batch, some given labels (or none), and whether potentials are integers, so that ties are likely."""

    f: Potentials
    given: Labels | None
    has_ties: bool


STRUCTURES: list[Structure] = [Chain(), Tree(), BinaryGraph(), Matching()]


def definition(structure: Structure) -> BruteForce:
    return BruteForce(allowed=is_injective if isinstance(structure, Matching) else None)


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], has_ties: bool, scale: float) -> Floats:
    if has_ties:
        return rng.integers(-2, 3, shape).astype(np.float64)
    return rng.normal(0, scale, shape)


def _edges(structure: Structure, n: int, rng: np.random.Generator) -> list[list[int]]:
    if isinstance(structure, Chain):
        return [[i, i + 1] for i in range(n - 1)]
    if isinstance(structure, Tree):  # some sites start a tree of their own; edges run either way
        names = rng.permutation(n)
        pairs = [[int(names[rng.integers(i)]), int(names[i])] for i in range(1, n) if rng.random() < 0.85]
        edges = [pair[::-1] if rng.random() < 0.5 else pair for pair in pairs]
    else:
        pairs = [[i, j] for i in range(n) for j in range(n) if i != j]
        edges = [pairs[int(k)] for k in rng.integers(0, len(pairs), rng.integers(0, 2 * n))] if pairs else []
    if edges and rng.random() < 0.2:
        edges.append(edges[0][::-1])  # a parallel edge
    return edges


def example(structure: Structure, n: int, k: int, rng: np.random.Generator, has_ties: bool) -> Potentials:
    unary = _numbers(rng, (n, k), has_ties, 1.5)
    if isinstance(structure, Matching):
        return Potentials(unary)
    edges = _edges(structure, n, rng)
    shape = (k, k) if rng.random() < 0.3 else (len(edges), k, k)
    tables = _numbers(rng, shape, has_ties, 1.0)
    if isinstance(structure, BinaryGraph):
        coupling = tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]
        tables[..., 1, 1] += np.maximum(0, -coupling) + rng.choice([0, 0, 1, 3], shape[:-2])
    tables[rng.random(shape[:-2]) < 0.15] = 0
    return Potentials(unary, tables, np.array(edges, dtype=np.int64).reshape(-1, 2))


def random_given(f: Potentials, structure: Structure, rng: np.random.Generator) -> Labels | None:
    """Labels of about a third of the sites, which some labelling has."""
    if rng.random() < 0.4:
        return None
    draws = [
        rng.permutation(f.n_labels)[:n] if isinstance(structure, Matching) else rng.integers(0, f.n_labels, n)
        for n in np.diff(f.site_offsets)
    ]
    given = np.concatenate(draws) if draws else np.empty(0)
    return np.where(rng.random(f.n_sites) < 0.35, given, -1).astype(np.int32)


@st.composite
def instances(draw: st.DrawFn, structure: Structure) -> Instance:
    """Batches of one to three examples of one to six sites."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    has_ties = draw(st.booleans())
    if isinstance(structure, BinaryGraph):
        k, largest = 2, 6
    else:
        k = draw(st.integers(1, 4))
        largest = k if isinstance(structure, Matching) else {1: 6, 2: 6, 3: 5, 4: 4}[k]
    sizes = draw(st.lists(st.integers(1, largest), min_size=1, max_size=3))
    f = Potentials.batch([example(structure, n, k, rng, has_ties) for n in sizes])
    return Instance(f, random_given(f, structure, rng), has_ties)
