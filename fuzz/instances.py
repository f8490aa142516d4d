"""Instances of every structure: those of `perturbmap.testing`, with numbers and sizes that are seldom met."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment

from perturbmap import BruteForce, FromSolver, Matching, Potentials
from perturbmap.potentials import Floats, Labels
from perturbmap.testing import forests, unaries
from perturbmap.testing.instances import SIZES, Make
from tests.instances import FORBIDDING, KINDS, Kind

Generator = np.random.Generator


def has_even_sum(y: Labels) -> bool:
    return int(y.sum()) % 2 == 0


def best_even_sum(unary: Floats) -> Labels:
    """By dynamic programming over the parity of the sum."""
    best: list[tuple[float, list[int]]] = [(0.0, []), (-np.inf, [])]
    for row in unary.tolist():
        best = [
            max((best[(parity - k) % 2][0] + value, [*best[(parity - k) % 2][1], k]) for k, value in enumerate(row))
            for parity in (0, 1)
        ]
    return np.array(best[0][1], dtype=np.int32)


def assign(unary: Floats) -> Labels:
    """SciPy's assignment, which `Matching` is to agree with."""
    return np.asarray(linear_sum_assignment(unary, maximize=True)[1], dtype=np.int32)


matchings = next(kind for kind in KINDS if isinstance(kind.structure, Matching))
#: Every structure, also with forbidden labels; solvers of a user's; enumeration, whose pins are solved one by one.
ALL_KINDS = [
    *KINDS,
    *FORBIDDING,
    Kind(FromSolver(assign), unaries, matchings.definition, matchings.sizes),
    Kind(FromSolver(best_even_sum), unaries, BruteForce(has_even_sum), [size for size in SIZES if size[1] > 1]),
    Kind(BruteForce(), forests, BruteForce(), SIZES[:16]),
]


def reals(rng: Generator, make: Make, n_sites: int, n_labels: int) -> Potentials:
    return make(rng, n_sites, n_labels, False)


def integers(rng: Generator, make: Make, n_sites: int, n_labels: int) -> Potentials:
    """Small integers: ties."""
    return make(rng, n_sites, n_labels, True)


def tenths(rng: Generator, make: Make, n_sites: int, n_labels: int) -> Potentials:
    """Multiples of 0.1: ties that rounding hides, and tables that miss being attractive by a bit."""
    return multiplied(make(rng, n_sites, n_labels, True), 0.1, 0.1)


def eighths(rng: Generator, make: Make, n_sites: int, n_labels: int) -> Potentials:
    """Multiples of 1/8, in float32."""
    f = make(rng, n_sites, n_labels, True)
    tables = None if f.pairwise is None else (f.pairwise / 8).astype(np.float32)
    return Potentials((f.unary / 8).astype(np.float32), tables, f.edges if tables is not None else None)


def constants(rng: Generator, make: Make, n_sites: int, n_labels: int) -> Potentials:
    """All unary potentials, or all tables, the same: nothing but ties."""
    f = make(rng, n_sites, n_labels, True)
    return multiplied(f, 0.0, 1.0) if rng.random() < 0.5 else multiplied(f, 1.0, 0.0)


#: A way to fill an instance with numbers.
Numbers = Callable[[Generator, Make, int, int], Potentials]
NUMBERS: tuple[Numbers, ...] = (reals, integers, tenths, eighths, constants)


def multiplied(f: Potentials, unary: float, pairwise: float) -> Potentials:
    """The same with unary potentials, and tables, times a number."""
    own = np.where(np.isneginf(f.unary), -np.inf, unary * np.where(np.isneginf(f.unary), 0.0, f.unary))
    return Potentials.on(f.layout, own, None if f.pairwise is None else pairwise * f.pairwise)


def filled(make: Make, numbers: Numbers) -> Make:
    """A `Make` of `check_structure` whose numbers are of this kind."""
    return lambda rng, n_sites, n_labels, _: numbers(rng, make, n_sites, n_labels)


def with_magnitudes(rng: Generator, f: Potentials, low: float, high: float) -> Potentials:
    """Every row and every table times a power of ten between these exponents; most of them, the same."""

    def factors(n: int) -> Floats:
        common = rng.uniform(low, high)
        own = rng.uniform(low, high, n)
        return np.asarray(10.0 ** np.where(rng.random(n) < 0.3, own, common))

    unary = f.unary * factors(f.n_sites)[:, None]
    if f.pairwise is None:
        return Potentials.on(f.layout, unary)
    return Potentials.on(f.layout, unary, f.tables * factors(f.n_edges)[:, None, None])
