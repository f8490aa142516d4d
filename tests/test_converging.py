"""log Z in an interval, and marginals and samples of the Gibbs distribution: exact sums, and particles."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap import (
    BinaryGraph,
    BruteForce,
    Chain,
    FromSolver,
    Graph,
    Matching,
    Potentials,
    Tree,
    grid_edges,
    potts,
)
from perturbmap.inference import CONVERGING, Converging, NotConvergedWarning, converging, particles
from perturbmap.inference.elimination import cut_sites, sample_out, sum_out
from perturbmap.inference.particles import keep, run_group
from perturbmap.inference.sweeps import sweeps
from perturbmap.inference.upper_bound import upper_bound
from perturbmap.structures.base import Maximum
from perturbmap.structures.fixing import FixedCuts


def grid(height: int, width: int, coupling: float, fields: float, rng: np.random.Generator) -> Potentials:
    edges = grid_edges(height, width)
    unary = np.stack([np.zeros(height * width), fields * rng.normal(size=height * width)], axis=1)
    return Potentials(unary, potts(coupling * rng.uniform(0.5, 1.5, len(edges))), edges)


def repulsive_grid(height: int, width: int, scale: float, rng: np.random.Generator) -> Potentials:
    """Three labels, of which neighbours would rather not have the same."""
    edges = grid_edges(height, width)
    unary = rng.normal(size=(height * width, 3))
    return Potentials(unary, -potts(rng.uniform(0.5 * scale, 1.5 * scale, len(edges)), 3), edges)


def any_grid(height: int, width: int, scale: float, rng: np.random.Generator) -> Potentials:
    """Three labels, and tables of any numbers."""
    edges = grid_edges(height, width)
    return Potentials(rng.normal(size=(height * width, 3)), scale * rng.normal(size=(len(edges), 3, 3)), edges)


@pytest.fixture
def by_particles_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is summed exactly but forests, so that small graphs try the particles."""
    monkeypatch.setattr(converging, "exact_answers", lambda structure, f, given: [None] * len(f))
    monkeypatch.setattr(particles, "_SMALL_TABLE", 4)


# Exact sums.


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("has_given", [False, True])
def test_sums_over_graphs_are_those_of_enumeration(n_labels: int, is_shared: bool, has_given: bool) -> None:
    """Log Z and marginals of graphs with cycles, repelling tables, parallel edges and sites that stand alone."""
    rng = np.random.default_rng(4)
    examples, parts = [], []
    for n in (1, 2, 5, 7):
        edges = rng.integers(0, n, (2 * n, 2))
        edges = edges[edges[:, 0] != edges[:, 1]]
        shape = (n_labels, n_labels) if is_shared else (len(edges), n_labels, n_labels)
        examples.append(Potentials(2 * rng.normal(size=(n, n_labels)), rng.normal(size=shape), edges))
        parts.append(np.where(rng.random(n) < 0.3, rng.integers(0, n_labels, n), -1))
    f, given = Potentials.batch(examples), np.concatenate(parts).astype(np.int32) if has_given else None
    values, marginals = sum_out(f, given, 2)
    expected, moments = BruteForce().log_partition(f, given)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(marginals, moments.unary, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e4])
def test_sums_hold_for_weak_and_for_huge_potentials(scale: float) -> None:
    f = grid(3, 4, scale, scale, np.random.default_rng(0))
    values, marginals = sum_out(f, None, 1)
    expected, moments = BruteForce().log_partition(f)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(marginals, moments.unary, atol=1e-9)


