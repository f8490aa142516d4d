"""Gibbs sampling of matchings by exchanges of labels, beside enumeration and permanents."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest

import perturbmap as pm
from perturbmap import Matching, Potentials
from perturbmap.inference import CONVERGING, particles
from perturbmap.inference.particles import run_group
from perturbmap.inference.sweeps import sweeps


def matchings(f: Potentials, given: list[int] | None) -> tuple[np.ndarray, np.ndarray]:
    """All matchings that have the given labels, and their probabilities."""
    y = np.array(list(permutations(range(f.n_labels), f.n_sites)), dtype=np.int32)
    if given is not None:
        y = y[((y == given) | (np.array(given) < 0)).all(axis=1)]
    scores = f.score(y)[:, 0]
    return y, np.exp(scores - np.logaddexp.reduce(scores))


def marginals(y: np.ndarray, p: np.ndarray, n_labels: int) -> np.ndarray:
    return np.asarray(np.einsum("m,mdk->dk", p, y[:, :, None] == np.arange(n_labels)))


@pytest.mark.parametrize("n_labels", [4, 6], ids=["as many labels as sites", "labels to spare"])
@pytest.mark.parametrize("given", [None, [-1, 2, -1, -1]], ids=["all free", "one given"])
def test_exchanges_leave_the_distribution_as_it_is(n_labels: int, given: list[int] | None) -> None:
    """From exact samples: where chains end, and the probabilities on the way, are those of the distribution."""
    rng = np.random.default_rng(0)
    f = Potentials(1.5 * rng.normal(size=(4, n_labels)))
    y, p = matchings(f, given)
    known = None if given is None else np.array(given, dtype=np.int32)
    n = 20_000
    starts = y[rng.choice(len(y), n, p=p)]
    ends, *averages = sweeps(Matching(2), f, known, starts, 0, 0, 1, 2)
    expected = marginals(y, p, n_labels)
    for q in averages:
        assert (np.abs(q.mean(axis=0) - expected) <= 4 * q.std(axis=0) / math.sqrt(n) + 1e-12).all()
    shares = (ends[:, None] == y).all(axis=2).mean(axis=0)
    assert shares.sum() == pytest.approx(1.0)  # all of them matchings, with the given labels
    often = n * p > 10  # the counts of the others are far from normal
    assert often.sum() > len(y) / 4
    assert (np.abs(shares - p) <= 4 * np.sqrt(p * (1 - p) / n))[often].all()
    assert (ends != starts).any()


def permanent(a: np.ndarray) -> float:
    """Ryser's formula."""
    n = len(a)
    chosen = [list(c) for size in range(1, n + 1) for c in combinations(range(n), size)]
    return float(sum((-1) ** (n - len(c)) * a[:, c].sum(axis=1).prod() for c in chosen))


def by_permanents(f: Potentials) -> np.ndarray:
    """Marginals of a matching of n sites to n labels."""
    a = np.exp(f.unary)
    minors = [
        [permanent(np.delete(np.delete(a, d, axis=0), k, axis=1)) for k in range(f.n_labels)]
        for d in range(f.n_sites)
    ]
    return np.asarray(a * np.array(minors) / permanent(a))


def test_chains_come_to_the_permanents_from_one_start() -> None:
    """All of them begin with the identity; after a hundred sweeps the mean probabilities are the true ones."""
    f = Potentials(np.random.default_rng(1).normal(size=(6, 6)))
    q = sweeps(Matching(), f, None, np.tile(np.arange(6), (200, 1)), 0, 0, 100, 100)[1]
    assert (np.abs(q.mean(axis=0) - by_permanents(f)) < 4 * q.std(axis=0) / math.sqrt(len(q))).all()


def test_sweeps_make_marginals_of_matchings_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the error of the particles alone, at least, over eight groups."""
    f = Potentials(np.random.default_rng(2).normal(size=(8, 8)))
    q = by_permanents(f)

    def error() -> float:
        return float(
            np.mean([np.abs(run_group(Matching(), f, None, 0, g, 64).marginals - q).mean() for g in range(8)])
        )

    with_sweeps = error()
    monkeypatch.setattr(particles, "_BURN", 0)
    monkeypatch.setattr(particles, "_KEPT", 1)
    assert with_sweeps < error() / 2


def test_marginals_of_matchings_hold_the_truth() -> None:
    """Those of eight sites lie within four standard errors of the ratios of permanents."""
    f = Potentials(np.random.default_rng(3).normal(size=(8, 8)))
    found = pm.marginals(Matching(), f, method=CONVERGING, rng=0)
    assert (np.abs(found.mean - by_permanents(f)) < 4 * found.standard_error).all()


def test_the_same_seed_gives_the_same_bits() -> None:
    """Whatever the threads, and in any batch."""
    rng = np.random.default_rng(4)
    f = Potentials.batch([Potentials(rng.normal(size=(n, 5))) for n in (5, 3)])
    starts = np.tile(np.array([0, 1, 2, 3, 4, 2, 1, 0]), (7, 1))
    first = sweeps(Matching(1), f, None, starts, 0, 0, 3, 5)
    for n in (2, 5):
        other = sweeps(Matching(n), f, None, starts, 0, 0, 3, 5)
        assert np.array_equal(other.labels, first.labels)
        assert np.array_equal(other.probabilities, first.probabilities)
        assert np.array_equal(other.shares, first.shares)
    assert np.array_equal(sweeps(Matching(), f[1], None, starts[:, 5:], 0, 0, 3, 5)[1], first[1][:, 5:])
