"""`GraphModel` for any number of labels: its three kinds of tables, and all that is learned with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.data import Dataset
from perturbmap.potentials import Floats
from perturbmap.support.description import from_json

KINDS = ["potts", "symmetric", "directed"]
every_kind = pytest.mark.parametrize("pairwise", KINDS)
OBJECTIVES: list[pm.Objective] = [
    pm.LogLikelihood(),
    pm.MarginalLogLikelihood(),
    pm.MarginalLogLikelihood(pm.BalancedHamming()),
    pm.ExactLogLikelihood(),
    pm.ExactMarginalLogLikelihood(pm.BalancedHamming()),
    pm.StructuredHinge(),
]
Labelled = tuple[list[pm.Example], list[np.ndarray]]


def steps(n: int, rng: np.random.Generator) -> Labelled:
    """Chains whose labels count upwards, modulo three."""
    return with_features([(rng.integers(3) + np.arange(7)) % 3 for _ in range(n)], rng)


def halves(n: int, rng: np.random.Generator) -> Labelled:
    """Chains of three labels that change once."""
    return with_features([np.repeat(rng.permutation(3)[:2], 5) for _ in range(n)], rng)


def with_features(y: list[np.ndarray], rng: np.random.Generator) -> Labelled:
    """Features that tell the label, with noise; one feature of every edge."""
    X = [np.eye(3)[labels] + rng.normal(size=(len(labels), 3)) for labels in y]
    return [pm.Example(x, edge_features=np.ones((len(x) - 1, 1))) for x in X], y


def accuracy(est: pm.StructuredPredictor, X: list[pm.Example], y: list[np.ndarray]) -> float:
    return float(np.mean(np.concatenate(est.predict(X)) == np.concatenate(y)))


def random_weights(model: pm.GraphModel, data: Dataset, n_labels: int, rng: np.random.Generator) -> Floats:
    return model.project(rng.normal(size=model.n_weights(data, n_labels)), data, n_labels)


@every_kind
@pytest.mark.parametrize("has_edge_features", [False, True])
def test_the_score_is_the_formula(pairwise: str, has_edge_features: bool, rng: np.random.Generator) -> None:
    """f(y) summed site by site and edge by edge, from the blocks of weights."""
    edges = np.array([[0, 1], [2, 1], [2, 0], [3, 2]])
    x_e = rng.uniform(size=(4, 2)) if has_edge_features else None
    data = Dataset.from_examples([pm.Example(rng.normal(size=(4, 3)), edges, x_e)])
    model = pm.GraphModel(pairwise)
    w = random_weights(model, data, 3, rng)
    blocks = model.unpack(w, data, 3)
    x, rows = data.features @ np.eye(3), np.ones((4, 1)) if x_e is None else x_e
    for y in ([0, 1, 2, 0], [2, 2, 1, 1], [0, 0, 0, 0]):
        expected = sum(blocks["features"][k] @ x[d] + blocks["bias"][k] for d, k in enumerate(y))
        for e, (i, j) in enumerate(edges):
            a, b = y[i], y[j]
            if pairwise == "potts":
                scores = -blocks["edges"] * (a != b)
            elif pairwise == "symmetric":
                scores = (blocks["edges"][:, a, b] + blocks["edges"][:, b, a]) / 2
            else:
                scores = blocks["edges"][:, a, b]
            expected += rows[e] @ scores
        np.testing.assert_allclose(model.potentials(w, data, 3).score(y), [expected])


def test_potts_tables_have_one_number_for_all_pairs_that_differ(rng: np.random.Generator) -> None:
    """To the bit, however the products with edge features are rounded."""
    example = pm.Example(rng.normal(size=(9, 3)), pm.grid_edges(3, 3), rng.uniform(size=(12, 5)))
    data = Dataset.from_examples([example])
    tables = pm.GraphModel().potentials(random_weights(pm.GraphModel(), data, 7, rng), data, 7).tables
    apart = tables[:, ~np.eye(7, dtype=bool)]
    np.testing.assert_array_equal(apart, np.broadcast_to(apart[:, :1], apart.shape))
    np.testing.assert_array_equal(tables[:, np.eye(7, dtype=bool)], 0.0)
    assert (apart < 0).all()


def test_two_labels_have_one_score(rng: np.random.Generator) -> None:
    """The Potts model of two labels is that of any number with opposite weights: the same potentials."""
    data = Dataset.from_examples([pm.Example(rng.normal(size=(6, 3)), pm.grid_edges(2, 3), rng.uniform(size=(7, 2)))])
    w = random_weights(pm.GraphModel(), data, 2, rng)
    f = pm.GraphModel().potentials(w, data, 2)
    tables = -w[4:, None, None] * (1 - np.eye(2))
    both = np.concatenate([-w[:3], w[:3], [-w[3], w[3]], tables.ravel()])
    for pairwise in ("symmetric", "directed"):
        g = pm.GraphModel(pairwise).potentials(both, data, 2)
        np.testing.assert_allclose(g.unary, f.unary)
        np.testing.assert_allclose(g.tables, f.tables, atol=1e-12)


def test_without_edge_features_all_edges_share_a_table(rng: np.random.Generator) -> None:
    """A feature of 1 on every edge gives the same scores, with a table for each edge."""
    edges = pm.grid_edges(2, 3)
    x = rng.normal(size=(6, 2))
    bare = Dataset.from_examples([pm.Example(x, edges)])
    ones = Dataset.from_examples([pm.Example(x, edges, np.ones((len(edges), 1)))])
    for pairwise in KINDS:
        model = pm.GraphModel(pairwise)
        w = random_weights(model, bare, 4, rng)
        f, g = model.potentials(w, bare, 4), model.potentials(w, ones, 4)
        assert f.is_shared
        assert not g.is_shared
        np.testing.assert_allclose(f.tables, g.tables)


@pytest.mark.parametrize(
    ("pairwise", "finds_direction"), [("potts", False), ("symmetric", False), ("directed", True)]
)
def test_a_direction_is_learned_by_directed_tables_alone(
    pairwise: str, finds_direction: bool, rng: np.random.Generator
) -> None:
    """Labels that count upwards along the edges; without the direction, neighbours say little."""
    X, y = steps(60, rng)
    est = pm.StructuredPredictor(pm.GraphModel(pairwise), pm.Chain(), l2=1e-2, random_state=0).fit(X[:30], y[:30])
    assert (accuracy(est, X[30:], y[30:]) > 0.85) == finds_direction


def test_repulsion_is_learned(rng: np.random.Generator) -> None:
    """Neighbours always differ: symmetric tables learn a lower score of equal pairs, Potts weights end at zero."""
    y = [np.cumsum(rng.integers(1, 3, 7)) % 3 for _ in range(40)]
    X, y = with_features(y, rng)
    potts, free = (
        pm.StructuredPredictor(pm.GraphModel(kind), pm.Chain(), l2=1e-2, random_state=0).fit(X, y)
        for kind in ("potts", "symmetric")
    )
    np.testing.assert_allclose(potts.weights_["edges"], 0.0, atol=1e-6)
    table = free.weights_["edges"][0]
    assert table[np.eye(3, dtype=bool)].mean() < table[~np.eye(3, dtype=bool)].mean() - 0.5
    np.testing.assert_array_equal(table, table.T)


@pytest.mark.parametrize(
    ("objective", "pairwise"), [(objective, KINDS[n % 3]) for n, objective in enumerate(OBJECTIVES)], ids=repr
)
def test_every_objective_learns_and_every_kind_is_learned(
    objective: pm.Objective, pairwise: str, rng: np.random.Generator
) -> None:
    """Better than each site by itself, on chains whose neighbours are equal."""
    X, y = halves(80, rng)
    test, truth = X[40:], y[40:]
    est = pm.StructuredPredictor(pm.GraphModel(pairwise), pm.Chain(), objective, l2=0.03, random_state=0)
    alone = np.mean([np.mean(x.features.argmax(axis=1) == labels) for x, labels in zip(test, truth, strict=True)])
    assert accuracy(est.fit(X[:40], y[:40]), test, truth) > alone + 0.05


@pytest.mark.parametrize("pairwise", ["symmetric", "directed"])
def test_repulsion_on_a_grid_is_learned_by_graph(pairwise: str, rng: np.random.Generator) -> None:
    """Three labels in stripes that never touch themselves to the right, and always below, told by edge features."""
    edges = pm.grid_edges(4, 6)
    is_across = (edges[:, 1] - edges[:, 0] == 1).astype(float)
    y = [np.tile((rng.integers(3) + rng.choice([1, 2]) * np.arange(6)) % 3, 4) for _ in range(40)]
    X = [
        pm.Example(np.eye(3)[labels] + rng.normal(size=(24, 3)), edges, np.stack([is_across, 1 - is_across], axis=1))
        for labels in y
    ]
    est = pm.StructuredPredictor(
        pm.GraphModel(pairwise),
        pm.Graph(n_threads=1),
        l2=1e-2,
        solver=pm.DoubleSGD(n_passes=1, min_steps=200),
        random_state=0,
    ).fit(X[:20], y[:20])
    across, down = est.weights_["edges"]
    assert np.trace(across) / 3 < across[~np.eye(3, dtype=bool)].mean() - 0.5
    assert np.trace(down) / 3 > down[~np.eye(3, dtype=bool)].mean() + 0.5
    assert accuracy(est, X[20:], y[20:]) > 0.85
    alone = np.mean([np.mean(x.features.argmax(axis=1) == labels) for x, labels in zip(X, y, strict=True)])
    assert alone < 0.7


@every_kind
def test_unknown_labels_calibration_and_files(pairwise: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Sites that are not known, examples without labels, folds; what is saved is loaded with the same answers."""
    X, y = halves(30, rng)
    weak: list[Any] = [*y[:10], *[np.where(rng.random(10) < 0.5, labels, -1) for labels in y[10:20]], *[None] * 10]
    est = pm.StructuredPredictor(
        pm.GraphModel(pairwise),
        pm.Chain(),
        pm.MarginalLogLikelihood(pm.BalancedHamming()),
        l2=1e-2,
        calibration=3,
        decoding=pm.Decoding.LOSS_AWARE,
        n_perturbations=20,
        random_state=0,
    ).fit(X, weak)
    assert accuracy(est, X, y) > 0.75
    assert est.calibration_ is not None
    assert est.calibration_.shift.shape == (3,)
    est.save(tmp_path / "model.pm")
    loaded = pm.StructuredPredictor.load(tmp_path / "model.pm")
    assert loaded.model == pm.GraphModel(pairwise)
    np.testing.assert_array_equal(loaded.predict_marginals(X), est.predict_marginals(X))
    np.testing.assert_array_equal(loaded.predict(X), est.predict(X))


