"""Every structure against its definition, enumeration, on the same random instances."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given as sampled
from hypothesis import strategies as st

from perturbmap import (
    BinaryGraph,
    ExactStructure,
    FromSolver,
    Moments,
    Potentials,
    Structure,
    gumbel_noise,
    perturb,
)
from perturbmap.potentials import Floats

from .instances import STRUCTURES, Instance, definition, instances

every_structure = pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
exact_structures = pytest.mark.parametrize(
    "structure", [s for s in STRUCTURES if isinstance(s, ExactStructure)], ids=repr
)


def assert_close(actual: Any, expected: Any, rtol: float = 1e-12, atol: float = 1e-11) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def random_weights(values: Floats, seed: int) -> Floats:
    """Weights of both signs, some zero, none on an impossible pin."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=values.shape) * (rng.random(values.shape) < 0.7)
    return np.where(np.isneginf(values), 0.0, weights)


def inner(moments: Moments, f: Potentials) -> float:
    pairwise = 0.0 if moments.pairwise is None or f.pairwise is None else (moments.pairwise * f.pairwise).sum()
    return float((moments.unary * f.unary).sum() + pairwise)


def assert_moments_equal(one: Moments, other: Moments) -> None:
    assert_close(one.unary, other.unary)
    if one.pairwise is None or other.pairwise is None:
        assert one.pairwise is None
        assert other.pairwise is None
    else:
        assert_close(one.pairwise, other.pairwise)


@every_structure
@sampled(data=st.data())
def test_maximum_agrees_with_enumeration(structure: Structure, data: st.DataObject) -> None:
    """The labels respect what is given, their score is the value, and no labelling has a better one."""
    case: Instance = data.draw(instances(structure))
    labels, values = structure.maximise(case.f, case.given)
    expected_labels, expected = definition(structure).maximise(case.f, case.given)
    assert_close(values, expected)
    assert_close(case.f.score(labels), values)
    if case.given is not None:
        np.testing.assert_array_equal(labels[case.given >= 0], case.given[case.given >= 0])
    if not case.has_ties:
        np.testing.assert_array_equal(labels, expected_labels)


@every_structure
@sampled(data=st.data())
def test_pinned_values_agree_with_enumeration(structure: Structure, data: st.DataObject) -> None:
    """Every pin among many has the value that it has alone; impossible pins have -inf."""
    case: Instance = data.draw(instances(structure))
    pinned = structure.pinned(case.f, given=case.given)
    expected = definition(structure).pinned(case.f, given=case.given)
    assert_close(pinned.values, expected.values)
    free, best = structure.maximise(case.f, case.given)
    np.testing.assert_array_equal(pinned.free, free)
    satisfied = np.take_along_axis(pinned.values, free[:, None].astype(np.intp), axis=1)[:, 0]
    np.testing.assert_array_equal(satisfied, np.repeat(best, np.diff(case.f.site_offsets)))


@every_structure
@sampled(data=st.data())
def test_pinned_moments_agree_with_enumeration(structure: Structure, data: st.DataObject) -> None:
    """The moments are the weighted sum over all pinned maximisers, whatever route computes them."""
    case: Instance = data.draw(instances(structure))
    pinned = structure.pinned(case.f, given=case.given)
    weights = random_weights(pinned.values, data.draw(st.integers(0, 1000)))
    moments = pinned.moments(weights)
    # Which of several tied maximisers is taken does not change their score.
    total = weights[weights != 0] @ pinned.values[weights != 0]
    assert inner(moments, case.f) == pytest.approx(float(total), abs=1e-9)
    per_site = np.repeat([w.sum() for w in case.f.split(weights)], np.diff(case.f.site_offsets))
    assert_close(moments.unary.sum(axis=1), per_site)
    if not case.has_ties:
        expected = definition(structure).pinned(case.f, given=case.given).moments(weights)
        assert_moments_equal(moments, expected)


@every_structure
@sampled(data=st.data())
def test_pins_left_out_are_nan_and_the_others_unchanged(structure: Structure, data: st.DataObject) -> None:
    """A mask of pins changes which values are there, not what they are."""
    case: Instance = data.draw(instances(structure))
    mask = np.random.default_rng(data.draw(st.integers(0, 1000))).random(case.f.unary.shape) < 0.5
    everything = structure.pinned(case.f, given=case.given).values
    some = structure.pinned(case.f, pins=mask, given=case.given)
    known = mask | (np.arange(case.f.n_labels) == some.free[:, None])
    assert_close(some.values[known], everything[known])
    if case.given is None:
        assert np.isnan(some.values[~known]).all()


