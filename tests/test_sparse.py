"""Sparse features: the same answers as dense ones, at the cost of what is there."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import perturbmap as pm
from perturbmap.data import Dataset
from perturbmap.data.sparse_rows import SparseMatrix, SparseRows
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem
from perturbmap.solvers.adaptive_step import AdaptiveRule
from perturbmap.solvers.averaging import (
    Averaging,
    NoAveraging,
    PolynomialAveraging,
    SuffixAveraging,
    UniformAveraging,
)
from perturbmap.solvers.iterate import Iterate
from perturbmap.solvers.pieces import Piece

N_FEATURES, N_LABELS = 200, 4
EVERY_WEIGHT = pm.SequenceModel(min_count=0)


def sentences(n: int, seed: int = 0, binary: bool = False) -> tuple[list[Any], list[Any]]:
    """Chains whose few features depend on their labels; some features are common, most are rare."""
    rng = np.random.default_rng(seed)
    popular = 1.0 / np.arange(1, N_FEATURES + 1)
    X, y = [], []
    for _ in range(n):
        labels = rng.integers(N_LABELS, size=rng.integers(2, 9))
        dense = np.zeros((len(labels), N_FEATURES))
        for row, label in zip(dense, labels, strict=True):
            row[rng.choice(N_FEATURES, size=5, replace=False, p=popular / popular.sum())] = 1.0
            row[label * 7 : label * 7 + 2] = 1.0
        X.append(sp.csr_array(dense if binary else dense * rng.normal(1, 0.3, dense.shape)))
        y.append(labels)
    return X, y


def dense(X: list[Any]) -> list[Floats]:
    return [x.toarray() for x in X]


def fitted(X: list[Any], y: list[Any], **parameters: Any) -> pm.StructuredPredictor:
    settings = {"model": EVERY_WEIGHT, "l2": 0.01, "random_state": 0, **parameters}
    return pm.StructuredPredictor(**settings).fit(X, y)


def rows_of(X: list[Any]) -> SparseRows:
    features = Dataset.from_examples(X).features
    assert isinstance(features, SparseRows)
    return features


# Products.


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.bool_, np.int64])
@pytest.mark.parametrize("k", [1, 2, 3, 17])
def test_products_are_those_of_the_dense_matrix(dtype: Any, k: int, rng: np.random.Generator) -> None:
    X = [x.astype(dtype) for x in sentences(7, binary=dtype is np.bool_)[0]]
    rows, whole = rows_of(X), np.concatenate(dense(X)).astype(np.float64)
    w, v = rng.normal(size=(N_FEATURES, k)), rng.normal(size=(len(whole), k))
    np.testing.assert_allclose(rows @ w, whole @ w, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(rows.pullback(v), whole.T @ v, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(rows @ w[:, 0], whole @ w[:, 0], rtol=1e-13, atol=1e-13)
    some = np.array([4, 0, 4, 6])
    np.testing.assert_allclose(rows.take(some) @ w, np.concatenate([dense(X)[i] for i in some]) @ w, atol=1e-12)
    assert rows.mean_squared_norm() == pytest.approx((whole**2).sum() / len(whole))
    assert rows.mean_absolute_sum() == pytest.approx(np.abs(whole).sum() / len(whole))
    assert rows.minimum() == min(0.0, whole.min())


def test_what_is_all_ones_is_kept_without_values_and_float32_as_it_is() -> None:
    X = sentences(5, binary=True)[0]
    assert rows_of(X).matrix.values is None
    single = [(2 * x).astype(np.float32) for x in X]
    values = rows_of(single).matrix.values
    assert values is not None
    assert values.dtype == np.float32
    assert rows_of(single).matrix.indices.dtype == np.int32


def test_columns_may_repeat_and_need_not_be_sorted() -> None:
    x = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    assert (rows_of([x]) @ np.eye(3)).tolist() == [[2.0, 0.0, 5.0]]


def test_compact_rows_have_the_columns_that_are_there(rng: np.random.Generator) -> None:
    for binary in (False, True):
        X = sentences(9, binary=binary)[0]
        rows = rows_of(X).take(np.array([3, 1, 3]))
        small, columns = rows.compact()
        whole = np.concatenate([dense(X)[i] for i in (3, 1, 3)])
        assert sorted(columns) == np.flatnonzero(whole.any(axis=0)).tolist()
        assert small.n_columns == len(columns)
        w = rng.normal(size=(N_FEATURES, 2))
        np.testing.assert_array_equal(small @ w[columns], rows @ w)


def test_threads_change_no_bit(rng: np.random.Generator) -> None:
    X = sentences(3000)[0]
    rows, w = rows_of(X), rng.normal(size=(N_FEATURES, 40))
    one = SparseRows(rows.matrix, rows.starts, rows.stops, n_threads=1)
    many = SparseRows(rows.matrix, rows.starts, rows.stops, n_threads=5)
    np.testing.assert_array_equal(one @ w, many @ w)


def test_a_matrix_travels(rng: np.random.Generator) -> None:
    rows = rows_of(sentences(4)[0])
    w = rng.normal(size=(N_FEATURES, 2))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows)) @ w, rows @ w)


@pytest.mark.parametrize(
    ("starts", "indices"),
    [([0, 3], [0, 1]), ([0, 2], [0, 9]), ([0, 2], [0, -1]), ([1, 2], [0, 1]), ([0, 2, 1, 2], [0, 1])],
)
def test_the_core_refuses_what_is_no_matrix(starts: list[int], indices: list[int]) -> None:
    matrix = SparseMatrix(np.array(starts), np.array(indices, dtype=np.int32), None, 5)
    with pytest.raises(ValueError, match="must be those of a matrix"):
        _ = matrix.in_core


def test_bad_numbers_are_named() -> None:
    X, y = sentences(3)
    X[1].data[0] = np.nan
    with pytest.raises(ValueError, match="features of example 1"):
        pm.StructuredPredictor().fit(X, y)
    with pytest.raises(ValueError, match="features of example 0 must be numbers"):
        pm.StructuredPredictor().fit([X[0].astype(np.complex128)], y[:1])


# Learning.


@pytest.mark.parametrize("averaging", [None, NoAveraging(), UniformAveraging(), SuffixAveraging(0.3)])
def test_plain_steps_are_those_of_dense_features(averaging: Averaging | None) -> None:
    """Up to rounding: weights are scaled, averages lag behind, but nothing else is done."""
    X, y = sentences(40)
    solver = pm.DoubleSGD(5, 4, pm.PlainStep(), averaging)
    one, other = fitted(X, y, solver=solver), fitted(dense(X), y, solver=solver)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9, atol=1e-12)
    assert one.history_[-1]["objective"] == pytest.approx(other.history_[-1]["objective"], rel=1e-9)


def test_plain_steps_with_weights_of_one_sign(rng: np.random.Generator) -> None:
    """A graph whose sites have sparse features; the weights of its edges must not be negative."""
    examples, labels = [], []
    for x, y in zip(*sentences(30), strict=True):
        edges = np.stack([np.arange(len(y) - 1), np.arange(1, len(y))], axis=1)
        examples.append(pm.Example(x, edges, edge_features=rng.uniform(size=(len(edges), 2))))
        labels.append(y % 2)
    full = [pm.Example(x.features.toarray(), x.edges, x.edge_features) for x in examples]
    settings: Any = {
        "model": pm.GraphModel(),
        "structure": pm.BinaryGraph(),
        "solver": pm.DoubleSGD(5, 4, pm.PlainStep()),
    }
    one, other = fitted(examples, labels, **settings), fitted(full, labels, **settings)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9, atol=1e-12)
    assert one.weights_["edges"].min() >= 0


def test_adaptive_steps_wait_where_a_feature_is_not_there(rng: np.random.Generator) -> None:
    """Against a plain transcription: each weight has its own count, and a penalty for the steps it has waited."""
    rule = AdaptiveRule(first_step=0.1, n_iter=60, l2=0.02, is_sparse=True)
    n = 12
    iterate, memory = Iterate.of(np.zeros(n), np.zeros(n)), rule.memory(n, 0)
    w, m, v, count, last = np.zeros((5, n))
    for h in range(1, 61):
        at = np.flatnonzero(rng.uniform(size=n) < np.linspace(0.05, 1.0, n))
        g = rng.normal(size=len(at))
        remembered = memory[:, at]
        change = rule.change(iterate.at(at), g, h, remembered)
        memory[:, at] = remembered
        iterate.step(at, change, shrink=rule.shrink(h), rate=1.0)
        for i, j in enumerate(at):
            slope = g[i] - 0.02 * (h - last[j]) * w[j]
            count[j] += 1
            last[j] = h
            m[j] = 0.9 * m[j] + 0.1 * slope
            v[j] = 0.99 * v[j] + 0.01 * slope**2
            mean, square = m[j] / (1 - 0.9 ** count[j]), v[j] / (1 - 0.99 ** count[j])
            w[j] += 0.1 * max(1 - h / 61, 1 / 60) * mean / (np.sqrt(square) + 1e-12)
    np.testing.assert_allclose(iterate.weights(), w, rtol=1e-9)


def test_adaptive_steps_come_to_the_optimum() -> None:
    """The penalty that is made up for later is the same penalty: the optimum is that of L-BFGS."""
    X, y = sentences(60)
    exact = fitted(X, y, objective=pm.ExactLogLikelihood(), solver=pm.LBFGS(1e-6))
    steps = fitted(X, y, objective=pm.ExactLogLikelihood(), solver=pm.DoubleSGD(300, 4))
    problem = exact.problem(X, y)
    best = problem.objective_at(exact.coef_)
    assert best - 2e-3 * abs(best) < problem.objective_at(steps.coef_) <= best + 1e-6 * abs(best)


@pytest.mark.parametrize(
    ("objective", "solver"),
    [
        (pm.ExactLogLikelihood(), pm.LBFGS(1e-8)),
        (pm.StructuredHinge(), pm.BCFW(1e-4)),
        (pm.StructuredHinge(), pm.BCFW(8e-3, averaging=PolynomialAveraging(1))),
    ],
    ids=["exact", "svm", "averaged svm"],
)
def test_other_solvers_find_what_they_find_with_dense_features(objective: Any, solver: Any) -> None:
    """As near to each other as their certificates say: the penalty makes the optimum unique."""
    X, y = sentences(30)
    one, other = (fitted(some, y, objective=objective, solver=solver) for some in (X, dense(X)))
    far = sum(np.sqrt(2 * fit.history_[-1]["gap"] / fit.l2) for fit in (one, other))
    assert np.linalg.norm(one.coef_ - other.coef_) <= far + 1e-9
    assert far < 0.2 * np.linalg.norm(one.coef_)


@pytest.mark.filterwarnings("ignore:LBFGS ended")
def test_a_fixed_set_of_draws_is_climbed_as_with_dense_features() -> None:
    X, y = sentences(30)
    one, other = (fitted(some, y, solver=pm.LBFGS(n_draws=2, max_draws=2, max_iter=10)) for some in (X, dense(X)))
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-4, atol=1e-6)


def test_matchings_have_sparse_features_too(rng: np.random.Generator) -> None:
    X, y = [], []
    for x in sentences(20)[0]:
        order = rng.permutation(x.shape[0])
        X.append(pm.Example(x, label_features=np.eye(8)[order] + rng.normal(0, 0.1, (len(order), 8))))
        y.append(np.arange(len(order)))
    full = [pm.Example(x.features.toarray(), label_features=x.label_features) for x in X]
    settings: Any = {
        "model": pm.MatchingModel(),
        "structure": pm.Matching(),
        "classes": range(8),
        "solver": pm.DoubleSGD(3, 4, pm.PlainStep()),
    }
    one, other = fitted(X, y, **settings), fitted(full, y, **settings)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9, atol=1e-12)


def test_a_fit_that_is_interrupted_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Looking at the weights, for reports and files, must not change them."""
    X, y = sentences(40)
    for step in (pm.AdaptiveStep(), pm.PlainStep()):
        parameters: Any = {"l2": 0.01, "solver": pm.DoubleSGD(6, 4, step), "random_state": 0}
        whole = pm.StructuredPredictor(**parameters).fit(X, y)
        kept = tmp_path / type(step).__name__

        def stop(info: dict[str, Any]) -> None:
            if info["passes"] > 3:
                raise RuntimeError

        with pytest.raises(RuntimeError):
            pm.StructuredPredictor(**parameters).fit(X, y, checkpoint=kept, checkpoint_seconds=0, callback=stop)
        resumed = pm.StructuredPredictor(**parameters).fit(X, y, checkpoint=kept)
        np.testing.assert_array_equal(resumed.coef_, whole.coef_)


