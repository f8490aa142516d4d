"""Pinned values along labels that are fixed site by site: those of cuts that are begun again."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import perturbmap as pm
from perturbmap import _core
from perturbmap.inference import particles
from perturbmap.inference.guesses import KeptGuesses, PinnedGuesses
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures import binary_graph
from perturbmap.structures.fixing import Fixing

ONE = pm.BinaryGraph(1)


def attractive(n: int, density: float, coupling: float, fields: float, rng: np.random.Generator) -> Potentials:
    """A random graph; of the pairs of sites, this share are edges."""
    pairs = np.argwhere(np.triu(rng.random((n, n)) < density, 1)).astype(np.int32)
    tables = pm.potts(coupling * rng.uniform(0, 2, len(pairs)))
    return Potentials(rng.normal(0, fields, (n, 2)), tables if len(pairs) else None, pairs)


def fixing_of(structure: pm.BinaryGraph, f: Potentials, given: Labels | None = None) -> Fixing:
    fixing = structure.fixing(f, given, n_rows=8)
    assert fixing is not None
    return fixing


def begun_again(f: Potentials, rows: Labels, site: int) -> Floats:
    """The same values by a cut for each row and copy."""
    return np.stack([ONE.pinned(f, given=row).values[:, site] for row in rows])


def walk(
    structure: pm.BinaryGraph, f: Potentials, given: Labels | None, order: NDArray[np.intp], rng: np.random.Generator
) -> list[tuple[Labels, int, Floats]]:
    """Fixes all sites in this order, at most six rows at a time: rows, site and values of each step."""
    fixing, steps = fixing_of(structure, f, given), []
    rows = np.full((1, f.n_sites), -1, dtype=np.int32) if given is None else given[None].astype(np.int32)
    for site in order.tolist():
        values = fixing.pin(site)
        steps.append((rows, site, values))
        possible = np.flatnonzero(np.isfinite(values).all(axis=1))
        chosen = rng.permutation(possible)[:6]
        parents, labels = np.divmod(chosen, 2)
        fixing.branch(parents, labels)
        rows = rows[parents]
        rows[:, site] = labels
    return steps


@pytest.mark.parametrize("coupling", [0.0, 0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("kind", ["free", "given", "forbidden", "tied"])
def test_values_are_those_of_cuts_that_are_begun_again(coupling: float, kind: str) -> None:
    """On random graphs of 2 to 40 sites, whatever was fixed before, with ties, given and forbidden labels."""
    for seed in range(6):
        rng = np.random.default_rng([seed, int(10 * coupling)])
        n = int(rng.integers(2, 41))
        f = attractive(n, min(1.0, 4 / n), coupling, 1.0, rng)
        if kind == "tied":
            f = Potentials(f.unary.round(), None if f.pairwise is None else f.pairwise.round(), f.edges)
            f = f.with_unary(np.stack([f.unary, -f.unary]))
        else:
            f = pm.perturb(f, pm.gumbel_noise(f, seed, 3))
        if kind == "forbidden":
            unary = f.unary.copy()
            unary[:, rng.permutation(n)[: n // 3], int(rng.integers(2))] = -np.inf
            f = f.with_unary(unary)
        given = np.where(rng.random(n) < 0.3, rng.integers(0, 2, n), -1).astype(np.int32) if kind == "given" else None
        order = rng.permutation(np.arange(n) if given is None else np.flatnonzero(given < 0))
        for rows, site, values in walk(ONE, f, given, order, rng):
            np.testing.assert_allclose(values, begun_again(f, rows, site), rtol=0, atol=1e-9 * (1 + coupling))


def test_a_labelling_that_is_fixed_throughout_has_its_score() -> None:
    """The last value of a walk is the score of what was fixed, also where edges are parallel or disagree."""
    rng = np.random.default_rng(0)
    edges = np.array([(0, 1), (1, 0), (1, 2), (2, 3), (3, 0), (0, 2)], dtype=np.int32)
    tables = rng.normal(size=(6, 2, 2))
    tables[:, 0, 0] += 5.0
    tables[1] = [[0.0, 1.0], [1.0, 0.0]]  # repulsive, but not together with the edge that is parallel to it
    f = Potentials(rng.normal(size=(2, 4, 2)), tables, edges)
    for rows, site, values in walk(ONE, f, None, np.array([2, 0, 3, 1]), rng)[-1:]:
        for row, both in zip(rows, values, strict=True):
            for label in (0, 1):
                y = row.copy()
                y[site] = label
                np.testing.assert_allclose(both[:, label], f.score(np.tile(y, (2, 1)))[:, 0], atol=1e-12)


def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(1)
    f = attractive(60, 0.08, 1.5, 1.0, rng)
    f = pm.perturb(f, pm.gumbel_noise(f, 0, 40))
    order = rng.permutation(60)[:20]
    one, four = (walk(pm.BinaryGraph(n), f, None, order, np.random.default_rng(2)) for n in (1, 4))
    for (_, _, a), (_, _, b) in zip(one, four, strict=True):
        assert a.tobytes() == b.tobytes()


def test_what_cannot_be_fixed_is_refused() -> None:
    """In the kernel, since it indexes by rows, sites and labels; nothing is changed then."""
    f = Potentials([[0.0, 1.0], [0.0, -np.inf]], pm.potts(1.0), [(0, 1)])
    cuts = _core.FixedCuts(f.to_core(None), 1)
    row, label = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int32)
    with pytest.raises(ValueError, match="pinned before"):
        cuts.branch(row, label, 1)
    values = np.empty((1, 1, 2))
    with pytest.raises(ValueError, match="no such site"):
        cuts.pin(2, values, 1)
    with pytest.raises(ValueError, match="wrong shape"):
        cuts.pin(0, np.empty((1, 2, 2)), 1)
    cuts.pin(1, values, 1)
    assert values[0, 0, 1] == -np.inf
    with pytest.raises(ValueError, match="not possible"):
        cuts.branch(row, label, 1)
    with pytest.raises(ValueError, match="no such row"):
        cuts.branch(row + 1, 0 * label, 1)
    with pytest.raises(ValueError, match="0 or 1"):
        cuts.branch(row, 2 * label, 1)
    with pytest.raises(ValueError, match="as many as parents"):
        cuts.branch(row, np.zeros(2, dtype=np.int32), 1)
    cuts.branch(row, 0 * label, 1)
    cuts.pin(0, values, 1)
    np.testing.assert_allclose(values[0, 0], [1.0, 1.0])
    two = Potentials.batch([f, f])
    with pytest.raises(ValueError, match="one example"):
        _core.FixedCuts(two.to_core(None), 1)


def test_exchanged_labels_cancel_what_noise_adds_to_a_difference_of_modes() -> None:
    """All zeros and all ones, with equal scores and hardly anything else: guesses are equal, whatever the draw."""
    f = Potentials(np.zeros((20, 2)), pm.potts(50.0), pm.grid_edges(4, 5))
    for group in range(5):
        kept = KeptGuesses.of(ONE, f, None, 0, group, n_particles=4)
        assert kept is not None
        zero, one = kept(np.full((1, 20), -1, dtype=np.int32), np.array([7]))[0, 0]
        assert abs(zero - one) < 1e-9


def test_guesses_are_those_of_pins_that_are_begun_again() -> None:
    """For the same perturbations: a guess does not depend on what is kept."""
    rng = np.random.default_rng(3)
    f = attractive(30, 0.15, 1.0, 1.0, rng)
    given = np.full(30, -1, dtype=np.int32)
    given[7] = 1
    kept = KeptGuesses.of(ONE, f, given, 5, 2, n_particles=4)
    assert kept is not None
    again = PinnedGuesses(ONE, f, 5, 2, n_particles=4)
    rows = given[None]
    for site, n in ((3, 2), (9, 4), (20, 4)):  # sites that are not asked for are fixed all the same
        parents, labels = np.divmod(rng.permutation(2 * len(rows))[:n], 2)
        kept.branch(site, parents, labels)
        rows = rows[parents]
        rows[:, site] = labels
    sites = np.array([12])
    np.testing.assert_allclose(kept(rows, sites), again(rows, sites), atol=1e-9)


@pytest.mark.parametrize("most_bytes", [0, 2**28], ids=["begun again", "kept"])
def test_z_is_unbiased_with_and_without_memory_for_cuts(most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 400 groups of four particles on a graph of which most sites are fixed, within four standard errors."""
    f = attractive(12, 0.4, 0.7, 1.0, np.random.default_rng(4))
    exact = pm.BruteForce().log_partition(f)[0][0]
    monkeypatch.setattr(binary_graph, "_MOST_BYTES", most_bytes)
    monkeypatch.setattr(particles, "_SMALL_TABLE", 4)
    assert (ONE.fixing(f, None, n_rows=4) is None) == (most_bytes == 0)
    ratios = np.exp([particles.run_group(ONE, f, None, 0, group, 4).log_z - exact for group in range(400)])
    assert ratios.std() > 1e-3
    assert abs(ratios.mean() - 1) <= 4 * ratios.std(ddof=1) / 20
