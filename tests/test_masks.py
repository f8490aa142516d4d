"""Masks of pins: what is not asked for is not there, and what is asked for does not change."""

from __future__ import annotations

import numpy as np
import pytest

from perturbmap import Matching, Moments, Potentials, gumbel_noise, perturb
from perturbmap.potentials import Floats, Labels, Mask
from perturbmap.structures import Structure

from .instances import KINDS, Kind, n_labels_of


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: repr(kind.structure))
@pytest.mark.parametrize("share", [0.0, 0.003, 0.05, 0.5, 1.0])
def test_masked_pins_of_larger_examples_are_those_without_a_mask(kind: Kind, share: float) -> None:
    """Where most of the work can be left out too: few pins of many, and perturbed copies that share a mask."""
    rng = np.random.default_rng(int(1000 * share))
    n_labels = n_labels_of(kind.structure, 25 if isinstance(kind.structure, Matching) else 5)
    batch = Potentials.batch([kind.make(rng, int(n), n_labels, False) for n in rng.integers(1, 25, 20)])
    f = perturb(batch, gumbel_noise(batch, seed=1, n_draws=3))
    mask = rng.random(f.unary.shape[1:]) < share
    assert_masked_pins_agree(kind.structure, f, mask, None)
    labels = kind.structure.argmax(batch)
    given = np.where(rng.random(f.n_sites) < 0.35, labels, -1).astype(np.int32)
    assert_masked_pins_agree(kind.structure, f, mask, given)


def assert_masked_pins_agree(structure: Structure, f: Potentials, mask: Mask, given: Labels | None) -> None:
    """Wanted pins, and those that the free maximiser satisfies, are as without a mask; all others are NaN."""
    everything = structure.pinned(f, given=given)
    some = structure.pinned(f, pins=mask, given=given)
    np.testing.assert_array_equal(some.free, everything.free)
    known = mask | (np.arange(f.n_labels) == some.free[..., None])
    np.testing.assert_allclose(some.values[known], everything.values[known], rtol=1e-12, atol=1e-11)
    assert np.isnan(some.values[~known]).all()
    rng = np.random.default_rng(11)
    wanted = known & np.isfinite(everything.values)
    weights: Floats = np.where(wanted, rng.normal(size=f.unary.shape), 0.0)
    found, expected = some.moments(weights), everything.moments(weights)
    for one, other in zip(found, expected, strict=True):
        if one is not None and other is not None:
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-11)
    assert isinstance(found, Moments)
