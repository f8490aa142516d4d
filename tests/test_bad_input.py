"""Bad input gets a clear error that names the argument, or the right answer; nothing crashes."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from perturbmap import (
    BinaryGraph,
    BruteForce,
    Chain,
    Estimate,
    FromSolver,
    InfeasibleError,
    Matching,
    Potentials,
    SequenceModel,
    Structure,
    StructuredPredictor,
    Tree,
    decode,
    grid_edges,
    log_partition_bound,
    marginals,
    potts,
    sample,
)

from .instances import STRUCTURES, example, n_labels_of

every_structure = pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
Z2, Z3 = np.zeros((3, 2)), np.zeros((3, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0, np.nan]],), "unary must be finite, but unary[0, 1] is nan"),
        (([[0.0, np.inf]],), "unary must be finite"),
        ((Z2, [[0.0, 1.0], [np.inf, 0.0]]), "pairwise must be finite, but pairwise[1, 0] is inf"),
        (([1.0, 2.0],), "unary must have shape (n_sites, n_labels)"),
        ((3.0,), "unary must have shape (n_sites, n_labels)"),
        (([],), "unary must have shape (n_sites, n_labels)"),
        ((np.zeros((3, 0)),), "at least one label"),
        (([[0.0, 1.0], [0.0]],), "unary must be a rectangular array of numbers"),
        (([["a", "b"]],), "unary must be a rectangular array of numbers"),
        ((Z2, np.zeros((3, 3))), "pairwise must have shape (2, 2) (shared by all edges) or (2, 2, 2)"),
        ((Z2, np.zeros((5, 2, 2))), "but it has shape (5, 2, 2)"),
        ((Z2, np.eye(2), [[0, 3]]), "edges must join sites 0..2, but edge 0 is [0, 3]"),
        ((Z2, np.eye(2), [[0, 1], [-1, 2]]), "edge 1 is [-1, 2]"),
        ((Z2, np.eye(2), [[0, 1], [1, 1]]), "edge 1 joins site 1 to itself"),
        ((Z2, np.eye(2), [[0.0, 1.0]]), "edges must hold integer site numbers"),
        ((Z2, np.eye(2), [0, 1]), "edges must have shape (n_edges, 2)"),
        ((Z2, None, [[0, 1]]), "edges were given without pairwise"),
    ],
)
def test_potentials_say_what_is_wrong_with_their_arguments(arguments: tuple[object, ...], message: str) -> None:
    """Each error names the argument, and what came where that helps."""
    with pytest.raises(ValueError, match=re.escape(message)):
        Potentials(*arguments)  # type: ignore[arg-type]  # wrong types are the point


def test_batches_say_what_is_wrong_with_their_examples() -> None:
    """Different numbers of labels, no example at all, and things that are not Potentials."""
    with pytest.raises(ValueError, match=r"have \[2, 3\] labels"):
        Potentials.batch([Potentials(Z2), Potentials(Z3)])
    with pytest.raises(ValueError, match="examples is empty"):
        Potentials.batch([])
    with pytest.raises(TypeError, match="sequence of Potentials"):
        Potentials.batch([Z2])  # type: ignore[list-item]  # the wrong type is the point
    with pytest.raises(ValueError, match="step 1"):
        Potentials.batch([Potentials(Z2)] * 3)[::2]


@every_structure
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1], "given must have one label for each site"),
        ([0, 1, 2, 9], "given must be labels"),
        ([0, 1, -2, 1], "given must be labels 0..3 or -1"),
        ([0.0, 1.0, 1.0, 1.0], "given must hold integers"),
    ],
)
def test_given_labels_are_checked(structure: Structure, given: list[float], message: str) -> None:
    """By every method that takes them."""
    k = 2 if isinstance(structure, BinaryGraph) else 4
    f = example(structure, 4, k, np.random.default_rng(0), has_ties=False)
    for method in (structure.argmax, structure.maximise):
        with pytest.raises(ValueError, match=message.replace("0..3", f"0..{k - 1}")):
            method(f, given)
    with pytest.raises(ValueError, match="given must"):
        structure.pinned(f, given=given)
    with pytest.raises(ValueError, match="given must"):
        marginals(structure, f, given=given)


def test_given_labels_that_contradict_are_refused() -> None:
    """Two sites of one example matched to one label; in two examples it is no contradiction."""
    f = Potentials.batch([Potentials(Z3), Potentials(Z3)])
    with pytest.raises(ValueError, match=r"sites \[0, 2\] of example 1 are all matched to label 1"):
        Matching().argmax(f, [1, -1, -1, 1, -1, 1])
    assert Matching().argmax(f, [1, -1, -1, 1, -1, -1])[3] == 1


def test_pins_and_weights_are_checked() -> None:
    """Masks must be boolean, weights finite, of the right shape, and zero on impossible pins."""
    f = Potentials(Z2, np.eye(2))
    for pins in (np.ones((3, 2)), np.ones((2, 2), dtype=bool)):
        with pytest.raises(ValueError, match="pins must be a boolean mask"):
            Chain().pinned(f, pins=pins)
    pinned = Chain().pinned(f, given=[0, -1, -1])
    with pytest.raises(ValueError, match="weights must have shape"):
        pinned.moments(np.ones(3))
    with pytest.raises(ValueError, match="weights must be finite"):
        pinned.moments(np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match=re.escape("weights[0, 1] is not zero")):
        pinned.moments(np.ones((3, 2)))


def test_edges_that_break_supermodularity_are_named() -> None:
    """The first such edge, how many there are, and what to do."""
    edges = grid_edges(2, 2)
    with pytest.raises(ValueError, match=r"1 of 4 edges .* between sites 0 and 2"):
        BinaryGraph().argmax(Potentials(np.zeros((4, 2)), potts([1, 1, -1, 1]), edges))
    with pytest.raises(ValueError, match="4 of 4 edges"):
        BinaryGraph().argmax(Potentials(np.zeros((4, 2)), -np.eye(2), edges))


def test_parallel_edges_add_up() -> None:
    """Also where one alone would break supermodularity, or would close a cycle in a tree."""
    rng = np.random.default_rng(2)
    unary = rng.normal(size=(3, 2))
    f = Potentials(unary, potts([2, 1, -0.5]), [[0, 1], [1, 2], [1, 0]])
    weights = rng.normal(size=unary.shape)
    for structure in (BinaryGraph(), Tree()):
        pinned, expected = structure.pinned(f), BruteForce().pinned(f)
        np.testing.assert_allclose(pinned.values, expected.values)
        a, b = pinned.moments(weights), expected.moments(weights)
        assert a.pairwise is not None
        assert b.pairwise is not None
        np.testing.assert_allclose(a.pairwise, b.pairwise)
    with pytest.raises(ValueError, match=r"1 of 2 edges .* between sites 0 and 1"):
        BinaryGraph().argmax(Potentials(unary, potts([2, 1, -2.5]), f.edges))


def test_structures_say_which_potentials_they_take() -> None:
    """Labels, edges and sizes that do not fit, with the structure that would."""
    with pytest.raises(ValueError, match=r"two labels, but unary has 3\. Use Graph for more labels"):
        BinaryGraph().argmax(Potentials(Z3))
    with pytest.raises(ValueError, match=r"consecutive sites.*use Tree"):
        Chain().argmax(Potentials(Z2, np.eye(2), [[0, 2], [0, 1]]))
    with pytest.raises(ValueError, match="edges of example 1 contain a cycle"):
        Tree().argmax(
            Potentials.batch([Potentials(Z2, np.eye(2)), Potentials(Z2, np.eye(2), [[0, 1], [1, 2], [2, 0]])])
        )
    with pytest.raises(ValueError, match="3 sites and there are 2 labels"):
        Matching().argmax(Potentials(Z2))
    with pytest.raises(ValueError, match="Matching takes unary potentials only"):
        Matching().argmax(Potentials(Z3, np.eye(3)))
    with pytest.raises(ValueError, match="FromSolver takes unary potentials only"):
        FromSolver(lambda u: u.argmax(axis=1)).argmax(Potentials(Z3, np.eye(3)))
    with pytest.raises(ValueError, match=r"BruteForce would list 1e\+12 labellings"):
        BruteForce().argmax(Potentials(np.zeros((40, 2))))
    with pytest.raises(ValueError, match="n_threads must be an integer of at least 1"):
        Chain(n_threads=0).argmax(Potentials(Z2))


@pytest.mark.parametrize("n_threads", [2**31, 2**62, 2**80])
def test_more_threads_than_can_be_counted_are_no_more_than_there_is_work_for(n_threads: int) -> None:
    """A file may ask for them; the kernels count threads in 32 bits."""
    np.testing.assert_array_equal(Chain(n_threads=n_threads).argmax(Potentials(Z2)), Chain().argmax(Potentials(Z2)))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0, 1], "solver must return 3 integer labels"),
        ([0.5, 1.0, 1.0], "solver must return 3 integer labels"),
        ([0, 1, 2], "solver must return labels 0..1"),
    ],
)
def test_a_solvers_wrong_answers_are_named(answer: list[float], message: str) -> None:
    """A user's solver is checked at every call."""
    with pytest.raises(ValueError, match=message):
        FromSolver(lambda unary: answer).argmax(Potentials(Z2))


