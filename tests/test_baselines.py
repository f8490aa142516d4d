"""What the CRF and the structured SVM have in common: files, interrupts, paths, weak labels, errors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perturbmap import (
    BCFW,
    LBFGS,
    Chain,
    DoubleSGD,
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    Example,
    FromSolver,
    GraphModel,
    LogLikelihood,
    MarginalLogLikelihood,
    Objective,
    PolynomialAveraging,
    Solver,
    StructuredHinge,
    StructuredPredictor,
    ZeroOne,
    regularisation_path,
)
from perturbmap.datasets import load_ocr
from perturbmap.potentials import Floats

ALPHABET = list("abcdefghijklmnopqrstuvwxyz")


def ocr_words(n: int) -> tuple[list[Floats], list[Any]]:
    X, y, folds = load_ocr()
    words = np.random.default_rng(0).permutation(np.flatnonzero(folds == 0))[:n]
    return [X[i] for i in words], [y[i] for i in words]


@pytest.mark.parametrize(
    "solver", [BCFW(0.05), BCFW(0.05, gap_sampling=False, averaging=PolynomialAveraging(1)), BCFW(0.05, cache=True)]
)
def test_history_and_files_of_a_structured_svm(solver: BCFW, tmp_path: Path) -> None:
    """Primal, dual, gap and oracle calls, without being asked for; the same predictions from a file."""
    X, y = ocr_words(60)
    svm = StructuredPredictor(objective=StructuredHinge(), l2=0.3, solver=solver, random_state=0).fit(X, y)
    last = svm.history_[-1]
    assert last["gap"] == last["primal"] - last["dual"] <= 0.05 * last["primal"]
    assert last["oracle_calls"] > 0
    assert svm.score(X, y) > 0.9
    svm.save(tmp_path / "svm")
    again = StructuredPredictor.load(tmp_path / "svm")
    for a, b in zip(svm.predict(X), again.predict(X), strict=True):
        np.testing.assert_array_equal(a, b)


def stop_at(n: int) -> Callable[[dict[str, Any]], None]:
    """Ctrl-C at the n-th report."""
    reports = itertools.count(1)

    def callback(info: dict[str, Any]) -> None:
        if next(reports) == n:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize(
    ("objective", "solver"),
    [
        (StructuredHinge(), BCFW(0.05)),
        (StructuredHinge(), BCFW(0.05, cache=True, averaging=PolynomialAveraging(1))),
        (ExactLogLikelihood(), LBFGS(1e-6)),
    ],
)
def test_an_interrupted_fit_ends_as_if_it_never_had(
    objective: Objective, solver: Solver[Any], tmp_path: Path
) -> None:
    """From its checkpoint: the same bits for BCFW, the same optimum for L-BFGS, whose memory is not kept."""
    X, y = ocr_words(40)
    l2 = 0.3 if isinstance(solver, BCFW) else 0.01
    estimator = StructuredPredictor(objective=objective, l2=l2, solver=solver, random_state=0)
    whole = estimator.fit(X, y).coef_
    path = tmp_path / "checkpoint"
    with pytest.warns(UserWarning, match="interrupted"):
        estimator.fit(X, y, checkpoint=path, checkpoint_seconds=0, callback=stop_at(2))
    assert estimator.coef_.any()
    assert not np.array_equal(estimator.coef_, whole)
    resumed = estimator.fit(X, y, checkpoint=path).coef_
    if isinstance(solver, BCFW):
        np.testing.assert_array_equal(resumed, whole)
    else:
        assert np.linalg.norm(resumed - whole) < 1e-2 * np.linalg.norm(whole)


@pytest.mark.parametrize("objective", [StructuredHinge(), ExactLogLikelihood()], ids=repr)
def test_threads_do_not_change_the_baselines(objective: Objective) -> None:
    """The same seed, the same weights."""
    X, y = ocr_words(40)
    one, two = (
        StructuredPredictor(structure=Chain(n_threads=n), objective=objective, l2=0.3, random_state=0).fit(X, y)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_a_warm_start_saves_oracle_calls_along_the_path() -> None:
    """Every point of the path reaches its gap, with fewer maximisations than the same fits from nothing."""
    X, y = ocr_words(60)
    l2s = [0.2, 1.0, 0.5]
    svm = StructuredPredictor(objective=StructuredHinge(), solver=BCFW(1e-2), random_state=0)
    path = regularisation_path(svm, X, y, l2s)
    assert [one.l2 for one in path] == l2s
    cold = [
        StructuredPredictor(objective=StructuredHinge(), solver=BCFW(1e-2), l2=l2, random_state=0).fit(X, y)
        for l2 in l2s
    ]
    for a, b in zip(path, cold, strict=True):
        assert a.history_[-1]["gap"] <= 1e-2 * a.history_[-1]["primal"]
        assert a.history_[-1]["primal"] == pytest.approx(b.history_[-1]["primal"], rel=1e-2)
    assert sum(one.history_[-1]["oracle_calls"] for one in path) < sum(
        one.history_[-1]["oracle_calls"] for one in cold
    )
    crfs = regularisation_path(
        StructuredPredictor(objective=ExactLogLikelihood(), solver=LBFGS(1e-6), random_state=0), X, y, [1e-2, 1e-1]
    )
    alone = StructuredPredictor(objective=ExactLogLikelihood(), l2=1e-2, solver=LBFGS(1e-6), random_state=0).fit(X, y)
    assert crfs[0].history_[-1]["objective"] == pytest.approx(alone.history_[-1]["objective"], rel=1e-5)
    assert crfs[0].n_iter_ < alone.n_iter_
    with pytest.raises(ValueError, match="l2s must be a list of at least one number"):
        regularisation_path(svm, X, y, [])


@pytest.mark.parametrize("objective", [StructuredHinge(), ExactLogLikelihood(), LogLikelihood()], ids=repr)
def test_hard_label_methods_learn_from_their_own_labels(objective: Objective) -> None:
    """Unlabelled words are labelled by the first fit, under the letters that are given, and all are learned from."""
    X, y = ocr_words(60)
    some: list[Any] = [*y[:30], *([None] * 20), *(np.where(np.arange(len(w)) == 0, w, None) for w in y[50:])]
    solvers: dict[type, Solver[Any]] = {
        StructuredHinge: BCFW(1e-2),
        ExactLogLikelihood: LBFGS(),
        LogLikelihood: DoubleSGD(n_passes=5),
    }
    solver = solvers[type(objective)]
    estimator = StructuredPredictor(objective=objective, l2=1.0, solver=solver, classes=ALPHABET, random_state=0)
    first = StructuredPredictor(objective=objective, l2=1.0, solver=solver, classes=ALPHABET, random_state=0).fit(
        X[:30], y[:30]
    )
    estimator.fit(X, some, callback=lambda info: None)
    assert {h["phase"] for h in estimator.history_} == {1, 2}
    assert not np.array_equal(estimator.coef_, first.coef_)
    # By hand, for the SVM: the labels of the first fit, given labels kept, in equal parts.
    if isinstance(objective, StructuredHinge):
        f = first.potentials(X)
        given = np.full(f.n_sites, -1, dtype=np.int32)
        for n in range(50, 60):
            given[f.site_offsets[n]] = first.classes_.tolist().index(y[n][0])
        guessed = f.split(Chain().argmax(f, given))
        labels = [*y[:30], *(first.classes_[g] for g in guessed[30:])]
        assert all(labels[n][0] == y[n][0] for n in range(50, 60))
        by_hand = StructuredPredictor(objective=objective, l2=0.5, solver=solver, classes=ALPHABET, random_state=0)
        by_hand.fit(X, labels)  # 30 + 30 words: both means together are twice the mean over all
        assert np.linalg.norm(by_hand.coef_ - estimator.coef_) < 0.1 * np.linalg.norm(estimator.coef_)


def test_solvers_and_objectives_that_do_not_fit_say_so() -> None:
    """Early, naming the one to use."""
    X, y = ocr_words(3)

    def fit(y: Any = y, **parameters: Any) -> None:
        StructuredPredictor(random_state=0, **parameters).fit(X, y)

    with pytest.raises(ValueError, match=r"StructuredHinge\(\) is solved by BCFW\(\)"):
        fit(objective=StructuredHinge(), solver=LBFGS())
    with pytest.raises(ValueError, match=r"LogLikelihood\(\) is solved by DoubleSGD\(\)"):
        fit(objective=LogLikelihood(), solver=LBFGS())
    with pytest.raises(ValueError, match="leave solver out for MarginalLogLikelihood"):
        fit(objective=MarginalLogLikelihood(), solver=BCFW())
    with pytest.raises(ValueError, match="ZeroOne does not sum over sites"):
        fit(objective=StructuredHinge(ZeroOne()))
    with pytest.raises(ValueError, match="StructuredHinge learns from labels"):
        fit([np.full((len(w), 26), 1 / 26) for w in y], objective=StructuredHinge(), classes=list(range(26)))
    with pytest.raises(ValueError, match="every label is known"):
        fit([np.where(np.arange(len(w)) == 0, None, w) for w in y], objective=StructuredHinge())
    for name, solver in [
        ("tolerance", LBFGS(tolerance=0)),
        ("max_iter", LBFGS(max_iter=0)),
        ("memory", LBFGS(memory=-1)),
    ]:
        with pytest.raises(ValueError, match=name):
            fit(objective=ExactLogLikelihood(), solver=solver)
    with pytest.raises(ValueError, match="tolerance"):
        fit(objective=StructuredHinge(), solver=BCFW(tolerance=2))
    with pytest.raises(ValueError, match="n_passes"):
        fit(objective=StructuredHinge(), solver=BCFW(n_passes=0))
    crf = StructuredPredictor(objective=ExactLogLikelihood())
    with pytest.raises(ValueError, match=r"partial_fit needs a solver that takes examples as they come"):
        crf.partial_fit(X, y, classes=ALPHABET)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"cache": True}, {"averaging": PolynomialAveraging(1)}], ids=repr)
def test_the_certificate_is_that_of_the_weights_returned(options: dict[str, Any], seed: int) -> None:
    """Not of earlier ones, which the dual may have caught up with."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 6), 4)) for _ in range(20)]
    y = [rng.integers(0, 3, len(x)) for x in X]
    svm = StructuredPredictor(objective=StructuredHinge(), l2=1.0, solver=BCFW(0.05, **options), random_state=0)
    svm.fit(X, y)
    last = svm.history_[-1]
    p = svm.problem(X, y)
    assert last["iteration"] == svm.n_iter_
    assert last["primal"] == pytest.approx(-p.objective_at(svm.coef_), rel=1e-12)
    assert last["gap"] == pytest.approx(last["primal"] - last["dual"])
    assert last["gap"] <= 0.05 * last["primal"]
    json.dumps(svm.history_)