def transfer_matrices(f: Potentials, height: int, width: int) -> float:
    """Log Z of a grid, column by column: an independent way."""
    tables = {tuple(edge): table for edge, table in zip(f.edges.tolist(), f.tables, strict=True)}
    bits = (np.arange(2**height)[:, None] >> np.arange(height)) & 1

    def column(c: int) -> np.ndarray:
        total = sum(f.unary[r * width + c, bits[:, r]] for r in range(height))
        for r in range(height - 1):
            total = total + tables[r * width + c, (r + 1) * width + c][bits[:, r], bits[:, r + 1]]
        return np.asarray(total)

    state = column(0)
    for c in range(1, width):
        between = sum(
            tables[r * width + c - 1, r * width + c][bits[:, None, r], bits[None, :, r]] for r in range(height)
        )
        state = np.logaddexp.reduce(state[:, None] + between, axis=0) + column(c)
    return float(np.logaddexp.reduce(state))


def test_a_long_grid_is_exact_and_a_wide_one_is_not() -> None:
    rng = np.random.default_rng(1)
    f = grid(7, 30, 1.5, 1.0, rng)
    found = pm.log_partition(BinaryGraph(), f)
    assert found.is_exact.all()
    assert found.estimate.mean[0] == pytest.approx(transfer_matrices(f, 7, 30), rel=1e-12)
    assert found.lower.mean == found.upper.mean == found.estimate.mean
    assert np.isnan(sum_out(grid(40, 40, 1.0, 1.0, rng), None, 1).values).all()


def test_a_graph_that_given_labels_make_a_forest_is_exact() -> None:
    """However large it is."""
    side = 60
    f = grid(side, side, 1.0, 1.0, np.random.default_rng(2))
    given = np.full((side, side), -1)
    given[::2, 1:] = 0
    assert pm.log_partition(BinaryGraph(), f, given=given.ravel()).is_exact.all()


def test_a_chain_and_a_tree_are_summed_by_themselves() -> None:
    rng = np.random.default_rng(3)
    f = Potentials.batch([Potentials(rng.normal(size=(n, 3)), rng.normal(size=(3, 3))) for n in (4, 9)])
    for structure in (Chain(), Tree(), BruteForce()):
        found = pm.log_partition(structure, f)
        np.testing.assert_allclose(found.estimate.mean, Chain().log_partition(f)[0])
        np.testing.assert_allclose(found.marginals.mean, Chain().log_partition(f)[1].unary)


# Particles.


@pytest.mark.usefixtures("by_particles_alone")
@pytest.mark.parametrize("structure", [BinaryGraph(), Matching(), Graph()], ids=repr)
def test_the_estimate_of_z_is_unbiased(structure: pm.Structure) -> None:
    """The mean of thousands of tiny groups is Z, within four standard errors."""
    rng = np.random.default_rng(5)
    if isinstance(structure, Matching):
        f = Potentials(rng.normal(size=(3, 4)))
        y = np.array([list(p) for p in np.ndindex(4, 4, 4) if len(set(p)) == 3], dtype=np.int32)
        log_z = float(np.logaddexp.reduce(f.score(y)[:, 0]))
    else:
        f = grid(3, 3, 2.0, 1.0, rng) if isinstance(structure, BinaryGraph) else repulsive_grid(3, 3, 2.0, rng)
        log_z = float(BruteForce().log_partition(f)[0][0])
    ratios = np.exp([run_group(structure, f, None, 1, group, 3).log_z - log_z for group in range(2000)])
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / math.sqrt(len(ratios))
    assert ratios.std() > 0


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_what_is_kept_stands_for_what_is_left_out(spread: float) -> None:
    """Weights over their probabilities have the mean that all have, so many are kept, and the largest for certain."""
    log_weights = spread * np.random.default_rng(20).normal(size=30)
    rng = np.random.default_rng(21)
    sums = np.zeros((2000, 30))
    for row in sums:
        kept, log_inverse = keep(log_weights, 8, rng)
        assert len(np.unique(kept)) == len(kept) == 8
        row[kept] = np.exp(log_inverse)
    spread_of_means = sums.std(axis=0) / math.sqrt(len(sums))
    never = (sums == 0).all(axis=0)  # too unlikely to be met
    assert (np.abs(sums.mean(axis=0) - 1)[~never] <= 4 * spread_of_means[~never] + 1e-12).mean() > 0.9
    assert np.exp(log_weights[never]).sum() < 1e-2 * np.exp(log_weights).sum()
    assert (sums[:, log_weights.argmax()] >= 1 - 1e-12).all() or spread < 1
    everything, nothing = keep(log_weights, 30, rng)
    assert len(everything) == 30
    assert not nothing.any()