def test_a_solver_that_forbids_a_label_makes_its_pins_impossible() -> None:
    """-inf among the pinned values, an error where the label is given, zero among the marginals."""

    # A knapsack: labels are taken (1) or not (0), and at most one site is taken.
    def one_at_most(unary: np.ndarray) -> np.ndarray:
        gain = unary[:, 1] - unary[:, 0]
        return np.asarray((np.arange(len(unary)) == gain.argmax()) & (gain.max() > 0), dtype=int)

    structure = FromSolver(one_at_most)
    f = Potentials(np.array([[0.0, 1.0], [0.0, 2.0]]))
    assert np.isneginf(structure.pinned(f, given=[1, -1]).values[1]).tolist() == [False, True]
    with pytest.raises(InfeasibleError, match="no labelling with the given labels"):
        structure.argmax(f, given=[1, 1])
    estimate = marginals(structure, f, given=[1, -1], n_perturbations=10, rng=0)
    np.testing.assert_array_equal(estimate.mean, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(estimate.standard_error, 0)


def test_a_solver_that_works_in_place_leaves_the_potentials_alone() -> None:
    """It gets a copy."""

    def vandal(unary: np.ndarray) -> np.ndarray:
        labels = unary.argmax(axis=1)
        unary[:] = np.nan
        return np.asarray(labels)

    f = Potentials(np.array([[0.0, 1.0], [2.0, 1.0]]))
    np.testing.assert_array_equal(FromSolver(vandal).pinned(f).values, [[2, 3], [3, 2]])
    np.testing.assert_array_equal(f.unary, [[0, 1], [2, 1]])


def test_perturbed_copies_are_not_perturbed_again() -> None:
    """Inference over copies would mix copies and draws."""
    f = Potentials(Z2)
    copies = f.with_unary(np.zeros((3, 3, 2)))
    for function in (marginals, log_partition_bound):
        with pytest.raises(ValueError, match="f has perturbed copies already"):
            function(Chain(), copies, n_perturbations=3)


def test_arguments_of_the_wrong_type_are_named() -> None:
    """An array for potentials, a class for a structure, arguments swapped."""
    f = Potentials(Z2)
    with pytest.raises(TypeError, match="f must be Potentials, but is a ndarray"):
        Chain().argmax(Z2)  # type: ignore[arg-type]  # the wrong type is the point
    for structure, potentials in ((Chain, f), (f, Chain())):
        with pytest.raises(TypeError, match="structure must be a Structure, such as Chain"):
            marginals(structure, potentials)  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize("function", [log_partition_bound, marginals])
@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_counts_are_checked(function: Callable[..., Estimate], n: int) -> None:
    """n_perturbations is a positive integer."""
    with pytest.raises(ValueError, match="n_perturbations must be an integer of at least 1"):
        function(Chain(), Potentials(Z2), n_perturbations=n)
    with pytest.raises(ValueError, match="n_samples must be"):
        sample(Chain(), Potentials(Z2), n)


@pytest.mark.parametrize(
    ("q", "theta", "message"),
    [
        ([0.5, 0.5], None, "marginals must be finite"),
        ([[0.5, -0.1]], None, "marginals must be finite"),
        ([[np.nan, 0.1]], None, "marginals must be finite"),
        ([[0.5, 0.5]], [[1.0, -1.0]], "site_weights must be finite and not negative"),
        ([[0.5, 0.5]], [1.0, 1.0, 1.0], "site_weights must broadcast to the shape of marginals"),
    ],
)
def test_decoding_checks_its_arguments(q: list[float], theta: list[float] | None, message: str) -> None:
    """Shapes and signs."""
    with pytest.raises(ValueError, match=message):
        decode(q, theta)


@every_structure
def test_an_empty_batch_and_an_empty_graph_have_the_right_answer(structure: Structure) -> None:
    """No examples give no results; an example without sites has one labelling, of score zero."""
    k = n_labels_of(structure, 2)
    nothing = Potentials(np.zeros((2, k)))[:0]
    assert structure.argmax(nothing).shape == (0,)
    assert structure.pinned(nothing).values.shape == (0, k)
    assert log_partition_bound(structure, nothing, n_perturbations=3).mean.shape == (0,)
    assert marginals(structure, nothing, n_perturbations=3).mean.shape == (0, k)
    assert sample(structure, nothing, 4).shape == (4, 0)

    pairwise = None if isinstance(structure, Matching) else np.eye(k)
    empty = Potentials(np.zeros((0, k)), pairwise)
    f = Potentials.batch([empty, Potentials(np.eye(k)[:1], pairwise), empty])
    assert structure.argmax(f).tolist() == [0]
    np.testing.assert_array_equal(structure.maximise(f)[1], [0, 1, 0])
    bound = log_partition_bound(structure, f, n_perturbations=50, rng=0)
    np.testing.assert_array_equal(bound.mean[[0, 2]], 0)
    assert empty.score(np.empty(0, dtype=int)).tolist() == [0]
    assert nothing.split(np.zeros(0)) == []
    assert structure.pinned(empty).moments(np.zeros((0, k))).unary.shape == (0, k)


@pytest.mark.parametrize("structure", [Chain(), Tree(), BinaryGraph(), BruteForce()], ids=repr)
def test_huge_beside_tiny_potentials(structure: Structure) -> None:
    """Potentials of 1e12 beside 1e-6: the tiny ones still decide what they alone decide."""
    unary = np.array([[0.0, 1e12], [1e-6, 0.0], [0.0, 1e-6], [0.0, 0.0]])
    tables = np.array([1e-7 * np.eye(2), 1e-7 * np.eye(2), 1e12 * np.eye(2)])
    f = Potentials(unary, tables)
    if not isinstance(structure, BruteForce):  # whose sums of all terms cannot hold both
        assert structure.argmax(f).tolist() == [1, 0, 1, 1]
    values = structure.pinned(f).values
    assert np.isfinite(values).all()
    np.testing.assert_allclose(values[0], [1e12, 2e12])
    q = marginals(structure, f, n_perturbations=20, rng=0)
    assert np.isfinite(q.mean).all()
    if isinstance(structure, (Chain, Tree)):
        assert np.isfinite(structure.log_partition(f)[1].unary).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int8, bool])
