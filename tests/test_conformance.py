"""Every structure against its definition, enumeration, on the same random instances."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given as sampled
from hypothesis import strategies as st

from perturbmap import (
    BinaryGraph,
    Chain,
    ExactStructure,
    FromSolver,
    Moments,
    Potentials,
    Structure,
    Tree,
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


@exact_structures
@sampled(data=st.data())
def test_pinned_sums_agree_with_enumeration(structure: ExactStructure, data: st.DataObject) -> None:
    """Sums with one label pinned, and the weighted marginals of the pinned distributions, for perturbed copies."""
    case: Instance = data.draw(instances(structure))
    f = perturb(case.f, gumbel_noise(case.f, seed=2, n_draws=2)) if data.draw(st.booleans()) else case.f
    sums = structure.pinned_sums(f, case.given)
    expected = definition(structure).pinned_sums(f, case.given)
    assert_close(sums.values, expected.values)
    weights = random_weights(sums.values, data.draw(st.integers(0, 1000)))
    assert_moments_equal(sums.moments(weights), expected.moments(weights))
    if case.given is not None and (case.given >= 0).any() and f.n_labels > 1:
        with pytest.raises(ValueError, match="weights"):
            sums.moments(np.ones(f.unary.shape))


@exact_structures
@sampled(data=st.data())
def test_sums_of_extreme_potentials_agree_with_enumeration(structure: ExactStructure, data: st.DataObject) -> None:
    """Potentials of any range: nothing overflows, and the smallest of probabilities keep their logarithms."""
    case: Instance = data.draw(instances(structure))
    scale = st.sampled_from([0.0, 1.0, 30.0, 120.0, 1e3, 1e5])
    of_unary, of_tables = data.draw(scale), data.draw(scale)
    f = Potentials.batch([_scaled(case.f[n], of_unary, of_tables) for n in range(len(case.f))])
    tolerance = {"rtol": 1e-11, "atol": 1e-11 * max(1.0, of_unary, of_tables)}
    value, marginals = structure.log_partition(f, case.given)
    expected_value, expected_marginals = definition(structure).log_partition(f, case.given)
    assert_close(value, expected_value, **tolerance)
    sums, expected = structure.pinned_sums(f, case.given), definition(structure).pinned_sums(f, case.given)
    assert_close(sums.values, expected.values, **tolerance)
    weights = random_weights(sums.values, 5)
    moments, expected_moments = sums.moments(weights), expected.moments(weights)
    for one, other in ((marginals, expected_marginals), (moments, expected_moments)):
        assert_close(one.unary, other.unary, **tolerance)
        if one.pairwise is not None:
            assert_close(one.pairwise, other.pairwise, **tolerance)


def _scaled(f: Potentials, of_unary: float, of_tables: float) -> Potentials:
    return Potentials(of_unary * f.unary, None if f.pairwise is None else of_tables * f.pairwise, f.edges)


@exact_structures
@sampled(data=st.data())
def test_sums_are_consistent(structure: ExactStructure, data: st.DataObject) -> None:
    """At every site, pinned sums add up to the partition function, and their softmax is the marginal."""
    case: Instance = data.draw(instances(structure))
    f = perturb(case.f, gumbel_noise(case.f, seed=3, n_draws=2))
    value, moments = structure.log_partition(f, case.given)
    values = structure.pinned_sums(f, case.given).values
    per_site = np.repeat(value, np.diff(f.site_offsets), axis=-1)
    assert_close(np.logaddexp.reduce(values, axis=-1), per_site)
    assert_close(np.exp(values - per_site[..., None]), moments.unary)


@pytest.mark.parametrize("disagreement", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("n_leaves", [3, 400])
def test_sums_over_a_star(n_leaves: int, disagreement: float) -> None:
    """One site with many neighbours, whose messages multiply to far less than the smallest number."""
    rng = np.random.default_rng(n_leaves)
    unary = rng.normal(size=(n_leaves + 1, 3)) * (1 + disagreement)
    table = 4 * np.eye(3) + rng.normal(size=(3, 3))
    centre = n_leaves // 2
    leaves = np.delete(np.arange(n_leaves + 1), centre)
    edges = [(centre, leaf) if leaf % 2 else (leaf, centre) for leaf in leaves.tolist()]
    messages = [
        np.logaddexp.reduce(unary[leaf] + (table if leaf % 2 else table.T), axis=1) for leaf in leaves.tolist()
    ]
    expected = unary[centre] + np.sum(messages, axis=0)
    f = Potentials(unary, table, np.array(edges))
    scale = np.abs(expected).max()
    value, moments = Tree().log_partition(f)
    sums = Tree().pinned_sums(f)
    assert_close(value[0] / scale, np.logaddexp.reduce(expected) / scale)
    assert_close(sums.values[centre] / scale, expected / scale)
    assert_close(moments.unary[centre], np.exp(expected - np.logaddexp.reduce(expected)), atol=1e-15 * scale)
    # Pins that have the probabilities of one site for weights leave the distribution as it is.
    weights = np.zeros(unary.shape)
    weights[leaves[0]] = moments.unary[leaves[0]]
    again = sums.moments(weights)
    assert_close(again.unary, moments.unary, atol=1e-15 * scale)
    assert again.pairwise is not None
    assert_close(again.pairwise, moments.pairwise, atol=1e-14 * scale)


@pytest.mark.parametrize("structure", [Chain, Tree])
@pytest.mark.parametrize("is_shared", [True, False])
def test_sums_depend_on_neither_threads_nor_batches(structure: type[Chain | Tree], is_shared: bool) -> None:
    """The same bits on any number of threads; and, but for tables that examples share, in any batch."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 5))
    examples = [
        Potentials(rng.normal(size=(n, 5)) * scale, table if is_shared else rng.normal(size=(n - 1, 5, 5)))
        for n, scale in zip(rng.integers(1, 40, 300), rng.choice([1, 1e3], 300), strict=True)
    ]
    f = Potentials.batch(examples)
    weights = rng.normal(size=f.unary.shape)

    def everything(f: Potentials, weights: Floats, n_threads: int) -> list[Floats | None]:
        solver = structure(n_threads=n_threads)
        value, marginals = solver.log_partition(f)
        sums = solver.pinned_sums(f)
        return [value, sums.values, *marginals, *sums.moments(weights)]

    one = everything(f, weights, 1)
    for n_threads in (2, 3, 8):
        for mine, other in zip(one, everything(f, weights, n_threads), strict=True):
            np.testing.assert_array_equal(mine, other)
    for n, example in enumerate(examples):
        sites = slice(int(f.site_offsets[n]), int(f.site_offsets[n + 1]))
        edges = slice(int(f.edge_offsets[n]), int(f.edge_offsets[n + 1]))
        alone = everything(example, weights[sites], 1)
        for which, part in enumerate([slice(n, n + 1), sites, sites, edges, sites, edges]):
            if part is not edges or not is_shared:
                whole = one[which]
                assert whole is not None
                np.testing.assert_array_equal(whole[part], alone[which])


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
