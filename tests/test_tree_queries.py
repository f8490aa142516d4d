"""What chains and trees can tell besides maxima and sums: the k best, samples, entropy, the probability of a span."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap import BruteForce, Chain, Potentials, Tree
from perturbmap.potentials import Labels
from perturbmap.structures import Span
from perturbmap.testing import chains, forests
from perturbmap.testing.instances import Make, some_labels
from perturbmap.testing.sums import some_spans

Forest = Chain | Tree
FORESTS: list[tuple[Forest, Make]] = [(Chain(), chains), (Tree(), forests)]
both = pytest.mark.parametrize(("structure", "make"), FORESTS, ids=["Chain", "Tree"])


def ragged(rng: np.random.Generator, make: Make, n_labels: int, integers: bool = False) -> Potentials:
    return Potentials.batch([make(rng, int(n), n_labels, integers) for n in rng.integers(1, 6, 3)])


def batches(make: Make, seed: int) -> list[tuple[Potentials, Labels | None]]:
    rng = np.random.default_rng(seed)
    found: list[tuple[Potentials, Labels | None]] = []
    for repeat in range(60):
        f = ragged(rng, make, 1 + repeat % 4, integers=repeat % 3 == 0)
        found.append((f, some_labels(rng, BruteForce(), f) if repeat % 2 else None))
    return found


@both
@pytest.mark.parametrize("k", [1, 2, 7, 50])
def test_the_k_best_are_those_of_the_listed_labellings(structure: Forest, make: Make, k: int) -> None:
    """Their scores agree with enumeration, ties or not, no labelling comes twice, missing ones are -1 and -inf."""
    for f, given in batches(make, seed=k):
        labels, values = structure.k_best(f, k, given)
        _, expected = BruteForce().k_best(f, k, given)
        assert (np.isneginf(values) == np.isneginf(expected)).all()
        found = np.isfinite(values)
        np.testing.assert_allclose(values[found], expected[found], atol=1e-12)
        for n in range(len(f)):
            rows = labels[:, f.layout.sites(n)]
            assert (rows[~found[:, n]] == -1).all()
            own = rows[found[:, n]]
            assert len(np.unique(own, axis=0)) == len(own)
            np.testing.assert_allclose(f[n].score(own)[:, 0], values[found[:, n], n], atol=1e-12)
            if given is not None:
                known = given[f.layout.sites(n)]
                assert (own[:, known >= 0] == known[known >= 0]).all()


@both
def test_the_first_of_the_k_best_is_the_maximiser(structure: Forest, make: Make) -> None:
    """Bit by bit, ties or not, with perturbed copies on a leading axis."""
    for f, given in batches(make, seed=3):
        copies = pm.perturb(f, pm.gumbel_noise(f, seed=0, n_draws=2))
        for one in (f, copies):
            labels, values = structure.k_best(one, 3, given)
            best, value = structure.maximise(one, given)
            np.testing.assert_array_equal(labels[..., 0, :], best)
            np.testing.assert_array_equal(values[..., 0, :], value)
        np.testing.assert_array_equal(
            structure.k_best(copies, 3, given)[1][1], structure.k_best(f.with_unary(copies.unary[1]), 3, given)[1]
        )


@both
def test_candidates_that_are_sorted_out_are_never_missed(structure: Forest, make: Make) -> None:
    """On long examples, where many more candidates are met than are kept, the k best are the first of many more."""
    rng = np.random.default_rng(5)
    f = Potentials.batch([make(rng, n, 3, False) for n in (60, 45)])
    many = structure.k_best(f, 400)[1]
    for k in (2, 3, 10, 37):
        np.testing.assert_array_equal(structure.k_best(f, k)[1], many[:k])
    assert (np.diff(many, axis=0) <= 1e-9).all()


@both
def test_samples_have_the_probabilities_of_the_listed_labellings(structure: Forest, make: Make) -> None:
    """The frequency of every labelling is within four standard errors of its probability; also in the tail."""
    rng = np.random.default_rng(11)
    n = 20_000
    for repeat in range(4):
        f = make(rng, 4, 2, False)
        given = np.array([-1, 1, -1, -1], dtype=np.int32) if repeat % 2 else None
        # With tables of a wide range, sums are on logarithms.
        tables = None if f.pairwise is None else f.pairwise + (400.0 * np.eye(2) if repeat >= 2 else 0.0)
        f = Potentials.on(f.layout, f.unary, tables)
        labels = structure.sample(f, n, given=given, rng=repeat)
        listed = np.stack(np.meshgrid(*[[0, 1]] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
        p = BruteForce().span_probabilities(f, [(0, 0, y) for y in listed], given)
        count = np.bincount(labels @ [8, 4, 2, 1], minlength=16)
        assert (np.abs(count / n - p) <= 4 * np.sqrt(p * (1 - p) / n) + 1e-12).all()


def test_exact_samples_are_one_call_of_sample() -> None:
    """``sample(method=EXACT)`` and ``method=CONVERGING`` are the structure's own; without sums there is an error."""
    f = ragged(np.random.default_rng(0), chains, 3)
    own = Chain().sample(f, 7, rng=4)
    np.testing.assert_array_equal(pm.sample(Chain(), f, 7, method=pm.EXACT, rng=4), own)
    np.testing.assert_array_equal(pm.sample(Chain(), f, 7, method=pm.CONVERGING, rng=4), own)
    assert (pm.sample(Chain(), f, 200, rng=4) != Chain().sample(f, 200, rng=4)).any()
    with pytest.raises(TypeError, match="use CONVERGING"):
        pm.sample(pm.BinaryGraph(), Potentials(np.zeros((2, 2))), method=pm.EXACT)