@pytest.mark.usefixtures("by_particles_alone")
def test_nothing_is_guessed_while_all_branches_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many particles as labellings of the sites that are fixed, no pin is needed, and the sum is exact."""
    f = grid(3, 4, 2.0, 1.0, np.random.default_rng(8))
    monkeypatch.setattr(FixedCuts, "pin", None)
    group = run_group(BinaryGraph(), f, None, 0, 0, 2**12)
    (log_z,), _ = sum_out(f, None, 1)
    assert group.log_z == pytest.approx(log_z)
    with pytest.raises(TypeError):
        run_group(BinaryGraph(), f, None, 0, 0, 4)


@pytest.mark.usefixtures("by_particles_alone")
def test_the_interval_of_a_single_group_reaches_to_the_upper_bound() -> None:
    """Below, it allows for an estimate that is too high by a factor of 40; over 60 grids it holds all but a few."""
    rng = np.random.default_rng(9)
    n_held = 0
    for i in range(60):
        f = grid(4, 4, rng.choice([0.5, 2.0]), 1.0, rng)
        (log_z,), _ = sum_out(f, None, 1)
        found = pm.log_partition(BinaryGraph(), f, n_particles=4, n_groups=1, n_perturbations=40, rng=i)
        low, high = found.interval[0]
        assert low == pytest.approx(found.estimate.mean[0] - math.log(40))
        assert high == pytest.approx(found.upper.mean[0] + 1.96 * found.upper.standard_error[0], abs=1e-3)
        n_held += low <= log_z <= high
    assert n_held >= 57


@pytest.mark.slow
@pytest.mark.usefixtures("by_particles_alone")
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Over 200 grids, weakly and strongly coupled: 93 % at least, of intervals of 95 %; bounds on their own sides."""
    rng = np.random.default_rng(6)
    n_held, n_below, n_above, standardised = 0, 0, 0, []
    for i in range(200):
        f = grid(4, 4, rng.choice([0.5, 1.0, 2.0, 3.0]), rng.choice([1.0, 3.0]), rng)
        (log_z,), q = sum_out(f, None, 1)
        found = pm.log_partition(BinaryGraph(), f, n_particles=8, n_groups=8, n_perturbations=40, rng=i)
        low, high = found.interval[0]
        n_held += low <= log_z <= high
        n_below += found.lower.mean[0] - 3 * found.lower.standard_error[0] < log_z + 1e-9
        n_above += found.upper.mean[0] + 3 * found.upper.standard_error[0] > log_z - 1e-9
        error = np.abs(found.marginals.mean - q).mean()
        standardised.append(error / found.marginals.standard_error.mean())
    assert n_held >= 0.93 * 200
    assert n_below > 0.97 * 200
    assert n_above > 0.97 * 200
    assert np.mean(standardised) < 1.2


@pytest.mark.slow
def test_modes_that_gibbs_sampling_does_not_find_are_weighed() -> None:
    """A grid of strong coupling, too wide to be summed: its log Z is known by transfer matrices."""
    f = grid(14, 20, 3.0, 1.0, np.random.default_rng(7))
    log_z, q = converging_reference(f)
    found = Converging(32, 4).answers(BinaryGraph(), f, None, 0, wants_log_z=True)[0]
    assert found.log_z == pytest.approx(log_z, abs=0.3)
    assert np.abs(found.marginals - q).mean() < 0.02