def test_other_dtypes_and_layouts_give_the_same_answer(dtype: type) -> None:
    """float32, integers, Fortran order and strides are taken as they come."""
    rng = np.random.default_rng(3)
    unary: np.ndarray = rng.integers(0, 2, (6, 4)).astype(dtype)
    pairwise: np.ndarray = rng.integers(0, 2, (4, 4)).astype(dtype)
    expected = Chain().pinned(Potentials(unary.astype(float), pairwise.astype(float))).values
    strided: np.ndarray = np.zeros((12, 8), dtype=dtype)
    strided[::2, ::2] = unary
    for u in (unary, np.asfortranarray(unary), strided[::2, ::2], unary.tolist()):
        np.testing.assert_array_equal(Chain().pinned(Potentials(u, np.asfortranarray(pairwise))).values, expected)
    edges = grid_edges(2, 3).astype(np.uint16)[::-1]
    assert BinaryGraph().argmax(Potentials(unary[:, :2], np.eye(2), edges)).shape == (6,)


def test_the_callers_arrays_are_not_changed_and_results_not_shared() -> None:
    """Potentials are read-only views; changing a result does not change the next one."""
    unary = np.zeros((3, 2))
    f = Potentials(unary, np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        f.unary[0, 0] = 1
    assert unary.flags.writeable
    first = Chain().pinned(f)
    first.values[:] = 7
    assert (Chain().pinned(f).values != 7).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.7e308, -1e101])
