"""`Graph`: any graph, any number of labels, any tables."""

from __future__ import annotations

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.potentials import Floats, Labels
from perturbmap.testing import attractive_graphs, check_structure, forests, graphs
from perturbmap.testing.instances import SIZES, Make


def random_tables(kind: str, n_edges: int, n_labels: int, scale: float, rng: np.random.Generator) -> Floats:
    """Tables of one family: attraction, repulsion, both, or any numbers."""
    if kind == "any":
        return scale * rng.normal(size=(n_edges, n_labels, n_labels))
    signs = rng.choice({"attractive": [1.0], "repulsive": [-1.0], "mixed": [-1.0, 1.0]}[kind], n_edges)
    strengths: Floats = signs * rng.exponential(scale, n_edges)
    return strengths[:, None, None] * np.eye(n_labels)


def grid(kind: str, height: int, width: int, n_labels: int, scale: float, rng: np.random.Generator) -> pm.Potentials:
    edges = pm.grid_edges(height, width)
    return pm.Potentials(
        rng.normal(size=(height * width, n_labels)), random_tables(kind, len(edges), n_labels, scale, rng), edges
    )


def test_two_labels_that_attract_are_solved_as_a_cut_solves_them() -> None:
    """Values, bounds and all pins are those of `BinaryGraph`, and of enumeration."""
    rng = np.random.default_rng(0)
    f = pm.Potentials.batch([grid("attractive", 6, 7, 2, scale, rng) for scale in (0.3, 1.0, 3.0) for _ in range(10)])
    found = pm.Graph().maximise_with_bound(f)
    np.testing.assert_allclose(found.values, pm.BinaryGraph().maximise(f)[1], rtol=1e-12)
    np.testing.assert_allclose(pm.Graph().pinned(f).values, pm.BinaryGraph().pinned(f).values, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.bounds, found.values, rtol=1e-3)


@pytest.mark.parametrize("make", [forests, attractive_graphs])
def test_the_check_of_structures_passes(make: Make) -> None:
    """On forests, and where two labels attract each other, as on any graph (see the conformance tests)."""
    check_structure(pm.Graph(), make, sizes=[s for s in SIZES if make is forests or s[1] == 2])


def test_forests_are_solved_exactly_with_all_their_pins() -> None:
    """One of the moves is the whole forest."""
    rng = np.random.default_rng(1)
    f = pm.Potentials.batch([forests(rng, 6, 3, False) for _ in range(50)])
    np.testing.assert_allclose(pm.Graph().maximise(f)[1], pm.Tree().maximise(f)[1], rtol=1e-12)
    np.testing.assert_allclose(pm.Graph().pinned(f).values, pm.Tree().pinned(f).values, rtol=1e-12)
    np.testing.assert_allclose(pm.Graph().maximise_with_bound(f).bounds, pm.Tree().maximise(f)[1], rtol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0, 6.0])