def test_a_fit_goes_on_with_more_examples() -> None:
    X, y = sentences(60)
    crf = pm.StructuredPredictor(solver=pm.DoubleSGD(batch_size=4), random_state=0)
    for part in range(0, 60, 20):
        crf.partial_fit(X[part : part + 20], y[part : part + 20], classes=range(N_LABELS))
    assert crf.score(X, y) > 0.9


def test_what_earlier_examples_taught_counts_when_a_fit_goes_on() -> None:
    """Weights of pairs of feature and label that the new examples do not have: they are not taken for zero."""
    X, y = sentences(40)
    solver = pm.DoubleSGD(batch_size=20, averaging=NoAveraging())
    crf = pm.StructuredPredictor(objective=pm.ExactLogLikelihood(), l2=0.01, solver=solver, random_state=0)
    crf.partial_fit(X[:20], y[:20], classes=range(N_LABELS)).partial_fit(X[:20], y[:20])
    seen = pm.StructuredPredictor().problem(X[20:], y[20:]).learned
    assert seen is not None
    assert (crf.coef_[~seen] != 0).any()
    whole = pm.StructuredPredictor(EVERY_WEIGHT, objective=crf.objective, l2=0.01).problem(X[20:], y[20:])
    expected, before = whole.objective_at(crf.coef_), crf.coef_
    crf.partial_fit(X[20:], y[20:])  # one step, which saw the objective at the weights before it
    assert crf.history_[-1]["objective"] == pytest.approx(expected, rel=1e-12)
    assert (crf.coef_ != before).any()