@every_structure
@sampled(data=st.data())
def test_a_batch_of_copies_is_its_examples_one_by_one(structure: Structure, data: st.DataObject) -> None:
    """Perturbed copies of a batch give, bit by bit, what each copy of each example gives alone."""
    case: Instance = data.draw(instances(structure))
    copies = perturb(case.f, gumbel_noise(case.f, seed=1, n_draws=3))
    together = structure.pinned(copies, given=case.given)
    weights = random_weights(together.values, 7)
    moments = together.moments(weights)
    pairwise = np.zeros(()) if moments.pairwise is None else np.zeros(moments.pairwise.shape)
    for copy in range(3):
        for n in range(len(case.f)):
            sites = slice(case.f.site_offsets[n], case.f.site_offsets[n + 1])
            one = case.f[n].with_unary(copies.unary[copy, sites])
            alone = structure.pinned(one, given=None if case.given is None else case.given[sites])
            np.testing.assert_array_equal(together.values[copy, sites], alone.values)
            np.testing.assert_array_equal(together.free[copy, sites], alone.free)
            part = alone.moments(weights[copy, sites])
            np.testing.assert_array_equal(moments.unary[copy, sites], part.unary)
            if part.pairwise is not None:
                edges = slice(case.f.edge_offsets[n], case.f.edge_offsets[n + 1])
                pairwise[... if case.f.is_shared else edges] += part.pairwise
    if moments.pairwise is not None:
        assert_close(moments.pairwise, pairwise)


@exact_structures
@sampled(data=st.data())
def test_exact_sums_agree_with_enumeration(structure: ExactStructure, data: st.DataObject) -> None:
    """Log-partition, site marginals and edge marginals are those of the listed distribution."""
    case: Instance = data.draw(instances(structure))
    value, moments = structure.log_partition(case.f, case.given)
    expected_value, expected = definition(structure).log_partition(case.f, case.given)
    assert_close(value, expected_value)
    assert_moments_equal(moments, expected)


@sampled(instances(BinaryGraph()))
def test_the_least_maximiser_is_found(case: Instance) -> None:
    """Among tied labellings of a binary graph, the one with the fewest ones: first in lexicographic order."""
    expected = definition(BinaryGraph()).argmax(case.f, case.given)
    if case.has_ties:  # integers: no rounding decides
        np.testing.assert_array_equal(BinaryGraph().argmax(case.f, case.given), expected)


@sampled(instances(BinaryGraph()))
def test_pinned_cuts_flip_as_few_sites_as_possible(case: Instance) -> None:
    """Among tied pinned maximisers, the one nearest to the free one; integers, so that no rounding decides."""
    if not case.has_ties:
        return
    f = case.f[0]
    pinned = BinaryGraph().pinned(f)
    everything = np.array(list(itertools.product([0, 1], repeat=f.n_sites)), dtype=np.int32)
    scores = np.array([f.score(y)[0] for y in everything])
    for d, free in enumerate(pinned.free):
        weights = np.zeros(f.unary.shape)
        weights[d, 1 - free] = 1
        flipped = pinned.moments(weights).unary.argmax(axis=1) != pinned.free
        best = everything[(everything[:, d] == 1 - free) & (scores == pinned.values[d, 1 - free])]
        assert flipped.sum() == (best != pinned.free).sum(axis=1).min()


@every_structure
@sampled(data=st.data())
def test_a_plain_solver_becomes_the_same_structure(structure: Structure, data: st.DataObject) -> None:
    """FromSolver, which only masks and asks, answers as the structure whose argmax it wraps."""
    case: Instance = data.draw(instances(structure))
    f = case.f[0]
    known = None if case.given is None else case.given[: f.n_sites]
    unaries = Potentials(f.unary)
    wrapped = FromSolver(
        lambda unary: structure.argmax(f.with_unary(unary)),
        score=lambda y: float(f.score(y)[0] - unaries.score(y)[0]),
    )
    pinned = wrapped.pinned(unaries, given=known)
    expected = structure.pinned(f, given=known)
    assert_close(pinned.values, expected.values, rtol=1e-9, atol=1e-8)
    if not case.has_ties:
        weights = random_weights(pinned.values, 3)
        assert_close(pinned.moments(weights).unary, expected.moments(weights).unary, rtol=1e-9, atol=1e-8)
