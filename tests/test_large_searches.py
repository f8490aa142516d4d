"""Pins of graphs too large to enumerate, whose searches reach whole regions: strong coupling."""

import numpy as np
import pytest

from perturbmap import BinaryGraph, Potentials, grid_edges, potts
from perturbmap.structures.base import PinnedOneByOne

SIDE = 14


def strong_grid(*, whole: bool, seed: int) -> Potentials:
    rng = np.random.default_rng(seed)
    edges, n = grid_edges(SIDE, SIDE), SIDE * SIDE
    if whole:  # many ties, and paths that fill several arcs at once
        return Potentials(rng.integers(-4, 5, (n, 2)), potts(rng.integers(0, 9, len(edges))), edges)
    return Potentials(rng.normal(0, 2, (n, 2)), potts(rng.uniform(0, 6, len(edges))), edges)


@pytest.mark.parametrize("whole", [True, False], ids=["whole numbers", "reals"])
@pytest.mark.parametrize("seed", range(3))
def test_pins_together_are_those_solved_one_by_one(whole: bool, seed: int) -> None:
    """Values, and without ties maximisers too, are those of a cut for each pin."""
    f = strong_grid(whole=whole, seed=seed)
    together, singly = BinaryGraph().pinned(f), PinnedOneByOne(BinaryGraph(), f, None, None)
    np.testing.assert_allclose(together.values, singly.values, rtol=1e-12)
    if not whole:
        weights = np.random.default_rng(seed).normal(size=f.unary.shape)
        ours, theirs = together.moments(weights), singly.moments(weights)
        np.testing.assert_allclose(ours.unary, theirs.unary, atol=1e-9)
        assert ours.pairwise is not None
        assert theirs.pairwise is not None
        np.testing.assert_allclose(ours.pairwise, theirs.pairwise, atol=1e-9)


def test_sets_that_flip_together_may_cross() -> None:
    """The sets of two pins may meet without one inside the other: they are no tree, as those of Gomory and Hu are."""
    f = strong_grid(whole=False, seed=0)
    pinned = BinaryGraph().pinned(f)
    flipped = np.zeros((f.n_sites, f.n_sites), dtype=bool)
    for d in range(f.n_sites):
        weights = np.zeros(f.unary.shape)
        weights[d, 1 - pinned.free[d]] = 1
        flipped[d] = pinned.moments(weights).unary.argmax(axis=1) != pinned.free
    both = (flipped[:, None] & flipped[None]).any(axis=2)
    outside = (flipped[:, None] & ~flipped[None]).any(axis=2)
    assert (both & outside & outside.T).any()
