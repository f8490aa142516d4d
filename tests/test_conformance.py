"""Every part of the package passes the checks that users' parts are to pass; and what is ours alone."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given as sampled
from hypothesis import strategies as st

import perturbmap as pm
from perturbmap import BinaryGraph, Chain, FromSolver, Potentials, Structure, Tree
from perturbmap.potentials import Floats, Labels
from perturbmap.solvers import Problem
from perturbmap.testing.instances import SIZES
from perturbmap.testing.pins import random_weights

from .instances import KINDS, STRUCTURES, Instance, Kind, definition, instances
from .stored import make_store

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: repr(kind.structure))


def assert_close(actual: Any, expected: Any, rtol: float = 1e-12, atol: float = 1e-11) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# Structures.


@every_kind
def test_a_structure_answers_as_its_definition_does(kind: Kind) -> None:
    """Values, pins, moments, batches, copies, threads and sums, on some hundred instances; ``make fuzz`` has more."""
    pm.testing.check_structure(
        kind.structure, kind.make, kind.definition, sizes=kind.sizes, n_repeats=8, tolerance=1e-11
    )


@pytest.mark.parametrize("allowed", [None, lambda y: y.sum() <= 2])
def test_enumeration_keeps_to_its_own_contract(allowed: Callable[[Labels], bool] | None) -> None:
    """Pins, batches and copies of the definition itself, whose pins are solved one by one."""
    listed = pm.BruteForce(allowed)
    pm.testing.check_structure(listed, pm.testing.forests, listed, sizes=SIZES[:16])


def at_most_two(unary: Floats) -> Labels:
    gain = unary[:, 1] - unary[:, 0]
    picked = np.zeros(len(unary), dtype=np.int32)
    picked[np.argsort(-gain, kind="stable")[:2]] = 1
    return np.where(gain > 0, picked, 0).astype(np.int32)


def test_a_solver_of_the_users_is_a_structure() -> None:
    """FromSolver of a plain function has pins, given labels and batches, as the labellings that it allows."""
    listed = pm.BruteForce(allowed=lambda y: y.sum() <= 2)
    pm.testing.check_structure(
        FromSolver(at_most_two), pm.testing.unaries, listed, sizes=[(n, 2) for n in range(1, 7)]
    )


@pytest.mark.parametrize("structure", [s for s in STRUCTURES if s.is_exact], ids=repr)
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
        sites, edges = f.layout.sites(n), f.layout.edges_between(n)
        alone = everything(example, weights[sites], 1)
        for which, part in enumerate([slice(n, n + 1), sites, sites, edges, sites, edges]):
            if part is not edges or not is_shared:
                whole = one[which]
                assert whole is not None
                np.testing.assert_array_equal(whole[part], alone[which])


# Models.


def random_examples(rng: np.random.Generator) -> dict[str, list[Any]]:
    grids = [(1, 1), (2, 2), (2, 3), (1, 3)]
    features = [rng.normal(size=(h * w, 3)).round(3) for h, w in grids]
    edges = [pm.grid_edges(h, w) for h, w in grids]
    signed = [pm.Example(x, e, rng.normal(size=(len(e), 2)).round(3)) for x, e in zip(features, edges, strict=True)]
    return {
        "signed edge features": signed,
        "chains": features,
        "sparse": [sp.csr_array(x) for x in features],
        "graphs": [pm.Example(x, e) for x, e in zip(features, edges, strict=True)],
        "edge features": [
            pm.Example(x, e, rng.uniform(size=(len(e), 2)).round(3)) for x, e in zip(features, edges, strict=True)
        ],
        "label features": [pm.Example(x, label_features=rng.normal(size=(6, 2)).round(3)) for x in features],
    }


@pytest.mark.parametrize(
    ("model", "n_labels", "kinds", "refused"),
    [
        (pm.SequenceModel(), 3, ["chains", "sparse", "graphs"], []),
        (pm.GraphModel(), 2, ["chains", "sparse", "graphs", "edge features"], ["signed edge features"]),
        (pm.GraphModel(), 4, ["chains", "sparse", "graphs", "edge features"], ["signed edge features"]),
        (pm.GraphModel("symmetric"), 2, ["chains", "sparse", "graphs", "signed edge features"], []),
        (pm.GraphModel("symmetric"), 4, ["chains", "sparse", "graphs", "signed edge features"], []),
        (pm.GraphModel("directed"), 2, ["chains", "sparse", "graphs", "signed edge features"], []),
        (pm.GraphModel("directed"), 4, ["chains", "sparse", "graphs", "signed edge features"], []),
        (pm.MatchingModel(), 6, ["label features"], ["chains"]),
    ],
    ids=repr,
)
def test_a_model_keeps_to_its_contract(
    model: pm.Model, n_labels: int, kinds: list[str], refused: list[str], rng: np.random.Generator
) -> None:
    """Potentials that keep their streams in every batch, and their gradient."""
    examples = random_examples(rng)
    for kind in kinds:
        pm.testing.check_model(model, examples[kind], n_labels, refused=[examples[name] for name in refused])


# Objectives and losses.

PERTURBED: list[pm.Objective] = [
    pm.LogLikelihood(),
    pm.MarginalLogLikelihood(),
    pm.MarginalLogLikelihood(pm.BalancedHamming(), integrate_noise=False),
    pm.MarginalLogLikelihood(pm.WeightedHamming(), conditional=True),
    pm.StructuredHinge(),
    pm.StructuredHinge(pm.WeightedHamming()),
]
EXACT: list[pm.Objective] = [
    pm.ExactLogLikelihood(),
    pm.ExactMarginalLogLikelihood(),
    pm.ExactMarginalLogLikelihood(pm.BalancedHamming()),
]


@every_kind
@pytest.mark.parametrize("objective", PERTURBED + EXACT, ids=repr)
def test_an_objective_keeps_to_its_contract(objective: pm.Objective, kind: Kind) -> None:
    """Values, gradients and flags on every structure that the objective can use; the others it refuses."""
    if objective in EXACT and not kind.structure.can_sum:
        with pytest.raises(TypeError, match="sums over all labellings"):
            objective.check(kind.structure)
        return
    pm.testing.check_objective(objective, kind.structure, kind.make, kind.definition, sizes=kind.sizes, n_repeats=1)


@pytest.mark.parametrize(
    ("loss", "plain"),
    [
        (pm.Hamming(), lambda y, z, sizes: np.mean(y != z)),
        (pm.WeightedHamming(), lambda y, z, sizes: sizes[y != z].sum()),
        (pm.WeightedHamming([1, 2, 5]), lambda y, z, sizes: (sizes * np.array([1, 2, 5])[y])[y != z].sum()),
        (
            pm.BalancedHamming(),
            lambda y, z, sizes: np.mean([sizes[(y == k) & (z != k)].sum() / sizes[y == k].sum() for k in set(y)]),
        ),
        (pm.ZeroOne(), lambda y, z, sizes: float((y != z).any())),
    ],
    ids=["Hamming", "WeightedHamming", "WeightedHamming with costs", "BalancedHamming", "ZeroOne"],
)
def test_a_loss_is_its_definition(loss: pm.TaskLoss, plain: Callable[[Labels, Labels, Floats], float]) -> None:
    """Its value is that of the plain formula; what is not known costs nothing."""
    pm.testing.check_task_loss(loss, plain)
    pm.testing.check_task_loss(loss)


# Inference and solvers.


@every_kind
@pytest.mark.parametrize("method", [pm.PINNED, pm.INTEGRATED, pm.COUNTED, pm.EXACT], ids=repr)
def test_a_marginal_method_keeps_to_its_contract(method: pm.MarginalMethod, kind: Kind) -> None:
    """Probabilities, and their gradient where they are no counts."""
    if not method.is_perturbed and not kind.structure.can_sum:
        with pytest.raises(TypeError, match="sums over all labellings"):
            method.check(kind.structure)
        return
    pm.testing.check_marginal_method(
        method, kind.structure, kind.make, kind.definition, sizes=kind.sizes, is_differentiable=method != pm.COUNTED
    )


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        (pm.DoubleSGD(n_passes=10, batch_size=5), {}),
        (pm.DoubleSGD(n_passes=10, averaging=pm.NoAveraging()), {}),
        (pm.DoubleSGD(n_passes=10, averaging=pm.SuffixAveraging(0.3), step=pm.PlainStep(0.5)), {}),
        (pm.DoubleSGD(min_steps=20, n_passes=1, averaging=pm.UniformAveraging()), {}),
        # Its memory of past gradients is no part of a state: it ends at the same maximum, by other steps.
        (pm.LBFGS(1e-6), {"resumes_exactly": False, "tolerance": 1e-5}),
        (pm.BCFW(), {"tolerance": 0.01}),
        (pm.BCFW(0.1, 50, batch_size=3, gap_sampling=False, pairwise_steps=False), {}),
        (pm.BCFW(0.05, 50, cache=True, averaging=pm.PolynomialAveraging(1)), {}),
    ],
    ids=repr,
)
def test_a_solver_keeps_to_its_contract(solver: pm.Solver[Any], options: dict[str, Any]) -> None:
    """It improves the objective, stops when it is told to, and goes on where it was stopped."""
    pm.testing.check_solver(solver, **options)


def test_local_steps_keep_to_the_contract_of_solvers(tmp_path: Path) -> None:
    """Rounds of LocalSGD on the shards of a small store."""
    store, objective = make_store(tmp_path / "store", n=12, shards=3), pm.MarginalLogLikelihood()
    known = pm.SiteLabels.of(store.y.numbers, 2, store.dataset.layout, store.dataset.sizes)
    problem = Problem(
        store.dataset, objective.targets(known), 2, pm.GraphModel(), BinaryGraph(), objective, l2=0.1, seed=0
    )
    pm.testing.check_solver(pm.LocalSGD(pm.DoubleSGD(n_passes=3, batch_size=4)), [problem])
