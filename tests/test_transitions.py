"""Forbidden labels and pairs: nothing that is asked of a chain or a tree knows what they rule out."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import perturbmap as pm
from perturbmap import BruteForce, Chain, InfeasibleError, Potentials, Transitions, Tree, bio_transitions
from perturbmap.potentials import Labels
from perturbmap.testing import chains, check_marginal_method, check_objective, check_structure, forests, unaries
from perturbmap.testing.instances import SIZES
from perturbmap.testing.pins import random_weights
from perturbmap.testing.sums import some_spans

from .instances import RULES, keeps_the_rules

TAGS = ["B-x", "B-y", "I-x", "I-y", "O"]
OF_THREE = [size for size in SIZES if size[1] == 3]
OBJECTIVES: list[pm.Objective] = [
    pm.MarginalLogLikelihood(),
    pm.MarginalLogLikelihood(integrate_noise=False),
    pm.MarginalLogLikelihood(conditional=True),
    pm.LogLikelihood(),
    pm.StructuredHinge(),
    pm.ExactLogLikelihood(),
    pm.ExactMarginalLogLikelihood(),
]


def sentences(n: int, seed: int) -> tuple[list[Any], list[list[str]]]:
    """Tags of random entities, and features that say what they are, but not well enough."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        tags: list[str] = []
        while len(tags) < 8:
            kind = str(rng.choice(["x", "y", ""]))
            tags += ["O"] if not kind else [f"B-{kind}"] + [f"I-{kind}"] * int(rng.integers(0, 3))
        X.append(np.eye(5)[[TAGS.index(tag) for tag in tags]] + rng.normal(0, 0.9, (len(tags), 5)))
        y.append(tags)
    return X, y


def is_well_formed(tags: list[str]) -> bool:
    """BIO by its definition: I-x follows B-x or I-x."""
    before = ["O", *tags]
    return all(not tag.startswith("I-") or before[i] in (f"B-{tag[2:]}", tag) for i, tag in enumerate(tags))


def test_bio_transitions_allow_what_the_definition_does() -> None:
    """All sequences of up to four tags: entities of two types, one after another or apart."""
    rules = bio_transitions(TAGS).rules(5)
    for length in range(1, 5):
        for y in itertools.product(range(5), repeat=length):
            allowed = (
                rules.starts[y[0]] and rules.ends[y[-1]] and all(rules.pairs[a, b] for a, b in itertools.pairwise(y))
            )
            assert allowed == is_well_formed([TAGS[k] for k in y])


def test_bioes_transitions_allow_what_the_definition_does() -> None:
    """With an end for every beginning; the same as a pattern over the whole sequence."""
    tags = ["B-x", "E-x", "I-x", "O", "S-x", "B-y", "E-y"]
    rules = bio_transitions(tags).rules(7)
    letters = "beiosBE"
    for length in range(1, 5):
        for y in itertools.product(range(7), repeat=length):
            allowed = (
                rules.starts[y[0]] and rules.ends[y[-1]] and all(rules.pairs[a, b] for a, b in itertools.pairwise(y))
            )
            whole = re.fullmatch("(o|s|bi*e|BE)*", "".join(letters[k] for k in y)) is not None
            assert allowed == whole


@pytest.mark.parametrize("structure", [Chain(allowed=RULES.pairs), Tree(allowed=RULES.pairs)], ids=["Chain", "Tree"])
def test_a_bare_mask_of_pairs_is_enough(structure: pm.Structure) -> None:
    """On chains of consecutive sites, both structures have all that they must have."""
    pairs = np.array(RULES.pairs)
    check_structure(structure, chains, BruteForce(allowed=lambda y: bool(pairs[y[:-1], y[1:]].all())), sizes=OF_THREE)


def test_potentials_without_edges_have_forbidden_pairs_too() -> None:
    """Consecutive sites of a chain are joined by what is allowed, whether or not they have tables."""
    check_structure(Chain(allowed=RULES), unaries, BruteForce(allowed=keeps_the_rules), sizes=OF_THREE)