def converging_reference(f: Potentials) -> tuple[float, np.ndarray]:
    values, q = sum_out(f, None, 2, max_entries=2**26)
    assert np.isfinite(values[0])
    return float(values[0]), q


@pytest.mark.usefixtures("by_particles_alone")
def test_marginals_converge() -> None:
    """Ten times the particles, and the error is a fraction; PINNED stays where it is."""
    f = grid(4, 4, 1.5, 1.0, np.random.default_rng(8))
    q = BruteForce().log_partition(f)[1].unary
    few, many = (
        np.abs(pm.marginals(BinaryGraph(), f, method=Converging(n, 4), rng=0).mean - q).mean() for n in (8, 256)
    )
    pinned = np.abs(pm.marginals(BinaryGraph(), f, n_perturbations=1000, rng=0).mean - q).mean()
    assert many < 0.01 < pinned
    assert many < few


def permanent(a: np.ndarray) -> float:
    """Ryser's formula."""
    n = len(a)
    chosen = [list(c) for size in range(1, n + 1) for c in combinations(range(n), size)]
    return float(sum((-1) ** (n - len(c)) * a[:, c].sum(axis=1).prod() for c in chosen))


@pytest.mark.parametrize("n", [1, 4, 8])
def test_matchings_have_the_permanent_for_their_sum(n: int) -> None:
    f = Potentials(np.random.default_rng(n).normal(size=(n, n)))
    found = pm.log_partition(Matching(), f, rng=0)
    low, high = found.interval[0] + [-1e-9, 1e-9]
    assert low <= math.log(permanent(np.exp(f.unary))) <= high
    if n == 1:
        return
    rest = np.delete(f.unary[1:], 0, axis=1)
    p = math.exp(f.unary[0, 0]) * permanent(np.exp(rest)) / permanent(np.exp(f.unary))
    assert abs(found.marginals.mean[0, 0] - p) < 4 * found.marginals.standard_error[0, 0]


def test_a_solver_of_the_users_is_right_too() -> None:
    """Without compiled pins, and with labellings that are ruled out: exactly two ones."""

    def best_pair(unary: np.ndarray) -> np.ndarray:
        labels = np.zeros(len(unary), dtype=int)
        labels[np.argsort(unary[:, 0] - unary[:, 1], kind="stable")[:2]] = 1
        return labels

    f = Potentials(np.random.default_rng(9).normal(size=(4, 2)))
    y = np.array([p for p in np.ndindex(2, 2, 2, 2) if sum(p) == 2], dtype=np.int32)
    log_z = float(np.logaddexp.reduce(f.score(y)[:, 0]))
    found = pm.log_partition(FromSolver(best_pair), f, n_particles=32, n_groups=4, n_perturbations=20, rng=0)
    low, high = found.interval[0]
    assert low <= log_z <= high


@pytest.mark.usefixtures("by_particles_alone")
@pytest.mark.parametrize("make", [repulsive_grid, any_grid])
@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize("has_given", [False, True])
def test_any_graph_has_the_sums_of_enumeration(
    make: Callable[..., Potentials], scale: float, has_given: bool
) -> None:
    """Particles whose guesses come from approximate pins: all within four standard errors, bounds on their sides."""
    f = make(4, 4, scale, np.random.default_rng(30))
    given = np.where(np.arange(16) == 5, 1, -1).astype(np.int32) if has_given else None
    (log_z,), q = sum_out(f, given, 1)
    found = pm.log_partition(Graph(), f, given=given, n_particles=8, rng=0)
    assert not found.is_exact.any()
    assert abs(found.estimate.mean[0] - log_z) < 4 * found.estimate.standard_error[0] < 0.2
    assert (np.abs(found.marginals.mean - q) <= 4 * found.marginals.standard_error + 1e-12).all()
    assert found.lower.mean[0] - 4 * found.lower.standard_error[0] < log_z
    assert log_z - 4 * found.upper.standard_error[0] < found.upper.mean[0] < log_z + 5