def test_numbers_that_overflow_are_refused_wherever_they_come_in(bad: float) -> None:
    """Potentials, other unary potentials, features dense and sparse, sizes: an error that names the argument."""
    f = Potentials(np.zeros((3, 2)), potts(1.0))
    unary = np.zeros((4, 3, 2))
    unary[2, 1, 0] = bad
    message = r"must (be finite|hold numbers of at most 1e\+100)"
    for refused in (f.with_unary, Potentials) if bad != -np.inf else ():  # which forbids a label
        with pytest.raises(ValueError, match=rf"unary {message}.*unary\[2, 1, 0\] is"):
            refused(unary)
    with pytest.raises(ValueError, match=f"pairwise {message}"):
        Potentials(np.zeros((3, 2)), np.full((2, 2), bad))
    features = np.zeros((3, 2))
    features[1, 1] = bad
    for x in (features, sp.csr_array(features)):
        with pytest.raises(ValueError, match=f"features of example 1 {message}"):
            StructuredPredictor(SequenceModel()).fit([np.zeros((3, 2)), x], [[0, 1, 0], [0, 1, 0]])


def test_features_at_the_limit_are_learned_from_without_a_warning() -> None:
    rng = np.random.default_rng(0)
    x = [1e99 * np.clip(rng.normal(size=(5, 3)), -2, 2) for _ in range(10)]
    y = [rng.integers(0, 2, 5) for _ in range(10)]
    p = StructuredPredictor(SequenceModel()).fit(x, y)
    assert all(np.isfinite(q).all() for q in p.predict_marginals(x))