def test_trees_with_forbidden_pairs_agree_with_enumeration() -> None:
    """Edges in any direction, some twice; potentials of any range; without a labelling, every question says so."""
    rng = np.random.default_rng(1)
    n_impossible = 0
    for _ in range(250):
        n, k = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        pairs = rng.random((k, k)) < rng.choice([0.3, 0.6, 0.9])
        if not pairs.any():
            continue
        f = forests(rng, n, k, bool(rng.random() < 0.3))
        of_unary, of_tables = rng.choice([1.0, 30.0, 100.0, 1e3, 1e5], 2)
        f = Potentials.on(f.layout, of_unary * f.unary, None if f.pairwise is None else of_tables * f.pairwise)
        given = np.where(rng.random(n) < 0.2, rng.integers(0, k, n), -1).astype(np.int32)
        edges = f.edges

        def allowed(y: Labels, pairs: Any = pairs, edges: Any = edges) -> bool:
            return bool(pairs[y[edges[:, 0]], y[edges[:, 1]]].all())

        try:
            BruteForce(allowed=allowed).maximise(f, given)
        except InfeasibleError:
            n_impossible += 1
            _assert_nothing_is_possible(Tree(allowed=pairs), f, given)
            continue
        _assert_the_same(Tree(allowed=pairs), BruteForce(allowed=allowed), f, given, 1e-9 * max(of_unary, of_tables))
    assert n_impossible > 5


def _assert_the_same(own: Tree, listed: BruteForce, f: Potentials, given: Labels, atol: float) -> None:
    def close(a: Any, b: Any, atol: float = atol) -> None:
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=atol)

    close(own.maximise(f, given)[1], listed.maximise(f, given)[1])
    close(own.pinned(f, given=given).values, listed.pinned(f, given=given).values)
    (total, q), (expected, p) = own.log_partition(f, given), listed.log_partition(f, given)
    close(total, expected)
    sums, listed_sums = own.pinned_sums(f, given), listed.pinned_sums(f, given)
    close(sums.values, listed_sums.values)
    weights = random_weights(listed_sums.values, 3)
    for mine, theirs in ((q, p), (sums.moments(weights), listed_sums.moments(weights))):
        close(mine.unary, theirs.unary, 1e-8)
        close(mine.pairwise, theirs.pairwise, 1e-8)
    close(own.entropy(f, given), listed.entropy(f, given))
    close(own.k_best(f, 9, given)[1], listed.k_best(f, 9, given)[1])
    spans = some_spans(np.random.default_rng(0), f)
    close(own.span_probabilities(f, spans, given), listed.span_probabilities(f, spans, given), 1e-8)
    for y in own.sample(f, 3, given=given, rng=1):
        assert np.isfinite(own.evaluate(f, y)).all()


def _assert_nothing_is_possible(structure: Tree, f: Potentials, given: Labels) -> None:
    for ask in (
        lambda: structure.maximise(f, given),
        lambda: structure.pinned(f, given=given),
        lambda: structure.pinned_values(f, given),
        lambda: structure.log_partition(f, given),
        lambda: structure.pinned_sums(f, given),
        lambda: structure.k_best(f, 3, given),
        lambda: structure.entropy(f, given),
        lambda: structure.span_probabilities(f, [(0, 0, [0])], given),
        lambda: structure.sample(f, 2, given=given, rng=0),
    ):
        with pytest.raises(InfeasibleError):
            ask()