def test_a_graph_too_wide_to_be_summed_is_answered_by_particles() -> None:
    """With the limits that users have: a grid of 12 x 12 whose upper bound is finite, and above the lower one."""
    f = repulsive_grid(12, 12, 0.5, np.random.default_rng(31))
    assert np.isnan(sum_out(f, None, 1).values[0])
    found = pm.log_partition(Graph(), f, n_particles=8, n_groups=2, n_perturbations=8, rng=0)
    assert found.lower.mean[0] < found.upper.mean[0] < np.inf
    np.testing.assert_allclose(found.marginals.mean.sum(axis=1), 1.0)


class Lazy(pm.Structure):
    """Finds no good labelling, but knows the maximum."""

    is_exact = False

    def maximise(self, f: Potentials, given: Any = None) -> tuple[Any, Any]:
        labels = np.zeros(f.unary.shape[:-1], dtype=np.int32)
        if given is not None:
            labels[...] = np.maximum(given, 0)
        return labels, f.score(labels)

    def maximise_with_bound(self, f: Potentials, given: Any = None) -> Maximum:
        return Maximum(*self.maximise(f, given), BruteForce().maximise(f, given)[1])


@pytest.mark.parametrize("n_conditioned", [1, 2])
def test_upper_bounds_of_approximate_maxima_are_made_of_bounds(n_conditioned: int) -> None:
    """Values alone would give less than log Z."""
    f = any_grid(2, 3, 2.0, np.random.default_rng(32))
    log_z = float(BruteForce().log_partition(f)[0][0])
    upper, error = upper_bound(Lazy(), f, None, 200, 0, n_conditioned)
    exact, exact_error = upper_bound(BruteForce(), f, None, 200, 0, n_conditioned)
    assert upper > log_z - 4 * error
    assert abs(upper - exact) < 4 * math.hypot(error, exact_error) + 1.0  # other sites may have been chosen


def test_an_approximate_solver_gives_no_upper_bound() -> None:
    """Its values may lie below the maximum."""
    f = Potentials(np.random.default_rng(9).normal(size=(3, 2)))
    lazy = FromSolver(lambda unary: np.zeros(len(unary), dtype=int), is_exact=False)
    assert pm.log_partition(lazy, f, n_particles=4, n_groups=2, rng=0).upper.mean[0] == np.inf


def test_tables_of_the_rest_are_small_all_together() -> None:
    """A grid so large that the width of one table alone would not do; forged labels do not reach the core."""
    f = grid(100, 100, 1.0, 1.0, np.random.default_rng(18))
    given = np.full(f.n_sites, -1, dtype=np.int32)
    given[cut_sites(f, None, 13)] = 0
    assert np.isfinite(sum_out(f, given, 2).values[0])
    with pytest.raises(ValueError, match="too large to be summed over"):
        sample_out(f, None, np.full((1, f.n_sites), 0.5), 1)
    with pytest.raises(ValueError, match="labels must all be labels"):
        sweeps(BinaryGraph(), f, None, np.full((1, f.n_sites), -1), 0, 0, 1, 1)


# What a user meets.


@pytest.mark.usefixtures("by_particles_alone")
def test_the_same_seed_gives_the_same_bits() -> None:
    """Whatever the threads, and whether an example is alone or in a batch."""
    rng = np.random.default_rng(10)
    f = Potentials.batch([grid(3, 4, 1.0, 1.0, rng), grid(4, 3, 2.0, 1.0, rng)])
    results = [pm.log_partition(BinaryGraph(n), f, n_particles=16, n_groups=2, rng=3) for n in (1, 2, 5)]
    for other in results[1:]:
        assert np.array_equal(results[0].estimate.mean, other.estimate.mean)
        assert np.array_equal(results[0].marginals.mean, other.marginals.mean)
        assert np.array_equal(results[0].upper.mean, other.upper.mean)
    alone = pm.log_partition(BinaryGraph(), f[1], n_particles=16, n_groups=2, rng=3)
    assert alone.estimate.mean[0] == results[0].estimate.mean[1]


