"""Random factor graphs, and the sums and maxima over them by listing all labellings of the factors themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perturbmap.potentials import Floats
from perturbmap.uai import Factor, FactorGraph


@dataclass(frozen=True)
class Listed:
    """Z, the largest product of factors and the marginals of each variable, given the evidence."""

    partition: float
    best: float
    marginals: list[Floats]

    @classmethod
    def of(cls, graph: FactorGraph, evidence: Mapping[int, int]) -> Listed:
        """Products, no logarithms and no reductions."""
        sums = [np.zeros(n) for n in graph.cardinalities]
        products = []
        for y in itertools.product(*map(range, graph.cardinalities)):
            if any(y[v] != label for v, label in evidence.items()):
                continue
            product = math.prod(float(table[tuple(y[v] for v in scope)]) for scope, table in graph.factors)
            products.append(product)
            for v, label in enumerate(y):
                sums[v][label] += product
        z = math.fsum(products)
        return cls(z, max(products), [total / z for total in sums] if z else [])


def numbers(rng: np.random.Generator, shape: tuple[int, ...], zeros: float) -> Floats:
    return np.where(rng.random(shape) < zeros, 0.0, np.exp(rng.normal(0, 1.5, shape)))


def random_forest(rng: np.random.Generator) -> tuple[FactorGraph, dict[int, int]]:
    """A forest of two to six variables of one to four labels, some factors of which only evidence makes pairs."""
    n = int(rng.integers(2, 7))
    cards = [int(k) for k in rng.integers(1, 5, n)]
    zeros = float(rng.choice([0.0, 0.2, 0.45]))
    evidence = {v: int(rng.integers(cards[v])) for v in range(n) if rng.random() < 0.25}
    names = rng.permutation(n).tolist()
    pairs = [(names[int(rng.integers(i))], names[i]) for i in range(1, n) if rng.random() < 0.9]
    scopes: list[tuple[int, ...]] = [(v,) for v in range(n) if rng.random() < 0.6]
    scopes += [pair[::-1] if rng.random() < 0.5 else pair for pair in pairs for _ in range(rng.integers(1, 3))]
    for v in evidence:  # an observed variable may join any factor
        for pair in pairs:
            if v not in pair and rng.random() < 0.5:
                scopes.append(tuple(rng.permutation([*pair, v]).tolist()))
    if rng.random() < 0.2:
        scopes.append(())
    rng.shuffle(scopes)
    factors = [Factor(scope, numbers(rng, tuple(cards[v] for v in scope), zeros)) for scope in scopes]
    return FactorGraph(cards, factors), evidence


def random_binary_graph(rng: np.random.Generator, frustrated: bool = False) -> FactorGraph:
    """Three to seven variables of two labels on a cycle with chords, attractive if the labels of some are exchanged.

    With ``frustrated``, the factor over variables 0 and 1 is turned round.
    """
    n = int(rng.integers(3, 8))
    is_exchanged = rng.random(n) < 0.5
    pairs = [(i, (i + 1) % n) for i in range(n)]
    pairs += [(i, j) for i in range(n) for j in range(i + 2, n) if rng.random() < 0.3]
    zeros = float(rng.choice([0.0, 0.3]))
    factors = [Factor((v,), np.exp(rng.normal(0, 1.5, 2))) for v in range(n) if rng.random() < 0.7]
    for e, (i, j) in enumerate(pairs):
        table = np.exp(rng.normal(0, 1, (2, 2)))
        table[0, 0] = table[0, 1] * table[1, 0] / table[1, 1] * math.exp(rng.gamma(1.0))
        if rng.random() < zeros:
            table[0, 1] = 0
        if is_exchanged[i] != (frustrated and e == 0):
            table = table[::-1]
        if is_exchanged[j]:
            table = table[:, ::-1]
        factors.append(Factor((j, i), table.T) if rng.random() < 0.5 else Factor((i, j), table))
    return FactorGraph([2] * n, factors)