def test_potts_tables_have_their_own_way_and_the_answer_of_any_others(scale: float) -> None:
    """A table that is one unit of rounding away takes the general way: labels, pins and moments are the same."""
    rng = np.random.default_rng(11)
    f = pm.Potentials.batch([grid("attractive", 8, 9, 6, scale, rng) for _ in range(4)])
    forbidden = rng.random(f.unary.shape) < 0.2
    forbidden[np.arange(f.n_sites), rng.integers(0, 6, f.n_sites)] = False
    f = f.with_unary(np.where(forbidden, -np.inf, f.unary))
    given = np.where(rng.random(f.n_sites) < 0.1, f.unary.argmax(axis=1), -1)
    tables = f.tables.copy()
    tables[:, 1, 1] = np.nextafter(tables[:, 1, 1], np.inf)
    general = pm.Potentials.trusted(f.layout, f.unary, tables)
    expected, found = pm.Graph().pinned(general, given=given), pm.Graph().pinned(f, given=given)
    np.testing.assert_array_equal(found.free, expected.free)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-12)
    weights = np.where(np.isfinite(expected.values), rng.normal(size=expected.values.shape), 0.0)
    for ours, theirs in zip(found.moments(weights), expected.moments(weights), strict=True):
        assert ours is not None
        assert theirs is not None
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("scale", [1, 4])
def test_pins_of_potts_tables_with_ties_and_masks(scale: int) -> None:
    """Small integers: values are those of the general way, and those of the labellings whose moments are given."""
    rng = np.random.default_rng(12)
    edges = pm.grid_edges(6, 7)
    for _ in range(20):
        tables = rng.integers(0, 3, len(edges))[:, None, None] * np.eye(5)
        f = pm.Potentials(scale * rng.integers(-2, 3, (42, 5)).astype(float), tables, edges)
        nearly = tables.copy()
        nearly[0, 1, 1] = np.nextafter(nearly[0, 1, 1], np.inf)
        found, expected = pm.Graph().pinned(f), pm.Graph().pinned(pm.Potentials.trusted(f.layout, f.unary, nearly))
        if (found.free == expected.free).all():
            np.testing.assert_allclose(found.values, expected.values, rtol=1e-12)
        weights = rng.random(found.values.shape)
        moments = found.moments(weights)
        assert moments.pairwise is not None
        score = (moments.unary * f.unary).sum() + (moments.pairwise * f.tables).sum()
        assert np.isclose(score, (weights * found.values).sum(), rtol=1e-12)
        wanted = rng.random(found.values.shape) < 0.05
        masked = pm.Graph().pinned(f, pins=wanted)
        np.testing.assert_allclose(masked.values[wanted], found.values[wanted], rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "gap", "gap_of_pins"), [("attractive", 0.02, 0.1), ("repulsive", 0.01, 0.3), ("any", 0.05, 0.8)]
)
def test_what_is_found_is_near_the_maximum(kind: str, gap: float, gap_of_pins: float) -> None:
    """Against enumeration on grids of 3 x 3 with three labels: the mean gaps, of numbers of size one."""
    rng = np.random.default_rng(2)
    f = pm.Potentials.batch([grid(kind, 3, 3, 3, 1.5, rng) for _ in range(20)])
    _, values, bounds = pm.Graph().maximise_with_bound(f)
    best = pm.BruteForce().maximise(f)[1]
    assert (values <= best + 1e-9).all()
    assert (bounds >= best - 1e-9).all()
    assert (best - values).mean() < gap
    assert (bounds - values < 1e-5).mean() > 0.7  # proved to be the maximum
    pins = pm.BruteForce().pinned(f).values - pm.Graph().pinned(f).values
    assert pins.min() > -1e-9
    assert pins.mean() < gap_of_pins


@pytest.mark.parametrize("kind", ["attractive", "repulsive", "mixed"])
def test_marginals_are_as_good_as_those_of_true_pins(kind: str) -> None:
    """Mean errors against enumeration, with the same noise; and much better than counting."""
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(6):
        f = grid(kind, 2, 3, 3, 0.7, rng)
        exact = pm.BruteForce().log_partition(f)[1].unary
        errors.append(
            [
                np.abs(pm.marginals(structure, f, method=method, n_perturbations=60, rng=0).mean - exact).mean()
                for structure, method in [
                    (pm.Graph(), pm.PINNED),
                    (pm.BruteForce(), pm.PINNED),
                    (pm.Graph(), pm.COUNTED),
                ]
            ]
        )
    ours, true, counted = np.mean(errors, axis=0)
    assert ours < 1.3 * true
    assert ours < 0.5 * counted


def test_the_bound_on_log_z_is_one() -> None:
    """It is made of upper bounds on the maxima, not of the scores that were found."""
    rng = np.random.default_rng(4)
    f = pm.Potentials.batch(
        [grid(kind, 3, 3, 3, 2.0, rng) for kind in ("repulsive", "mixed", "any") for _ in range(10)]
    )
    log_z = pm.BruteForce().log_partition(f)[0]
    bound = pm.log_partition_bound(pm.Graph(), f, n_perturbations=200, rng=0)
    assert (bound.mean > log_z - 4 * bound.standard_error).all()


def test_sums_and_marginals_that_converge() -> None:
    """They need nothing of the maximiser but that it proposes."""
    f = grid("mixed", 3, 3, 3, 1.5, np.random.default_rng(5))
    exact_z, exact = pm.BruteForce().log_partition(f)
    assert np.isclose(pm.log_partition(pm.Graph(), f).estimate.mean[0], exact_z[0], atol=1e-8)
    q = pm.marginals(pm.Graph(), f, method=pm.CONVERGING).mean
    np.testing.assert_allclose(q, exact.unary, atol=1e-8)