@pytest.mark.parametrize(
    "y",
    [[[0, 1, float("nan")]], [np.array([0.0, 1.0, np.nan])], [[0, float("nan"), float("nan")]], [["a", "b", {}]]],
    ids=repr,
)
def test_what_is_no_label_is_named(y: list[object]) -> None:
    """NaN is neither a class nor "unknown": it is said how the latter is written."""
    message = r"y\[0\] (holds nan, which is not a label: write None or -1|must hold labels such as numbers)"
    with pytest.raises(ValueError, match=message):
        StructuredPredictor(SequenceModel()).fit([np.zeros((3, 2))], y)
    p = StructuredPredictor(SequenceModel()).fit([np.ones((3, 2))], [[0, 1, 1]])
    with pytest.raises(ValueError, match=message):
        p.score([np.zeros((3, 2))], y)


def test_minus_one_is_unknown_in_any_type_of_number() -> None:
    x = [np.ones((3, 2))] * 2
    for unknown in (-1, -1.0, np.float32(-1), None):
        p = StructuredPredictor(SequenceModel()).fit(x, [[0, 1, unknown], [0, 1, 1]])
        assert p.classes_.tolist() == [0, 1]
        assert p.score(x, [[0, 1, unknown], [0, 1, 1]]) == p.score(x, [[0, 1, None], [0, 1, 1]])
    y = [np.array([0.0, 1.0, -1.0]), np.array([0.0, 1.0, 1.0])]
    assert StructuredPredictor(SequenceModel()).fit(x, y).classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="classes must not hold -1"):
        StructuredPredictor(SequenceModel(), classes=[0.0, -1.0]).fit(x, y)