def test_a_solver_with_a_score_of_its_own_is_learned_for() -> None:
    """What the solver adds counts in primal and dual: the same optimum as by enumeration of the same problem."""

    def agreements(labels: Any) -> float:
        return 3.0 * float((labels[1:] == labels[:-1]).sum())

    def solve(unary: Floats) -> Any:
        every = np.array(list(itertools.product(range(unary.shape[1]), repeat=len(unary))), dtype=np.int32)
        scores = unary[np.arange(len(unary)), every].sum(axis=1) + [agreements(y) for y in every]
        return every[np.argmax(scores)]

    rng = np.random.default_rng(0)
    X = [Example(rng.normal(size=(4, 3)), edges=[]) for _ in range(8)]
    y = [rng.integers(0, 2, 4) for _ in X]

    svm = StructuredPredictor(
        GraphModel(), FromSolver(solve, agreements), StructuredHinge(), l2=0.5, solver=BCFW(1e-3), random_state=0
    ).fit(X, y)
    last = svm.history_[-1]
    p = svm.problem(X, y)
    assert last["primal"] == pytest.approx(-p.objective_at(svm.coef_), rel=1e-12)
    solver = DoubleSGD(n_passes=500, batch_size=8)
    by_steps = -p.objective_at(solver.run(p, solver.start(p)).average)
    assert last["dual"] - 1e-9 <= by_steps <= 1.01 * last["primal"]