def test_given_labels_and_those_made_impossible_are_kept() -> None:
    """A large negative number keeps a label away where nothing gives it."""
    rng = np.random.default_rng(6)
    f = grid("any", 4, 5, 4, 1.0, rng)
    unary = f.unary.copy()
    unary[:, 2] = -1e6
    given = np.full(20, -1)
    given[[3, 7]] = [1, 2]
    labels = pm.Graph().argmax(f.with_unary(unary), given)
    assert labels[3] == 1
    assert labels[7] == 2
    assert (np.delete(labels, 7) != 2).all()


def test_a_thousand_labels_and_a_site_without_neighbours() -> None:
    """Extremes of size do no harm."""
    rng = np.random.default_rng(7)
    f = pm.Potentials(rng.normal(size=(3, 1000)), pm.potts(0.5, 1000), edges=[(0, 1)])
    np.testing.assert_allclose(pm.Graph().maximise(f)[1], pm.Tree().maximise(f)[1])
    alone = pm.Potentials(rng.normal(size=(4, 3)))
    np.testing.assert_allclose(pm.Graph().pinned(alone).values, pm.Tree().pinned(alone).values)
    assert pm.Graph().maximise(alone[:0])[0].shape == (0,)


def test_the_score_never_falls_with_the_effort() -> None:
    """And rises, on average, where the problem is hard; the same bits for any number of threads."""
    rng = np.random.default_rng(8)
    f = pm.Potentials.batch([grid("any", 5, 6, 4, 1.5, rng) for _ in range(10)])
    values = np.stack([pm.Graph(effort=effort).maximise(f)[1] for effort in (1, 3, 10, 30)])
    assert (np.diff(values, axis=0) >= 0).all()
    assert values[-1].mean() > values[0].mean()
    np.testing.assert_array_equal(pm.Graph(1, effort=30).argmax(f), pm.Graph(3, effort=30).argmax(f))
    pinned = pm.Graph(effort=30).pinned(f)
    np.testing.assert_array_equal(pinned.free, pm.Graph(effort=30).argmax(f))
    with pytest.raises(ValueError, match="effort must be an integer"):
        pm.Graph(effort=0).argmax(f)


@pytest.mark.parametrize("exponent", [-900, -200, 200])
def test_the_unit_of_the_potentials_plays_no_part(exponent: int) -> None:
    """Times a power of two, with ties everywhere: the same labels, and all values times it, bit by bit."""
    rng = np.random.default_rng(10)
    f = pm.Potentials.batch([graphs(rng, 5, 3, True) for _ in range(1000)])
    scaled = f.scaled(2.0**exponent)
    found, expected = (pm.Graph(effort=2).pinned(g) for g in (scaled, f))
    np.testing.assert_array_equal(found.free, expected.free)
    np.testing.assert_array_equal(found.values, 2.0**exponent * expected.values)
    bounds = [pm.Graph().maximise_with_bound(g).bounds for g in (scaled, f)]
    np.testing.assert_array_equal(bounds[0], 2.0**exponent * bounds[1])


def test_a_solver_with_edges_becomes_a_structure() -> None:
    """It is checked as every structure is; one that drops given labels is found out, and edges need ``pairwise``."""

    def listed(f: pm.Potentials, given: Labels | None) -> Labels:
        return pm.BruteForce().argmax(f, given)

    check_structure(pm.FromSolver(listed, pairwise=True), graphs, sizes=[(1, 2), (2, 3), (4, 2)], n_repeats=2)
    f = grid("mixed", 2, 2, 2, 1.0, np.random.default_rng(9))
    with pytest.raises(ValueError, match="pass pairwise=True"):
        pm.FromSolver(lambda unary: unary.argmax(axis=1)).argmax(f)
    with pytest.raises(pm.InfeasibleError, match="without the given labels"):
        pm.FromSolver(lambda f, given: np.zeros(4, dtype=int), pairwise=True).argmax(f, [1, -1, -1, -1])