# Which weights are learned.


@pytest.mark.parametrize("solver", [pm.LBFGS(1e-6), pm.DoubleSGD(50, 4), pm.DoubleSGD(20, 4, pm.PlainStep())])
@pytest.mark.filterwarnings("ignore:the fit ended")
def test_only_weights_of_features_seen_with_a_label_are_learned(solver: Any) -> None:
    X, y = sentences(30)
    crf = fitted(X, y, model=None, objective=pm.ExactLogLikelihood(), solver=solver)
    counts = np.concatenate(dense(X)).astype(bool).T.astype(float) @ np.eye(N_LABELS)[np.concatenate(y)]
    assert (crf.weights_["features"][counts == 0] == 0).all()
    assert (crf.weights_["features"][counts > 0] != 0).all()


def test_the_weights_that_are_learned_are_at_their_optimum() -> None:
    X, y = sentences(30)
    crf = fitted(X, y, model=pm.SequenceModel(min_count=2), objective=pm.ExactLogLikelihood(), solver=pm.LBFGS(1e-9))
    problem = crf.problem(X, y)
    gradient = problem.value_and_grad(crf.coef_)[1] - problem.l2 * crf.coef_
    assert problem.learned is not None
    assert 0 < problem.learned.sum() < crf.problem(X, y).n_weights
    assert np.abs(gradient[problem.learned]).max() < 1e-4 < np.abs(gradient[~problem.learned]).max()