@both
def test_what_is_told_does_not_depend_on_threads_or_batches(structure: Forest, make: Make) -> None:
    """With work enough for several threads, and each example alone."""
    rng = np.random.default_rng(2)
    f = Potentials.batch([make(rng, int(n), 8, False) for n in rng.integers(20, 60, 40)])
    spans = some_spans(rng, f, 50)
    questions: list[Callable[[Any, Potentials], Any]] = [
        lambda s, g: s.sample(g, 70, rng=9).T,
        lambda s, g: np.moveaxis(s.k_best(g, 12)[0], 0, -1),
    ]
    for ask in questions:
        one, three = ask(structure.with_threads(1), f), ask(structure.with_threads(3), f)
        np.testing.assert_array_equal(one, three)
        np.testing.assert_array_equal(one, np.concatenate([ask(structure, f[:13]), ask(structure, f[13:])]))
    entropies = structure.with_threads(1).entropy(f)
    np.testing.assert_array_equal(structure.with_threads(3).entropy(f), entropies)
    np.testing.assert_array_equal(np.concatenate([structure.entropy(f[:13]), structure.entropy(f[13:])]), entropies)
    np.testing.assert_array_equal(
        structure.with_threads(1).span_probabilities(f, spans), structure.with_threads(3).span_probabilities(f, spans)
    )


@both
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e3, 1e5])
def test_entropy_and_spans_agree_with_enumeration_for_any_range(structure: Forest, make: Make, scale: float) -> None:
    """Whether sums are on exponentials or on logarithms; spans connected or not, also against the given labels."""
    rng = np.random.default_rng(8)
    for plain, given in batches(make, seed=9):
        f = plain.scaled(scale)
        np.testing.assert_allclose(
            structure.entropy(f, given), BruteForce().entropy(f, given), atol=1e-12 * max(1.0, scale)
        )
        spans = some_spans(rng, f, 6)
        expected = BruteForce().span_probabilities(f, spans, given)
        np.testing.assert_allclose(structure.span_probabilities(f, spans, given), expected, rtol=1e-9, atol=1e-12)


@both
def test_the_general_way_is_that_of_the_kernels(structure: Forest, make: Make) -> None:
    """What `SummableStructure` makes of sums alone, with perturbed copies, is what the kernels find."""
    rng = np.random.default_rng(4)
    for plain, given in batches(make, seed=12)[:12]:
        f = pm.perturb(plain, pm.gumbel_noise(plain, seed=1, n_draws=2))
        spans = some_spans(rng, f)
        general = pm.SummableStructure
        np.testing.assert_allclose(structure.entropy(f, given), general.entropy(structure, f, given), atol=1e-11)
        np.testing.assert_allclose(
            structure.span_probabilities(f, spans, given),
            general.span_probabilities(structure, f, spans, given),
            rtol=1e-9,
            atol=1e-12,
        )


def test_spans_say_what_does_not_fit() -> None:
    """An error names the span, what came, and what is expected; no span is asked for in vain."""
    f = Potentials.batch([Potentials(np.zeros((3, 2)), pm.potts(1.0)), Potentials(np.zeros((1, 2)))])
    ask = Chain().span_probabilities
    assert ask(f, []).shape == (0,)
    np.testing.assert_allclose(ask(f, [Span(1, 0, [1]), Span(0, [], [])]), [0.5, 1.0])
    bad: list[tuple[Any, str]] = [
        ((2, 0, [0]), r"spans\[0\] must be of an example from 0 to 1, but 2 is not"),
        ((0, 2, [0, 1]), r"the sites of spans\[0\] must be from 0 to 2, but 3 is not"),
        ((1, 0, [2]), r"the labels of spans\[0\] must be from 0 to 1, but 2 is not"),
        ((0, [0, 1], [0]), "2 sites and 1 labels"),
        ((0, [1, 1], [0, 0]), r"must not name a site twice, but its sites are \[1, 1\]"),
        ((0, 0, ["a"]), "must be integers"),
        ((0, 0), "must be a tuple"),
    ]
    for span, message in bad:
        with pytest.raises(ValueError, match=message):
            ask(f, [span])
    with pytest.raises(ValueError, match="k must be an integer of at least 1"):
        Chain().k_best(f, 0)
    with pytest.raises(ValueError, match="perturbed copies"):
        Chain().sample(pm.perturb(f, pm.gumbel_noise(f, seed=0)))


@pytest.mark.parametrize("structure", [Chain(), Tree()], ids=repr)
def test_a_batch_of_nothing_tells_nothing(structure: Forest) -> None:
    """No examples, and examples without sites."""
    none, empty = Potentials(np.zeros((2, 2)))[:0], Potentials(np.zeros((0, 2)))
    assert structure.k_best(none, 2)[0].shape == (2, 0)
    assert structure.sample(none, 2, rng=0).shape == (2, 0)
    assert structure.entropy(none).shape == (0,)
    np.testing.assert_array_equal(structure.k_best(empty, 2)[1], [[0.0], [-np.inf]])
    assert structure.sample(empty, 2, rng=0).shape == (2, 0)
    np.testing.assert_array_equal(structure.entropy(empty), [0.0])
    np.testing.assert_array_equal(structure.span_probabilities(empty, [(0, [], [])]), [1.0])