@pytest.mark.usefixtures("by_particles_alone")
def test_given_labels_are_kept_and_counted() -> None:
    f = grid(3, 3, 1.0, 1.0, np.random.default_rng(11))
    given = [1, -1, -1, -1, 0, -1, -1, -1, 1]
    found = pm.log_partition(BinaryGraph(), f, given=given, n_particles=64, n_groups=8, rng=0)
    expected, moments = BruteForce().log_partition(f, given)
    low, high = found.interval[0]
    assert low <= expected[0] <= high
    np.testing.assert_allclose(found.marginals.mean, moments.unary, atol=0.03)
    assert found.marginals.mean[[0, 4, 8], [1, 0, 1]].tolist() == [1.0, 1.0, 1.0]
    assert not found.marginals.standard_error[[0, 4, 8]].any()
    with pytest.raises(ValueError, match="BinaryGraph needs supermodular"):
        pm.log_partition(BinaryGraph(), Potentials(f.unary, -f.tables, f.edges))


@pytest.mark.parametrize(
    ("structure", "f", "given", "log_z"),
    [
        pytest.param(BinaryGraph(), lambda: Potentials([[0.0, 0.0]]), None, math.log(2), id="one site"),
        pytest.param(BinaryGraph(), lambda: Potentials([[1.0, 5.0]]), [0], 1.0, id="nothing is free"),
        pytest.param(
            Matching(), lambda: Potentials([[1.0, 5.0], [2.0, 0.0]]), [0, 1], 1.0, id="one matching is left"
        ),
        pytest.param(BinaryGraph(), lambda: Potentials(np.zeros((5, 2))), None, math.log(32), id="no edges"),
        pytest.param(Matching(), lambda: Potentials(np.zeros((0, 2))), None, 0.0, id="no sites"),
    ],
)
def test_what_hardly_needs_a_sum(
    structure: pm.Structure, f: Callable[[], Potentials], given: list[int] | None, log_z: float
) -> None:
    found = pm.log_partition(structure, f(), given=given)
    assert found.is_exact.all()
    assert found.estimate.mean[0] == pytest.approx(log_z)
    empty = pm.log_partition(structure, f()[:0])
    assert empty.estimate.mean.shape == (0,)
    assert empty.marginals.mean.shape == (0, 2)


def test_what_is_too_large_is_refused_or_ends_in_time() -> None:
    """A hundred thousand sites: an error that says what to use instead, not an hour."""
    rng = np.random.default_rng(12)
    with pytest.raises(ValueError, match=r"too large for 64 particles\. PINNED marginals and log_partition_bound"):
        pm.log_partition(BinaryGraph(), grid(316, 317, 1.0, 1.0, rng))
    with pytest.raises(ValueError, match=r"not one group of 64 labellings .* after max_seconds=0\.01"):
        pm.log_partition(BinaryGraph(), grid(25, 25, 1.0, 1.0, rng), max_seconds=0.01)


@pytest.mark.usefixtures("by_particles_alone")
def test_it_goes_on_until_it_is_accurate_and_says_where_it_is_not() -> None:
    f = grid(3, 4, 1.0, 1.0, np.random.default_rng(13))
    seen: list[tuple[int, float]] = []
    few = pm.log_partition(BinaryGraph(), f, n_particles=16, n_groups=2, rng=0)
    assert few.estimate.standard_error[0] > 0.02
    found = pm.log_partition(
        BinaryGraph(), f, n_particles=16, n_groups=2, tolerance=0.02, callback=lambda n, e: seen.append((n, e)), rng=0
    )
    assert found.estimate.standard_error[0] <= 0.02
    assert [n for n, _ in seen] == list(range(1, len(seen) + 1))
    assert len(seen) > 2
    with pytest.warns(NotConvergedWarning, match="short of tolerance=1e-09: allow more time"):
        pm.log_partition(BinaryGraph(), f, n_particles=16, tolerance=1e-9, max_seconds=0.5, rng=0)
    stopped = Converging(16, 8, callback=lambda n, _: n == 3).answers(BinaryGraph(), f, None, 0, wants_log_z=True)
    assert len(stopped[0].groups) == 3
    wrong = (("tolerance", 0), ("max_seconds", -1), ("n_particles", 0), ("n_groups", 1.5), ("n_perturbations", -1))
    for name, value in wrong:
        with pytest.raises(ValueError, match=f"{name} must be"):
            pm.log_partition(BinaryGraph(), f, **{name: value})  # type: ignore[arg-type]