@every_kind
def test_a_store_gives_the_same_weights(pairwise: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Examples on disk are learned from as those in memory are."""
    X, y = halves(12, rng)
    pm.write_store(tmp_path / "store", X, y, classes=[0, 1, 2], dtype="float64")
    est = pm.StructuredPredictor(
        pm.GraphModel(pairwise), pm.Chain(), l2=0.1, solver=pm.DoubleSGD(n_passes=2), random_state=0
    )
    store = pm.Store(tmp_path / "store")
    np.testing.assert_array_equal(est.fit(store, store.y).coef_, est.fit(X, y).coef_)


def test_a_file_from_before_there_were_kinds_has_potts_weights() -> None:
    """The model had no parameters then."""
    assert from_json({"class": "GraphModel", "params": {}, "own": False}) == pm.GraphModel("potts")


def test_the_wrong_structure_says_which_is_right(rng: np.random.Generator) -> None:
    """More labels than two, and edges that repel, are not for minimum cuts."""
    edges = np.array([[0, 1], [1, 2], [2, 0]])
    X = [pm.Example(rng.normal(size=(3, 2)), edges) for _ in range(4)]
    est = pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), random_state=0)
    with pytest.raises(ValueError, match=r"BinaryGraph needs two labels, but unary has 3\. Use Graph"):
        est.fit(X, [[0, 1, 2]] * 4)
    est.set_params(model=pm.GraphModel("symmetric"))
    with pytest.raises(ValueError, match=r"BinaryGraph needs supermodular potentials.*or use Graph"):
        est.fit(X, [[0, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]])
    with pytest.raises(ValueError, match="pairwise must be one of 'potts', 'symmetric', 'directed', but is 'full'"):
        est.set_params(model=pm.GraphModel("full")).fit(X, [[0, 1, 0]] * 4)


def test_weights_are_those_that_enumeration_learns() -> None:
    """Of three labels on triangles: under the same noise, the difference is far below what other noise makes."""
    rng = np.random.default_rng(0)
    edges = [(0, 1), (1, 2), (2, 0)]
    X, y = [], []
    for seed in range(30):
        x, strengths = rng.normal(size=(3, 2)), rng.uniform(size=(3, 1))
        f = pm.Potentials(
            x @ np.array([[1.5, -1.0, 0.0], [0.0, 1.0, -1.0]]), 2 * strengths[..., None] * np.eye(3), edges
        )
        X.append(pm.Example(x, edges, strengths))
        y.append(pm.BruteForce().sample(f, rng=seed)[0])

    def learned(structure: pm.Structure, seed: int) -> Floats:
        solver = pm.LBFGS(1e-2, n_draws=2, max_draws=2)
        predictor = pm.StructuredPredictor(
            pm.GraphModel(), structure, pm.MarginalLogLikelihood(), l2=0.1, solver=solver, random_state=seed
        )
        return np.asarray(predictor.fit(X, y).coef_)

    ours = np.stack([learned(pm.Graph(), seed) for seed in range(8)])
    difference = np.abs(ours[0] - learned(pm.BruteForce(), 0))
    of_noise = ours.std(axis=0, ddof=1)
    assert (difference < of_noise).all()
    assert difference.mean() < of_noise.mean() / 4
    assert ours[:, -1].min() > 0  # edges are learned
