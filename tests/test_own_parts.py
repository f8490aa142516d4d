"""Parts that are written in the tests go wherever those of the package go, without an edit to the package."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import perturbmap as pm
from perturbmap.potentials import Labels
from tests.own_parts import (
    PARTS,
    Ascent,
    AtMost,
    BoundedModel,
    Exponential,
    Greedy,
    Perceptron,
    RootHamming,
    Smoothed,
    SmoothModel,
)

TWO_LABELS = [(n, 2) for n in range(1, 7)]
AT_MOST_TWO = pm.BruteForce(allowed=lambda y: y.sum() <= 2)


def examples(n: int = 20, seed: int = 0) -> tuple[list[pm.Example], list[Labels]]:
    """Sites in any number, of which two at most have label 1; the features tell which, with noise."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for n_sites in rng.integers(2, 7, n).tolist():
        labels = np.zeros(n_sites, dtype=np.int32)
        labels[rng.permutation(n_sites)[: rng.integers(0, 3)]] = 1
        features = np.column_stack([np.eye(2)[labels] + rng.normal(0, 0.5, (n_sites, 2)), np.ones(n_sites)])
        X.append(pm.Example(features, sizes=rng.uniform(1, 4, n_sites)))
        y.append(labels)
    return X, y


def picker(**parameters: Any) -> pm.StructuredPredictor:
    """An estimator that is made of parts of the tests alone."""
    settings: dict[str, Any] = {
        "model": BoundedModel(),
        "structure": AtMost(2),
        "objective": pm.MarginalLogLikelihood(RootHamming()),
        "solver": Ascent(max_iter=40, averaging=Exponential()),
        "l2": 0.1,
        "n_perturbations": 8,
        "random_state": 0,
        **parameters,
    }
    return pm.StructuredPredictor(**settings)


# They pass the checks.


def test_own_structures_pass() -> None:
    """An exact one against its labellings, and one that says it is not exact against all."""
    pm.testing.check_structure(AtMost(2), pm.testing.unaries, AT_MOST_TWO, sizes=TWO_LABELS)
    for make in (pm.testing.forests, pm.testing.attractive_graphs):
        pm.testing.check_structure(Greedy(), make, n_repeats=2)
        pm.testing.check_structure(Greedy(with_bound=False), make, n_repeats=2)


@pytest.mark.parametrize("model", [SmoothModel(), BoundedModel(2.0)], ids=repr)
def test_own_models_pass(model: pm.Model, rng: np.random.Generator) -> None:
    """A linear one and one that is not."""
    pm.testing.check_model(model, [rng.normal(size=(n, 3)).round(3) for n in (1, 2, 4, 3)], n_labels=3)


def test_own_objective_loss_and_method_pass() -> None:
    """On chains, and on the structure of the tests."""
    pm.testing.check_objective(Perceptron(2.0))
    pm.testing.check_objective(Perceptron(2.0), AtMost(2), pm.testing.unaries, AT_MOST_TWO, sizes=TWO_LABELS)
    pm.testing.check_task_loss(RootHamming(), lambda y, z, sizes: float((sizes**0.5)[y != z].sum()))
    pm.testing.check_marginal_method(Smoothed())
    pm.testing.check_marginal_method(Smoothed(), AtMost(2), pm.testing.unaries, AT_MOST_TWO, sizes=TWO_LABELS)


@pytest.mark.parametrize("solver", [Ascent(), Ascent(0.05, averaging=Exponential(0.5))], ids=repr)
def test_own_solvers_pass(solver: pm.Solver[Any]) -> None:
    """With and without an average of the tests."""
    pm.testing.check_solver(solver)


# They fit and predict.


def test_own_parts_learn() -> None:
    """Fit, predict and marginals; what is predicted keeps to the structure, and better than by chance."""
    X, y = examples()
    fitted = picker().fit(X, y)
    assert fitted.score(X, y) > picker(solver=Ascent(max_iter=1, step=1e-9)).fit(X, y).score(X, y)
    assert all(labels.sum() <= 2 for labels in fitted.predict(X))
    for method in (None, Smoothed(), pm.COUNTED):
        for q in fitted.predict_marginals(X, method=method):
            np.testing.assert_allclose(q.sum(axis=1), 1)
    assert sorted(fitted.weights_) == ["features"]


@pytest.mark.parametrize(
    "parts",
    [
        {"objective": Perceptron()},
        {"structure": Greedy(), "model": SmoothModel()},
        {"structure": Greedy(), "model": SmoothModel(), "objective": pm.StructuredHinge()},
        {"model": SmoothModel(), "structure": pm.Chain(), "objective": pm.ExactLogLikelihood(), "solver": None},
    ],
    ids=repr,
)
def test_own_parts_go_with_each_other_and_with_ours(parts: dict[str, Any]) -> None:
    """Each combination learns something."""
    X, y = examples()
    fitted = picker(**parts).fit(X, y)
    assert fitted.score(X, y) > 0.5
    assert np.abs(fitted.coef_).max() > 0


def test_own_parameters_are_searched() -> None:
    """GridSearchCV reaches the parameters of every part, and of the parts of parts."""
    X, y = examples(12)
    grid = {
        "structure__m": [2, 3],
        "model__bound": [1.0, 3.0],
        "objective__loss__power": [0.0, 1.0],
        "solver__step": [0.1, 0.2],
        "solver__averaging__keep": [0.2],
    }
    search = GridSearchCV(picker(solver=Ascent(max_iter=3, averaging=Exponential())), grid, cv=2, error_score="raise")
    search.fit(X, y)
    assert set(search.best_params_) == set(grid)
    assert len(search.cv_results_["params"]) == 16
    assert search.best_estimator_.structure == AtMost(search.best_params_["structure__m"])