def test_samples_are_those_of_the_gibbs_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact ones, and particles; perturb-and-MAP samples are others."""
    f = grid(2, 3, 1.5, 0.5, np.random.default_rng(14))
    everything = np.array(list(np.ndindex(*[2] * 6)), dtype=np.int32)
    p = np.exp(f.score(everything)[:, 0] - BruteForce().log_partition(f)[0][0])

    def far(y: np.ndarray) -> float:
        counts = np.bincount(y @ (2 ** np.arange(6)[::-1]), minlength=64)
        return float(np.abs(counts / len(y) - p).sum() / 2)

    n = 4000
    assert far(pm.sample(BinaryGraph(), f, n, method=CONVERGING, rng=0)) < 0.05
    assert far(pm.sample(BruteForce(), f, n, method=CONVERGING, rng=0)) < 0.05
    assert far(pm.sample(BinaryGraph(), f, n, rng=0)) > 0.08
    monkeypatch.setattr(converging, "exact_answers", lambda structure, f, given: [None] * len(f))
    assert far(pm.sample(BinaryGraph(), f, n, method=CONVERGING, rng=0)) < 0.05
    with pytest.raises(TypeError, match="method must be EXACT or CONVERGING"):
        pm.sample(BinaryGraph(), f, method=pm.PINNED)  # type: ignore[arg-type]


def test_gibbs_sweeps_leave_the_distribution_as_it_is() -> None:
    """Of any number of labels and any tables: from exact samples, probabilities and shares are the marginals."""
    rng = np.random.default_rng(15)
    f = Potentials(
        rng.normal(size=(5, 3)), rng.normal(size=(6, 3, 3)), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)]
    )
    starts = pm.sample(BruteForce(), f, 500, method=CONVERGING, rng=0)
    ends, p, shares = sweeps(Tree(2), f, None, starts, 1, 0, 0, 20)
    expected = BruteForce().log_partition(f)[1].unary
    for q in (p, shares):
        error = q.mean(axis=0) - expected
        assert np.abs(error).max() < 4 * q.std(axis=0).max() / math.sqrt(len(q))
    assert p.std() < shares.std()
    assert not np.array_equal(starts, ends)
    alone = sweeps(Tree(1), f, None, starts[7:9], 1, 7, 0, 20)[1]
    assert np.array_equal(alone, p[7:9])


def test_the_upper_bound_is_tighter_and_less_noisy_than_a_g() -> None:
    f = grid(5, 8, 2.0, 1.0, np.random.default_rng(16))
    log_z = sum_out(f, None, 1).values[0]
    ours = np.array([upper_bound(BinaryGraph(), f, None, 100, seed) for seed in range(20)])
    plain = np.array(
        [pm.log_partition_bound(BinaryGraph(), f, n_perturbations=100, rng=s).mean[0] for s in range(20)]
    )
    assert log_z < ours[:, 0].mean() < plain.mean()
    assert ours[:, 0].std() < plain.std()
    assert ours[:, 1].mean() == pytest.approx(ours[:, 0].std(), rel=0.6)


@pytest.mark.parametrize("n", [16, 50])
def test_the_error_of_the_upper_bound_is_no_less_than_it_says(n: int) -> None:
    """Two standard errors hold the mean of 300 runs in nine of ten; one is at most twice what it should be."""
    f = grid(5, 8, 1.0, 1.0, np.random.default_rng(40))
    bounds, errors = np.array([upper_bound(BinaryGraph(1), f, None, n, seed) for seed in range(300)]).T
    assert (np.abs(bounds - bounds.mean()) <= 2 * errors).mean() > 0.9
    assert errors.mean() < 2 * bounds.std()


def test_forbidden_labels_add_nothing_to_the_upper_bound() -> None:
    """Neither at the site that is summed over, nor at those it is conditioned on."""
    unary = np.random.default_rng(41).normal(size=(6, 2))
    unary[[0, 3], 1] = -np.inf
    f = Potentials(unary, pm.potts(1.0), grid_edges(2, 3))
    log_z = BruteForce().log_partition(f)[0][0]
    assert upper_bound(BinaryGraph(), f, None, 16, 0, 6) == pytest.approx((log_z, 0.0))
    bounds = np.array([upper_bound(BinaryGraph(), f, None, 50, seed, 2) for seed in range(20)])
    assert bounds[:, 0].mean() > log_z - 4 * bounds[:, 0].std() / math.sqrt(20)
    assert np.isfinite(bounds).all()


def test_layers_and_estimators_know_the_method() -> None:
    """Marginals of a fitted graph model by it; a layer is told that there is no gradient."""
    rng = np.random.default_rng(17)
    edges = grid_edges(3, 3)
    x = [pm.Example(rng.normal(size=(9, 2)), edges=edges) for _ in range(6)]
    y = [(one.features[:, 0] > 0).astype(int) for one in x]
    p = pm.StructuredPredictor(pm.GraphModel(), BinaryGraph(), random_state=0).fit(x, y)
    q = p.predict_marginals(x, method=CONVERGING)
    assert all(np.allclose(one.sum(axis=1), 1) for one in q)
    with pytest.raises(ValueError, match="CONVERGING has no gradient"):
        CONVERGING.with_pullback(BinaryGraph(), grid(2, 2, 1.0, 1.0, rng), None)


@pytest.mark.parametrize("structure", [BinaryGraph(), Matching()], ids=repr)
def test_the_upper_bound_is_tighter_for_every_site_it_is_conditioned_on(structure: pm.Structure) -> None:
    """On average over instances and noise it stays above log Z, and comes nearer; all sites of a graph give log Z."""
    gaps: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        if isinstance(structure, Matching):
            f = Potentials(2 * rng.normal(size=(5, 5)))
            log_z = math.log(permanent(np.exp(f.unary)))
        else:
            f = grid(3, 4, 2.0, 1.0, rng)
            log_z = float(BruteForce().log_partition(f)[0][0])
        for n, found in gaps.items():
            found.append(upper_bound(structure, f, None, 60, seed, n)[0] - log_z)
    one, two, four = (np.mean(gaps[n]) for n in (1, 2, 4))
    assert one > two > four
    assert four > -4 * np.std(gaps[4]) / math.sqrt(12)
    assert four < one / 2


def test_a_bound_given_all_sites_is_log_z() -> None:
    """Nothing is left to perturb; there may be fewer free sites than are asked for, and not too many bounds."""
    f = grid(2, 3, 2.0, 1.0, np.random.default_rng(0))
    given = np.array([1, -1, -1, 0, -1, -1], dtype=np.int32)
    log_z = BruteForce().log_partition(f, given)[0][0]
    assert upper_bound(BinaryGraph(), f, given, 4, 0, 9) == pytest.approx((log_z, 0.0))
    with pytest.raises(ValueError, match=r"n_conditioned must leave at most 1,024 bounds to combine, but 12 sites"):
        pm.log_partition(BinaryGraph(), f, n_conditioned=12)