def test_a_path_with_unlabelled_examples_and_one_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm starts are those of the labelled part; Ctrl-C ends the whole path."""
    X, y = ocr_words(12)
    some = [*y[:8], *([None] * 4)]
    svm = StructuredPredictor(objective=StructuredHinge(), solver=BCFW(0.05), classes=ALPHABET, random_state=0)
    path = regularisation_path(svm, X, some, [1.0, 2.0])
    alone = StructuredPredictor(
        objective=StructuredHinge(), l2=2.0, solver=BCFW(0.05), classes=ALPHABET, random_state=0
    ).fit(X, some)
    np.testing.assert_array_equal(path[1].coef_, alone.coef_)  # the first to be fitted
    assert {h["phase"] for h in path[0].history_} == {1, 2}

    def interrupt(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("perturbmap.solvers.bcfw.step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        regularisation_path(svm, X, some, [1.0, 2.0])
    for wrong in (0.1, ["a"], [1.0, -1.0]):
        with pytest.raises(ValueError, match="l2s"):
            regularisation_path(svm, X, y, wrong)  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize(
    "objective", [StructuredHinge(), ExactLogLikelihood(), ExactMarginalLogLikelihood()], ids=repr
)
def test_nothing_to_learn_is_done_at_once(objective: Objective) -> None:
    """One class: the start is the optimum, and no number is NaN; a warning would be an error here."""
    X = [np.ones((3, 2)), np.ones((1, 2))]
    est = StructuredPredictor(objective=objective, random_state=0).fit(X, [[7, 7, 7], [7]])
    assert est.history_[-1]["gap"] == pytest.approx(0, abs=1e-12)
    assert est.history_[-1]["objective"] == pytest.approx(0, abs=1e-12)
    assert est.n_iter_ <= 2
    np.testing.assert_array_equal(est.predict(X)[0], [7, 7, 7])


def test_a_finished_checkpoint_of_lbfgs_stays_as_it_is(tmp_path: Path) -> None:
    """Fitting again from it does nothing more."""
    X, y = ocr_words(20)
    crf = StructuredPredictor(objective=ExactLogLikelihood(), l2=0.01, random_state=0)
    path = tmp_path / "checkpoint"
    first = crf.fit(X, y, checkpoint=path)
    weights, n_iter, history = first.coef_, first.n_iter_, first.history_
    again = crf.fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(again.coef_, weights)
    assert (again.n_iter_, len(again.history_)) == (n_iter, len(history))