def test_own_parts_are_cloned() -> None:
    """A clone is equal part by part, and shares none of them."""
    estimator = picker()
    copy = clone(estimator)
    for name in ("model", "structure", "objective", "solver"):
        assert getattr(copy, name) == getattr(estimator, name)
        assert getattr(copy, name) is not getattr(estimator, name)
    assert copy.set_params(structure__m=1).structure == AtMost(1)
    assert estimator.structure == AtMost(2)


# They are interrupted, saved and loaded.


class KilledError(Exception):
    """Stands for a process that ends."""


def kill_after(n_reports: int) -> Any:
    seen: list[dict[str, Any]] = []

    def callback(info: dict[str, Any]) -> None:
        seen.append(info)
        if len(seen) == n_reports:
            raise KilledError

    return callback


def test_a_fit_with_own_parts_is_taken_up_again(tmp_path: Path) -> None:
    """It ends with the bits of one that was never interrupted; other parameters of an own part are refused."""
    X, y = examples()
    path = tmp_path / "checkpoint"
    whole = picker().fit(X, y)
    with pytest.raises(KilledError):
        picker().fit(X, y, checkpoint=path, checkpoint_seconds=0, callback=kill_after(7))
    written = path.read_bytes()
    for other in (
        picker(structure=AtMost(3)),
        picker(model=BoundedModel(2.0)),
        picker(objective=pm.MarginalLogLikelihood(RootHamming(1.0))),
        picker(solver=Ascent(max_iter=40, averaging=Exponential(0.5))),
    ):
        with pytest.raises(ValueError, match="other data or parameters"):
            other.fit(X, y, checkpoint=path)
    assert path.read_bytes() == written
    same = picker(structure=AtMost(2, n_threads=1)).fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(same.coef_, whole.coef_)
    assert [entry["iteration"] for entry in same.history_] == [entry["iteration"] for entry in whole.history_]


def test_own_parts_are_saved_and_loaded(tmp_path: Path) -> None:
    """With their classes; without them, the error says how."""
    X, y = examples()
    fitted = picker().fit(X, y)
    path = tmp_path / "picker.npz"
    fitted.save(path)
    with pytest.raises(ValueError, match=r"load\(path, parts=\["):
        pm.StructuredPredictor.load(path)
    with pytest.raises(ValueError, match="AtMost"):
        pm.StructuredPredictor.load(path, parts=[part for part in PARTS if part is not AtMost])
    loaded = pm.StructuredPredictor.load(path, parts=PARTS)
    for name in ("model", "structure", "objective", "solver"):
        assert getattr(loaded, name) == getattr(fitted, name)
    np.testing.assert_array_equal(loaded.coef_, fitted.coef_)
    for one, other in zip(loaded.predict_marginals(X), fitted.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_function_is_not_saved(tmp_path: Path) -> None:
    """FromSolver holds one: the error says so, and leaves no file."""
    X, y = examples()
    fitted = picker(structure=pm.FromSolver(lambda unary: unary.argmax(axis=1))).fit(X, y)
    with pytest.raises(ValueError, match="cannot be saved"):
        fitted.save(tmp_path / "picker.npz")
    assert not list(tmp_path.iterdir())


# They work on stores and in torch.


def test_own_parts_work_on_stores(tmp_path: Path) -> None:
    """Fits by LocalSGD and predictions are the same bits with one worker and with two."""
    X, y = examples(30)
    pm.write_store(tmp_path / "store", X, y, classes=[0, 1], shard_bytes=1200, dtype="float64")
    store = pm.Store(tmp_path / "store")
    assert len(store.shards) > 2
    solver = pm.LocalSGD(pm.DoubleSGD(n_passes=3, batch_size=8, averaging=Exponential()))
    one, two = (picker(solver=solver, n_jobs=n).fit(store, store.y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    labels = [one.predict(store), two.predict(store), one.predict(X)]
    marginals = [e.predict_marginals(data, method=Smoothed()) for e, data in ((one, store), (two, store), (one, X))]
    for answers in (*zip(*labels, strict=True), *zip(*marginals, strict=True)):
        np.testing.assert_array_equal(answers[0], answers[1])
        np.testing.assert_array_equal(answers[0], answers[2])


def test_own_parts_are_layers() -> None:
    """Loss, marginals and best labelling of tensors, with gradients, are those of the arrays."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(2, 4, 2))
    f = pm.Potentials.batch([pm.Potentials(u) for u in unary])
    labels = np.array([[0, 1, 0, 1], [0, 0, 0, 1]])
    tensor = torch.tensor(unary, requires_grad=True)

    loss = pm.nn.StructuredLoss(Perceptron(2.0), AtMost(2))(tensor, torch.tensor(labels))
    loss.backward()
    known = pm.SiteLabels.of(labels.ravel(), 2, f.layout)
    value, gradient = Perceptron(2.0).value_and_grad(f, Perceptron(2.0).targets(known), AtMost(2), None)
    assert loss.item() == pytest.approx(-value.mean())
    np.testing.assert_allclose(tensor.grad.numpy().reshape(-1, 2), -gradient.unary / 2)

    layer = pm.nn.Marginals(AtMost(2), Smoothed(), n_perturbations=4, seed=0).eval()
    q = layer(tensor)
    assert torch.allclose(q.sum(-1), torch.ones(2, 4, dtype=q.dtype))
    assert torch.autograd.gradcheck(layer, (tensor.detach().requires_grad_(),))
    assert (pm.nn.BestLabelling(AtMost(2))(tensor).sum(1) <= 2).all()
