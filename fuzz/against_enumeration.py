"""Small instances: a structure answers as its definition does, which lists all labellings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.instances import ALL_KINDS, NUMBERS, Generator, filled, multiplied, with_magnitudes
from fuzz.mutations import choose
from perturbmap import BruteForce, Potentials
from perturbmap.inference.elimination import sum_out
from perturbmap.structures import SummableStructure
from perturbmap.support.checks import LARGEST
from perturbmap.testing import check_structure
from perturbmap.testing.failure import Trial
from perturbmap.testing.instances import Case, some_labels
from tests.instances import KINDS, Kind


def as_the_definition(rng: Generator) -> None:
    """Maxima, pins, moments, masks of pins, sums, batches, copies and threads."""
    kind = choose(rng, ALL_KINDS)
    check_structure(
        kind.structure.with_threads(choose(rng, [None, 1, 2, 3])),
        filled(kind.make, choose(rng, NUMBERS)),
        kind.definition,
        sizes=[choose(rng, kind.sizes)],
        n_repeats=2,
        seed=int(rng.integers(2**32)),
    )


def any_magnitude(rng: Generator) -> None:
    """Numbers from 1e-300 to the largest in one instance: right up to the rounding of the largest among them."""
    kind = choose(rng, KINDS)
    low, high = sorted(rng.uniform(-300, np.log10(LARGEST) - 2, 2).tolist())
    f = with_magnitudes(rng, make_one(rng, kind), low, high)
    given = some_labels(rng, kind.definition, f) if rng.random() < 0.5 else None
    slack = 1e-12 * float(np.abs(f.unary).sum() + np.abs(f.tables).sum())
    with Trial(kind.structure, Case(f, given).describe) as trial:
        labels, values = kind.structure.maximise(f, given)
        best = kind.definition.maximise(f, given)[1]
        trial.close("the value is that of the labels", values, kind.definition.maximise(f, labels)[1], 0, slack)
        pinned, expected = kind.structure.pinned(f, given=given), kind.definition.pinned(f, given=given)
        if kind.structure.is_exact:
            trial.close("the value is the maximum", values, best, 0, slack)
            trial.close("pinned values are the maxima", pinned.values, expected.values, 0, slack)
        else:
            bounds = kind.structure.maximise_with_bound(f, given).bounds
            trial.holds("the value is no higher than the maximum", values <= best + slack, f"{values} and {best}")
            trial.holds("the bound is no lower than the maximum", bounds >= best - slack, f"{bounds} and {best}")
            trial.holds(
                "pinned values are no higher than the maxima",
                pinned.values <= expected.values + slack,
                f"found: {pinned.values.tolist()}\nmaxima: {expected.values.tolist()}",
            )
        if isinstance(kind.structure, SummableStructure):
            log_z, marginals = kind.structure.log_partition(f, given)
            most = f.n_sites * np.log(f.n_labels)
            trial.holds("log Z is no lower than the maximum", log_z >= best - slack, f"{log_z} and {best}")
            trial.holds("log Z is that of so many labellings", log_z <= best + slack + most, f"{log_z} and {best}")
            trial.close("marginals add up to 1", marginals.unary.sum(axis=1), np.ones(f.n_sites), 0, 1e-9)


def powers_of_two(rng: Generator) -> None:
    """Potentials times a power of two: the same labels, and values times that power, bit by bit."""
    kind = choose(rng, KINDS)
    f = make_one(rng, kind)
    given = some_labels(rng, kind.definition, f) if rng.random() < 0.5 else None
    factor = 2.0 ** int(rng.integers(-900, np.log2(LARGEST) - 4))
    with Trial(kind.structure, Case(f, given).describe) as trial:
        one, other = (kind.structure.pinned(g, given=given) for g in (f, multiplied(f, factor, factor)))
        trial.equal(f"free labels stay, with potentials times {factor!r}", other.free, one.free)
        trial.equal(f"pinned values scale, with potentials times {factor!r}", other.values, factor * one.values)


def any_arrays(rng: Generator) -> None:
    """Types, orders and strides of arrays: the same numbers give the same answers, bit by bit."""
    kind = choose(rng, KINDS)
    f = kind.make(rng, *choose(rng, kind.sizes), True)
    given = some_labels(rng, kind.definition, f)
    edges = choose(rng, INTEGERS)(f.edges) if f.n_edges else f.edges
    tables = None if f.pairwise is None else choose(rng, FLOATS)(f.pairwise)
    same = Potentials(choose(rng, FLOATS)(f.unary), tables, None if tables is None else edges)
    with Trial(kind.structure, Case(f, given).describe) as trial:
        one = kind.structure.pinned(f, given=given)
        other = kind.structure.pinned(same, given=choose(rng, INTEGERS)(given))
        trial.equal("labels do not depend on how arrays are passed", other.free, one.free)
        trial.equal("values do not depend on how arrays are passed", other.values, one.values)


def sums_of_any_graph(rng: Generator) -> None:
    """Cycles, parallel edges, any tables and given labels: sums by elimination are those of the definition."""
    n, n_labels = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    edges = rng.integers(0, n, (int(rng.integers(0, 3 * n)), 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    size = 10.0 ** rng.uniform(-3, 3)
    tables = size * rng.normal(size=(n_labels, n_labels) if rng.random() < 0.5 else (len(edges), n_labels, n_labels))
    f = Potentials(size * rng.normal(size=(n, n_labels)), tables, edges)
    given = some_labels(rng, BruteForce(), f) if rng.random() < 0.5 else None
    slack = 1e-12 * float(np.abs(f.unary).sum() + np.abs(f.tables).sum())
    with Trial(BruteForce(), Case(f, given).describe) as trial:
        found = sum_out(f, given, int(rng.integers(1, 3)))
        log_z, moments = BruteForce().log_partition(f, given)
        trial.close("log Z is the sum", found.values, log_z, 1e-12, slack)
        trial.close("marginals are those of the sum", found.marginals, moments.unary, 1e-9, 1e-9 + slack)


def spread(array: np.ndarray) -> np.ndarray:
    """The same array with other numbers between its own."""
    wide = np.full((*array.shape, 3), 99, dtype=array.dtype)
    wide[..., 1] = array
    return wide[..., 1]


FLOATS: list[Callable[[np.ndarray], Any]] = [
    lambda a: a.astype(np.float32),
    lambda a: a.astype(np.float16),
    lambda a: a.astype(">f8"),
    lambda a: a.astype(np.int8),
    lambda a: a.astype(np.longdouble),
    np.asfortranarray,
    spread,
    lambda a: a[::-1].copy()[::-1],
]
INTEGERS: list[Callable[[np.ndarray], Any]] = [
    lambda a: a.astype(np.int8),
    lambda a: a.astype(np.int64),
    lambda a: a.astype(">i4"),
    lambda a: a.tolist(),
    np.asfortranarray,
    spread,
]


def make_one(rng: Generator, kind: Kind) -> Potentials:
    """One example that fits a structure, of integers or of real numbers."""
    return kind.make(rng, *choose(rng, kind.sizes), bool(rng.random() < 0.5))