def test_rare_pairs_of_feature_and_label_have_no_weight() -> None:
    X, y = sentences(30)
    counts = np.concatenate(dense(X)).astype(bool).T.astype(float) @ np.eye(N_LABELS)[np.concatenate(y)]
    for least in (1, 3):
        problem = pm.StructuredPredictor(pm.SequenceModel(min_count=least)).problem(X, y)
        learned = problem.model.unpack(problem.learned, problem.data, N_LABELS)  # type: ignore[arg-type]
        np.testing.assert_array_equal(learned["features"], counts >= least)
        assert all(block.all() for name, block in learned.items() if name != "features")
    assert pm.StructuredPredictor(EVERY_WEIGHT).problem(X, y).learned is None
    assert pm.StructuredPredictor().problem(dense(X), y).learned is None


def test_guessed_labels_count_as_much_as_they_are_likely() -> None:
    """A word of unlabelled sentences alone has weights once its label has been guessed."""
    X, y = sentences(60)
    word = N_FEATURES - 1  # which no labelled sentence has
    full = dense(X)
    for n, (x, labels) in enumerate(zip(full, y, strict=True)):
        x[:, word] = (n >= 30) & (labels == 2)
    crf = pm.StructuredPredictor(l2=0.01, solver=pm.DoubleSGD(30, 4), random_state=0)
    crf.fit([sp.csr_array(x) for x in full], [*y[:30], *[None] * 30])
    assert crf.weights_["features"][word].argmax() == 2