def test_sums_keep_what_is_small_where_a_long_chain_leaves_one_way() -> None:
    """A way of a tiny probability at each step is the only one with its end: the log-partition is its score."""
    n = 60
    pairs = np.array([[True, True, False], [False, True, True], [False, False, True]])
    unary = np.zeros((n, 3))
    unary[:, 1] = -200.0  # label 1 leads from 0 to 2, and costs more than exponentials bear
    f = Potentials(unary)
    given = np.full(n, -1, dtype=np.int32)
    given[[0, -1]] = 0, 2
    total, q = Chain(allowed=pairs).log_partition(f, given)
    # From one to 58 sites may have label 1; with one, it is at any of 58.
    np.testing.assert_allclose(total, [-200.0 + np.log(58)], rtol=1e-12)
    np.testing.assert_allclose(q.unary[:, 1].sum(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(Chain(allowed=pairs).span_probabilities(f, [(0, 30, [1])], given), [1 / 58], rtol=1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_every_objective_has_its_gradient_under_rules(objective: pm.Objective) -> None:
    """The suite of objectives, on chains whose pairs, starts and ends are ruled."""
    structure, definition = Chain(allowed=RULES), BruteForce(allowed=keeps_the_rules)
    check_objective(objective, structure, chains, definition, sizes=[(2, 3), (4, 3)], n_repeats=2)


@pytest.mark.parametrize("method", [pm.PINNED, pm.INTEGRATED, pm.COUNTED, pm.EXACT], ids=repr)
def test_marginals_give_no_probability_to_what_is_forbidden(method: pm.MarginalMethod) -> None:
    """The suite of methods; and labels that cannot come first or last have none there, with no error about it."""
    structure, definition = Chain(allowed=RULES), BruteForce(allowed=keeps_the_rules)
    smooth = method is not pm.COUNTED
    check_marginal_method(method, structure, chains, definition, sizes=[(2, 3), (4, 3)], is_differentiable=smooth)
    f = chains(np.random.default_rng(0), 4, 3, False)
    found = pm.marginals(structure, f, method=method, n_perturbations=50, rng=0)
    assert found.mean[0, 2] == found.mean[3, 1] == found.standard_error[0, 2] == 0
    np.testing.assert_allclose(found.mean.sum(axis=1), 1.0)


def test_converging_marginals_and_bounds_are_those_of_what_is_allowed() -> None:
    """CONVERGING is exact, the bound is above log Z, and samples of all kinds keep the rules."""
    f = Potentials.batch([chains(np.random.default_rng(n), 4, 3, False) for n in range(5)])
    structure, listed = Chain(allowed=RULES), BruteForce(allowed=keeps_the_rules)
    exact, q = listed.log_partition(f)
    np.testing.assert_allclose(pm.marginals(structure, f, method=pm.CONVERGING).mean, q.unary, atol=1e-12)
    found = pm.log_partition(structure, f)
    assert found.is_exact.all()
    np.testing.assert_allclose(found.estimate.mean, exact)
    bound = pm.log_partition_bound(structure, f, n_perturbations=500, rng=0)
    assert (bound.mean + 4 * bound.standard_error >= exact).all()
    for method in (None, pm.EXACT, pm.CONVERGING):
        for y in pm.sample(structure, f, 50, method=method, rng=0):
            assert all(keeps_the_rules(part) for part in f.split(y))


FITS: list[tuple[pm.Objective, pm.Solver[Any]]] = [
    (pm.MarginalLogLikelihood(), pm.DoubleSGD(3)),
    (pm.LogLikelihood(), pm.DoubleSGD(3)),
    (pm.StructuredHinge(), pm.BCFW()),
    (pm.ExactLogLikelihood(), pm.LBFGS()),
    (pm.ExactMarginalLogLikelihood(), pm.LBFGS()),
]


@pytest.mark.parametrize(("objective", "solver"), FITS, ids=lambda part: type(part).__name__)
def test_a_tagger_predicts_well_formed_tags_whatever_it_learns_by(
    objective: pm.Objective, solver: pm.Solver[Any]
) -> None:
    """Without rules it does not; with them, labels that are not known are guessed within them."""
    X, y = sentences(30, seed=0)
    fresh, _ = sentences(40, seed=1)
    plain = pm.StructuredPredictor(pm.SequenceModel(), Chain(), objective, solver=solver, l2=1.0, random_state=0)
    assert not all(is_well_formed(tags.tolist()) for tags in plain.fit(X, y).predict(fresh))
    partly: list[Any] = [[None if i % 3 == 0 else tag for i, tag in enumerate(tags)] for tags in y]
    for known in (y, y[:20] + partly[20:]):
        ruled = clone(plain).set_params(structure=Chain(allowed=bio_transitions(TAGS)))
        assert all(is_well_formed(tags.tolist()) for tags in ruled.fit(X, known).predict(fresh))
        q = ruled.predict_marginals(fresh)
        assert all(part[0, 2] == part[0, 3] == 0 for part in q)


def test_labels_that_break_the_rules_are_named() -> None:
    """The sentence, the site and the pair, before any work is done; at its first word, at its last, and inside."""
    X, y = sentences(6, seed=2)
    names = ["B-x", "E-x", "I-x", "O"]
    tagger = pm.StructuredPredictor(pm.SequenceModel(), Chain(allowed=bio_transitions(TAGS)), l2=1.0)
    y[4] = ["O", "O", "I-y", *y[4][3:]]
    with pytest.raises(ValueError, match=r"y holds labels .* example 4 has 'O' at site 1 and then 'I-y' at site 2"):
        tagger.fit(X, y)
    y[3] = ["I-x", *y[3][1:]]
    with pytest.raises(ValueError, match=r"example 3 begins with 'I-x', at site 0, which allowed forbids"):
        tagger.fit(X, y)
    ends = pm.StructuredPredictor(pm.SequenceModel(), Chain(allowed=bio_transitions(names)), classes=names)
    with pytest.raises(ValueError, match=r"example 0 ends with 'B-x', at site 1"):
        ends.fit([np.zeros((2, 1)), np.zeros((2, 1))], [["O", "B-x"], ["B-x", "E-x"]])
    f = Potentials(np.zeros((3, 3)))
    with pytest.raises(
        InfeasibleError, match="has label 0 at site 1 and then label 2 at site 2, which allowed forbids"
    ):
        Chain(allowed=RULES).maximise(f, given=[-1, 0, 2])
    with pytest.raises(InfeasibleError, match="allowed and given leave no labelling of example 0"):
        Chain(allowed=[[True, False], [False, True]]).maximise(Potentials(np.zeros((3, 2))), given=[0, -1, 1])
    assert Chain(allowed=RULES).evaluate(f, [0, 0, 2]).tolist() == [-np.inf]


def test_rules_for_other_labels_are_refused() -> None:
    """Names that are not the classes, or in another order; masks of the wrong shape or kind, and of nothing."""
    X, y = sentences(6, seed=2)
    turned = Chain(allowed=bio_transitions(TAGS[::-1]))
    with pytest.raises(ValueError, match="allowed was made for the labels"):
        pm.StructuredPredictor(pm.SequenceModel(), turned, l2=1.0).fit(X, y)
    pm.StructuredPredictor(pm.SequenceModel(), turned, solver=pm.DoubleSGD(1), classes=TAGS[::-1]).fit(X, y)
    f = Potentials(np.zeros((2, 2)))
    bad: list[tuple[Any, str]] = [
        (np.ones((3, 3), dtype=bool), r"the pairs of allowed must be booleans of shape \(2, 2\)"),
        (np.ones((2, 2)), "dtype float64"),
        (np.zeros((2, 2), dtype=bool), "the pairs of allowed must allow something"),
        (
            Transitions(np.ones((2, 2), dtype=bool), starts=[False, False]),
            "the starts of allowed must allow something",
        ),
        (Transitions(np.ones((2, 2), dtype=bool), ends=[True]), "the ends of allowed must be booleans"),
        (Transitions(np.ones((2, 2), dtype=bool), labels=["a"]), "has names for 1 labels, but there are 2"),
    ]
    for allowed, message in bad:
        with pytest.raises(ValueError, match=message):
            Chain(allowed=allowed).maximise(f)
    with pytest.raises(ValueError, match="Tree takes the pairs of allowed alone"):
        Tree(allowed=RULES).maximise(Potentials(np.zeros((2, 3))))
    for names, message in (
        (["B-x", "O", "O"], "must not repeat"),
        (["B-x", "C"], "but one is 'C'"),
        (["B-"], "'B-'"),
    ):
        with pytest.raises(ValueError, match=message):
            bio_transitions(names)


def test_rules_are_parameters_and_are_saved(tmp_path: Path) -> None:
    """They are cloned, compared, set by name, shown, and come back from a file, with the predictions."""
    X, y = sentences(12, seed=3)
    structure = Chain(allowed=bio_transitions(TAGS))
    tagger = pm.StructuredPredictor(pm.SequenceModel(), structure, l2=1.0, solver=pm.DoubleSGD(2), random_state=0)
    assert clone(structure) == structure != Chain()
    assert structure.get_params()["allowed__labels"] == TAGS
    assert clone(structure).set_params(allowed__ends=[True] * 4 + [False]) != structure
    tagger.fit(X, y).save(tmp_path / "tagger")
    again = pm.StructuredPredictor.load(tmp_path / "tagger")
    assert again.structure == structure
    fresh = sentences(10, seed=4)[0]
    for mine, theirs in zip(tagger.predict(fresh), again.predict(fresh), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_torch_layers_keep_the_rules() -> None:
    """The loss is the objective's, labels that break the rules are named, and best labels and marginals keep them."""
    torch = pytest.importorskip("torch")
    structure = Chain(allowed=RULES)
    rng = np.random.default_rng(0)
    unary = torch.tensor(rng.normal(size=(4, 5, 3)), requires_grad=True)
    pairwise = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    best = pm.nn.BestLabelling(structure)(unary, pairwise)
    assert all(keeps_the_rules(row) for row in best.numpy())
    q = pm.nn.Marginals(structure, pm.EXACT)(unary, pairwise)
    assert (q[:, 0, 2] == 0).all()
    loss = pm.nn.StructuredLoss(pm.ExactLogLikelihood(), structure, reduction="sum")(unary, best, pairwise)
    f = Potentials.batch([Potentials(part, np.zeros((3, 3))) for part in unary.detach().numpy()])
    y = best.numpy().ravel()
    expected = f.score(y) - BruteForce(allowed=keeps_the_rules).log_partition(f)[0]
    np.testing.assert_allclose(loss.item(), -expected.sum())
    loss.backward()
    assert torch.isfinite(unary.grad).all()
    assert torch.isfinite(pairwise.grad).all()
    wrong = best.clone()
    wrong[2, 0] = 2
    with pytest.raises(ValueError, match="labels hold what Chain does not allow: example 2 begins with label 2"):
        pm.nn.StructuredLoss(pm.ExactLogLikelihood(), structure)(unary, wrong, pairwise)