def test_min_count_must_be_a_number() -> None:
    X, y = sentences(3)
    with pytest.raises(ValueError, match="min_count must be a number at least 0"):
        pm.StructuredPredictor(pm.SequenceModel(min_count=-1)).fit(X, y)


# Pieces and iterates.


def test_a_piece_has_the_gradient_of_its_examples(rng: np.random.Generator) -> None:
    X, y = sentences(20)
    for model in (EVERY_WEIGHT, pm.SequenceModel()):
        problem = pm.StructuredPredictor(model, objective=pm.ExactLogLikelihood()).problem(X, y)
        some = np.array([3, 17, 8])
        w = rng.normal(size=problem.n_weights)
        if problem.learned is not None:
            w[~problem.learned] = 0.0
        value, gradient = problem.value_and_grad(w, some)
        piece = Piece.of(problem, some)
        assert not isinstance(piece.at, slice)
        assert piece.problem.data.n_features < N_FEATURES
        own_value, own = piece.value_and_grad(w[piece.at])
        assert own_value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(own, gradient[piece.at], rtol=1e-10, atol=1e-13)
        rest = np.ones(problem.n_weights, dtype=bool) if problem.learned is None else problem.learned.copy()
        rest[piece.at] = False
        assert (gradient[rest] == 0).all()


@pytest.mark.parametrize(
    "averaging",
    [NoAveraging(), UniformAveraging(), SuffixAveraging(), PolynomialAveraging(), PolynomialAveraging(100)],
)
@pytest.mark.parametrize("shrinks", [False, True])
def test_an_iterate_is_the_plain_recursion(averaging: Averaging, shrinks: bool, rng: np.random.Generator) -> None:
    """Weights, average and length, over thousands of steps, with factors that shrink to nothing and forget."""
    n, n_steps = 30, 3000
    w, average = rng.normal(size=(2, n))
    iterate = Iterate.of(w, average)
    signed = rng.uniform(size=n) < 0.3
    for h in range(1, n_steps + 1):
        at = rng.choice(n, size=5, replace=False)
        change = rng.normal(size=5)
        shrink = 0.0 if h == 7 else 1.0 - 0.5 / np.sqrt(h) if shrinks else 1.0
        rate = averaging.rate(h, n_steps)
        iterate.step(at, change, shrink=shrink, rate=rate, nonnegative=signed[at])
        w = shrink * w
        w[at] += change
        w[at] = np.where(signed[at], np.maximum(0.0, w[at]), w[at])
        average = (1 - rate) * average + rate * w
        if h == 1000:
            iterate = Iterate.from_arrays({name: a.copy() for name, a in iterate.arrays().items()}, n)
    np.testing.assert_allclose(iterate.weights(), w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(iterate.average(), average, rtol=1e-8, atol=1e-11)
    assert iterate.squared_norm == pytest.approx(w @ w, rel=1e-8)


def test_a_forged_iterate_is_refused() -> None:
    arrays = Iterate.of(np.ones(3), np.ones(3)).arrays()
    for name, value in (("u", np.ones(4)), ("lag", np.full(3, np.nan)), ("numbers", np.zeros(4))):
        with pytest.raises(ValueError, match="weights must be"):
            Iterate.from_arrays({**arrays, name: value}, 3)


def weights_of_a_step(problem: Problem) -> int:
    at = Piece.of(problem, np.arange(4)).at
    return problem.n_weights if isinstance(at, slice) else len(at)


def test_a_step_looks_at_no_more_weights_when_there_are_more_features() -> None:
    X, y = sentences(20)
    wide = [sp.csr_array((x.data, x.indices, x.indptr), shape=(x.shape[0], 100 * N_FEATURES)) for x in X]
    one, other = (pm.StructuredPredictor(EVERY_WEIGHT).problem(some, y) for some in (X, wide))
    assert weights_of_a_step(one) == weights_of_a_step(other) < one.n_weights
