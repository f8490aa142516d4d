"""The estimator as a user meets it: scikit-learn's tools, files, interruptions, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from perturbmap import (
    BalancedHamming,
    BinaryGraph,
    Decoding,
    DoubleSGD,
    Example,
    FitInterruptedWarning,
    GraphModel,
    Hamming,
    LinearModel,
    LogLikelihood,
    MarginalLogLikelihood,
    Matching,
    MatchingModel,
    Moments,
    NoAveraging,
    PlainStep,
    PolynomialAveraging,
    Potentials,
    Solver,
    StructuredHinge,
    StructuredPredictor,
    SuffixAveraging,
    TaskLoss,
    Tree,
    UniformAveraging,
    WeightedHamming,
    ZeroOne,
)
from perturbmap.data import Dataset
from perturbmap.solvers import Averaging, Problem, State


def words(n: int, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Ragged sequences over the letters a, b, c, each of which makes its own features likely."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    y = [rng.integers(0, 3, length) for length in lengths]
    X = [np.eye(3, 4)[labels] + rng.normal(0, 0.5, (len(labels), 4)) for labels in y]
    return X, [np.array(list("abc"))[labels] for labels in y]


def gaps(labels: np.ndarray, parity: int) -> list[Any]:
    """Every other label, None between them."""
    return [None if i % 2 == parity else v for i, v in enumerate(labels.tolist())]


def predictor(**parameters: Any) -> StructuredPredictor:
    return StructuredPredictor(
        **{"l2": 0.03, "solver": DoubleSGD(n_passes=5, step=PlainStep(0.3)), "random_state": 0, **parameters}
    )


def test_it_learns_letters() -> None:
    """Better than chance by far, on examples it has not seen."""
    est = predictor().fit(*words(100))
    assert est.score(*words(100, seed=1)) > 0.8
    assert est.classes_.tolist() == ["a", "b", "c"]
    X, y = words(3, seed=2)
    assert [len(p) for p in est.predict(X)] == [len(v) for v in y]
    for q, v in zip(est.predict_marginals(X), y, strict=True):
        assert q.shape == (len(v), 3)
        np.testing.assert_allclose(q.sum(axis=1), 1)


def test_the_same_seed_gives_the_same_weights_whatever_the_threads() -> None:
    """And another seed gives others."""
    X, y = words(60)
    a, b, c = (predictor(random_state=s).fit(X, y).coef_ for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    one = predictor(structure=Tree(n_threads=1)).fit(X, y).coef_
    two = predictor(structure=Tree(n_threads=2)).fit(X, y).coef_
    np.testing.assert_array_equal(one, two)


def test_sparse_features_learn_what_dense_ones_do() -> None:
    """To rounding."""
    X, y = words(40)
    dense = predictor().fit(X, y)
    sparse = predictor().fit([sp.csr_matrix(x) for x in X], y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-9, atol=1e-9)


def test_float32_features_are_kept_and_learn_the_same_to_their_precision() -> None:
    """Half the memory; results agree to about 1e-6."""
    X, y = words(40)
    single = [x.astype(np.float32) for x in X]
    assert Dataset.from_examples(single).features.matrix.dtype == np.float32
    a, b = predictor().fit(single, y), predictor().fit([x.astype(np.float64) for x in single], y)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-4)


@pytest.mark.parametrize(
    "averaging", [NoAveraging(), UniformAveraging(), SuffixAveraging(0.5), PolynomialAveraging(2)], ids=repr
)
def test_averages_are_those_of_the_iterates(averaging: Averaging) -> None:
    """The running rates give the weighted mean that the name promises."""
    n, iterates = 20, np.random.default_rng(0).normal(size=21)
    average = 0.0
    for h in range(1, n + 1):
        average += averaging.rate(h, n) * (iterates[h] - average)
    weights = {
        "NoAveraging": np.arange(1, n + 1) == n,
        "UniformAveraging": np.ones(n),
        "SuffixAveraging": np.arange(1, n + 1) > n / 2,
        "PolynomialAveraging": np.arange(1, n + 1) * np.arange(2, n + 2),
    }[type(averaging).__name__]
    assert average == pytest.approx(np.average(iterates[1:], weights=weights))


def test_scikit_learns_tools_work_on_lists() -> None:
    """clone, cross_val_score, GridSearchCV over nested parameters, Pipeline."""
    X, y = words(40)
    est = predictor(model=None, objective=MarginalLogLikelihood(Hamming()))
    assert clone(est).get_params(deep=False)["l2"] == 0.03
    scores = cross_val_score(est, X, y, cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.5
    grid = GridSearchCV(
        est, {"l2": [0.01, 10.0], "objective__integrate_noise": [True, False], "solver__batch_size": [4]}, cv=2
    ).fit(X, y)
    assert grid.best_params_["l2"] == 0.01
    doubled = make_pipeline(FunctionTransformer(lambda examples: [2 * x for x in examples]), est)
    assert doubled.fit(X, y).score(X, y) > 0.7


def test_the_reported_objective_rises_and_can_be_compared() -> None:
    """It is what the steps saw since the report before; a fit without a callback keeps the same history."""
    reports: list[dict[str, Any]] = []
    est = predictor(solver=DoubleSGD(n_passes=20, step=PlainStep(0.3))).fit(*words(60), callback=reports.append)
    objective = [r["objective"] for r in reports]
    assert objective[-1] > objective[0]
    assert [r["iteration"] for r in reports] == sorted(r["iteration"] for r in reports)
    np.testing.assert_array_equal(reports[-1].pop("coef"), est.coef_)
    assert est.history_ == [{k: v for k, v in r.items() if k != "coef"} for r in reports]
    assert reports[-1]["iteration"] == reports[-1]["n_iter"] == est.n_iter_
    assert reports[-1]["passes"] == pytest.approx(20, abs=0.5)
    alone = predictor(solver=DoubleSGD(n_passes=20, step=PlainStep(0.3))).fit(*words(60))
    assert [h["objective"] for h in alone.history_] == objective


def test_validation_data_stop_the_fit_and_choose_the_weights() -> None:
    """On validation labels that cannot be learned, it stops early and keeps the best look."""
    X, y = words(60)
    bad, noise = words(30, seed=1)
    rng = np.random.default_rng(0)
    noise = [rng.choice(list("abc"), len(v)) for v in noise]
    est = predictor(solver=DoubleSGD(n_passes=100, step=PlainStep(0.3))).fit(
        X, y, validation=(bad, noise), patience=2
    )
    losses = [h["validation_loss"] for h in est.history_]
    assert len(losses) < 20
    assert 1 - est.score(bad, noise) == pytest.approx(min(losses))


def test_partial_fit_goes_on_from_the_weights_so_far() -> None:
    """Parts of the data in turn; classes are needed first."""
    X, y = words(80)
    est = predictor()
    with pytest.raises(ValueError, match="classes must name all labels"):
        est.partial_fit(X, y)
    letters: Any = np.array(["a", "b", "c"])  # an array will do as well as a list
    for part in range(4):
        est.partial_fit(X[20 * part : 20 * part + 20], y[20 * part : 20 * part + 20], classes=letters)
    assert est.n_iter_ == 8
    assert est.score(X, y) > 0.7
    with pytest.raises(ValueError, match="X has 2 features, but the fit had 4"):
        est.partial_fit([x[:, :2] for x in X], y)


class SequenceLike(LinearModel):
    """Scores of labels, and no edges."""

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        return {"features": (data.n_features, n_labels)}

    def potentials(self, w: Any, batch: Dataset, n_labels: int) -> Potentials:
        return Potentials.on(batch.layout, batch.features @ self.unpack(w, batch, n_labels)["features"])

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Any:
        return batch.features.pullback(moments.unary).ravel()


class Momentum(Solver[Any]):
    """A user's incremental solver, whose state has more than weights."""

    is_incremental = True

    def n_iter(self, n_examples: int) -> int:
        return 10

    def start(self, problem: Problem, w: Any = None) -> Any:
        state = super().start(problem, w)
        state.arrays = lambda: {"w": state.w, "average": state.average, "v": state.v}
        state.v = np.zeros(problem.n_weights)
        return state

    def restore(self, problem: Problem, arrays: Any, iteration: int) -> Any:
        state = self.start(problem, arrays["w"])
        state.v, state.iteration = arrays["v"], iteration
        return state

    def run(self, problem: Problem, state: Any, on_step: Any = None, n_iter: int | None = None) -> Any:
        while state.iteration < (self.n_iter(1) if n_iter is None else n_iter):
            state.v = 0.5 * state.v + problem.value_and_grad(state.w, draw=state.iteration)[1]
            state.w = state.average = state.w + 0.1 * state.v
            state.iteration += 1
        return state


def test_partial_fit_restores_all_that_a_solver_of_ones_own_keeps(tmp_path: Path) -> None:
    """From one call to the next, and through a file."""
    X, y = words(20)
    est = predictor(solver=Momentum(), classes=list("abc"))
    for _ in range(2):
        est.partial_fit(X, y)
    est.save(tmp_path / "model.pm")
    with pytest.raises(TypeError, match="parts must be a list of classes"):
        StructuredPredictor.load(tmp_path / "model.pm", parts=Momentum)  # type: ignore[arg-type]
    loaded = StructuredPredictor.load(tmp_path / "model.pm", parts=[Momentum])
    assert loaded.history_ == [{k: v for k, v in entry.items() if k != "seconds"} for entry in est.history_]
    again = loaded.partial_fit(X, y)
    np.testing.assert_array_equal(again.coef_, est.partial_fit(X, y).coef_)
    assert est.n_iter_ == 3
    svm = predictor(objective=StructuredHinge(), solver=None).fit(X, y).set_params(solver=DoubleSGD())
    assert svm.partial_fit(X, y).n_iter_ > 0


def test_labels_may_be_anything_hashable_and_unknown() -> None:
    """Tuples and None beside texts; -1 and None stand for unknown; unlabelled examples are allowed."""
    X, y = words(30)
    names: dict[str, Any] = {"a": ("first", 1), "b": ("second", 2), "c": ("third", 3)}
    labels: list[Any] = [[names[v] for v in entry] for entry in y]
    labels[0] = None
    labels[1] = [None, *labels[1][1:]]
    labels[2] = [-1, *labels[2][1:]]
    est = predictor().fit(X, labels)
    assert est.classes_.tolist() == [("first", 1), ("second", 2), ("third", 3)]
    assert est.predict(X[:1])[0][0] in names.values()


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize(
    "objective", [LogLikelihood(), MarginalLogLikelihood(), MarginalLogLikelihood(conditional=True)]
)
def test_every_kind_of_label_trains_every_objective(objective: Any, hard: bool) -> None:
    """Labelled, partly labelled, unlabelled and, where it makes sense, soft examples together."""
    X, y = words(60)
    labels: list[Any] = list(y)
    labels[40:50] = [None] * 10
    labels[50:] = [gaps(v, 0) for v in y[50:]]
    if objective.takes_soft_labels:
        labels[0] = np.full((len(y[0]), 3), 1 / 3)
    est = predictor(objective=objective, hard_labels=hard, unlabelled_weight=0.5, task_loss=Hamming()).fit(X, labels)
    assert est.score(X, y) > 0.75


def test_examples_with_gaps_alone_are_enough() -> None:
    """No example is complete: learning begins with the sites that are known."""
    X, y = words(60)
    est = predictor().fit(X, [gaps(v, 1) for v in y])
    assert est.score(X, y) > 0.75


def test_marginals_are_conditioned_on_given_labels() -> None:
    """A given label has probability one."""
    X, y = words(30)
    est = predictor().fit(X, y)
    q = est.predict_marginals(X[:1], given=[[*y[0][:1], *[None] * (len(y[0]) - 1)]])[0]
    assert q[0].max() == 1
    assert est.classes_[q[0].argmax()] == y[0][0]


def test_hard_labels_of_unlabelled_examples_teach_under_the_conditional_reading_too() -> None:
    """They are guesses, not given: their weight makes a difference."""
    X, y = words(40)
    labels = [*y[:10], *[None] * 30]
    objective = MarginalLogLikelihood(conditional=True)
    a, b = (
        predictor(objective=objective, hard_labels=True, unlabelled_weight=k, classes=list("abc"))
        .fit(X, labels)
        .coef_
        for k in (0.0, 5.0)
    )
    assert np.abs(a - b).max() > 0.01


def test_early_stopping_ends_a_phase_and_not_the_next() -> None:
    """Phase 2 of Algorithm 3 gets as many looks of patience as phase 1."""
    X, y = words(60)
    rng = np.random.default_rng(0)
    noise = [rng.choice(list("abc"), len(v)) for v in y]
    est = predictor(solver=DoubleSGD(n_passes=60, step=PlainStep(0.3)))
    est.fit(X, [*y[:40], *[None] * 20], validation=(X, noise), patience=3)
    looks = [sum(h["phase"] == phase for h in est.history_) for phase in (1, 2)]
    assert min(looks) >= 3
    assert max(looks) < 20


def test_what_is_not_known_does_not_count_in_a_score() -> None:
    """An unlabelled example is left out, no label at all and soft labels are refused."""
    X, y = words(20)
    est = predictor().fit(X, y)
    assert est.score(X[:1], y[:1]) == est.score(X[:2], [y[0], None])
    with pytest.raises(ValueError, match="some label to measure by"):
        est.score(X, [None] * 20)
    soft = [np.full((len(v), 3), 1 / 3) for v in y]
    for call in (lambda: est.score(X, soft), lambda: est.predict_marginals(X, given=soft)):
        with pytest.raises(ValueError, match="must hold labels here, not soft ones"):
            call()


def test_labels_keep_their_type() -> None:
    """Mixed ones are not turned to text, numpy's are those of Python."""
    X, y = words(20)
    mixed: dict[str, Any] = {"a": 1, "b": "b", "c": None}
    est = predictor().fit(X, [[mixed[v] for v in entry] for entry in y])
    assert {type(v) for part in est.predict(X) for v in part.tolist()} == {int, str}
    numbers = predictor().fit(X, [[np.int64(ord(v)) for v in entry] for entry in y])
    assert numbers.predict(X)[0].dtype == np.int64
    assert numbers.classes_.tolist() == [97, 98, 99]
    texts = predictor().fit(X, ["".join(entry) for entry in y])
    np.testing.assert_array_equal(texts.coef_, predictor().fit(X, y).coef_)


def test_minus_one_is_never_a_label() -> None:
    """Labels -1 and 1 would lose half of themselves in silence."""
    X, y = words(10)
    signs = [np.where(v == "a", -1, 1) for v in y]
    with pytest.raises(ValueError, match="-1 stands for an unknown label"):
        predictor().fit(X, signs)
    with pytest.raises(ValueError, match="classes must not hold -1 or None"):
        predictor(classes=[-1, 1]).fit(X, signs)


def test_a_fit_that_fails_leaves_the_estimator_as_it_was() -> None:
    """Nothing the user had is lost."""
    X, y = words(10)
    est = predictor().fit(X, y)
    before = est.predict(X)
    with pytest.raises(ValueError, match="validation"):
        est.fit([x[:, :2] for x in X], [np.full(len(v), "z") for v in y], validation=(X, y))
    for a, b in zip(est.predict(X), before, strict=True):
        np.testing.assert_array_equal(a, b)


# What used to surprise in silence.


def test_an_unlabelled_validation_example_does_not_count() -> None:
    """It used to count as one without a mistake."""
    X, y = words(40)
    more, _ = words(30, seed=5)
    losses = [
        predictor().fit(X, y, validation=(X + extra, list(y) + [None] * len(extra))).history_[-1]["validation_loss"]
        for extra in ([], more)
    ]
    assert losses[0] == losses[1] > 0


def test_the_default_solver_keeps_a_history() -> None:
    """Without a callback too; its objective rises."""
    est = StructuredPredictor(l2=0.03, random_state=0).fit(*words(60))
    assert len(est.history_) == 20
    assert est.history_[-1]["objective"] > est.history_[0]["objective"]


def test_structures_have_parameters_for_a_grid_search() -> None:
    """As all parts have; unknown ones are named."""
    X, y = words(20)
    search = GridSearchCV(predictor(structure=Tree()), {"structure__n_threads": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["structure__n_threads"] in (1, 2)
    assert clone(Tree(3)) == Tree(3) != Tree(2)
    assert repr(Tree()) == "Tree()"
    assert repr(Tree(2)) == "Tree(n_threads=2)"
    with pytest.raises(ValueError, match="Tree has no parameter 'threads'"):
        Tree().set_params(threads=2)
    objective = MarginalLogLikelihood().set_params(loss__label_costs=[1, 2], loss=WeightedHamming())
    assert objective == MarginalLogLikelihood(WeightedHamming([1, 2]))
    with pytest.raises(ValueError, match="loss is None, which has no parameters"):
        MarginalLogLikelihood().set_params(loss__label_costs=[1])
    assert WeightedHamming([np.ones(2)]) == WeightedHamming([np.ones(2)]) != WeightedHamming([np.zeros(2)])


def test_classes_are_an_array() -> None:
    """As in scikit-learn, so that numbers of labels index it."""
    est = predictor().fit(*words(20))
    assert isinstance(est.classes_, np.ndarray)
    assert est.classes_[[2, 0]].tolist() == ["c", "a"]


def test_numbers_of_threads_are_integers_of_any_kind() -> None:
    """Numpy's too, and True is none."""
    f = Potentials(np.zeros((2, 2)))
    Tree(np.int64(2)).argmax(f)  # type: ignore[arg-type]
    for bad in (True, 0, 1.5, "2"):
        with pytest.raises(ValueError, match="n_threads must be an integer of at least 1"):
            Tree(bad).argmax(f)  # type: ignore[arg-type]


def test_weights_have_names() -> None:
    """They are views of coef_, in the shapes that the model gives them; a loaded estimator has them too."""
    est = predictor().fit(*words(20))
    assert {name: block.shape for name, block in est.weights_.items()} == {
        "features": (4, 3),
        "bias": (3,),
        "transition": (3, 3),
        "first": (3,),
        "last": (3,),
    }
    np.testing.assert_array_equal(np.concatenate([block.ravel() for block in est.weights_.values()]), est.coef_)


def test_the_potentials_of_an_estimator_are_what_it_predicts_from() -> None:
    """Its best labellings are those of its potentials, and given marginals are used for a prediction."""
    X, y = words(20)
    est = predictor().fit(X, y)
    f = est.potentials(X)
    for labels, predicted in zip(f.split(Tree().argmax(f)), est.predict(X), strict=True):
        np.testing.assert_array_equal(est.classes_[labels], predicted)
    est.set_params(decoding=Decoding.MARGINAL)
    always_b = [np.tile([0.0, 1.0, 0.0], (len(x), 1)) for x in X]
    assert {v for part in est.predict(X, marginals=always_b) for v in part.tolist()} == {"b"}
    with pytest.raises(ValueError, match="marginals must be those of predict_marginals"):
        est.predict(X, marginals=always_b[:-1])


def test_an_example_without_sites_changes_nothing() -> None:
    """It is neither labelled nor unlabelled: with gaps elsewhere, all examples are learned from as without it."""
    X, y = words(30)
    holed: list[Any] = [gaps(v, 1) for v in y]
    alone = predictor(classes=list("abc")).fit(X, holed).score(X, y)
    with_empty = predictor(classes=list("abc")).fit([*X, np.empty((0, 4))], [*holed, []]).score(X, y)
    assert with_empty > alone - 0.1
    full = predictor().fit([*X, np.empty((0, 4))], [*y, []])
    assert {h["phase"] for h in full.history_} == {1}


def test_others_that_count_nothing_are_not_learned_from() -> None:
    """With unlabelled_weight=0, phase 1 is all there is, also where no example is fully labelled."""
    X, y = words(40)
    holed = [gaps(v, 1) for v in y]
    est = predictor(unlabelled_weight=0.0).fit(X, holed)
    assert {h["phase"] for h in est.history_} == {1}
    phases: list[dict[str, Any]] = []
    predictor().fit(X, holed, callback=phases.append)
    np.testing.assert_array_equal(est.coef_, next(h["coef"] for h in reversed(phases) if h["phase"] == 1))


class Functional(Solver[State]):
    """A user's solver that makes a new state at every step."""

    def n_iter(self, n_examples: int) -> int:
        return 10**6

    def run(self, problem: Problem, state: State, on_step: Any = None, n_iter: int | None = None) -> State:
        while True:
            state = State(state.w + 1, state.average + 1, state.iteration + 1)
            if on_step is not None and on_step(state):
                return state
            if state.iteration == 10:
                raise KeyboardInterrupt


def test_ctrl_c_keeps_what_there_is() -> None:
    """The weights so far, of a solver that makes new states too; before there are any, those of the fit before."""
    X, y = words(20)
    with pytest.warns(FitInterruptedWarning, match="interrupted at step 10"):
        est = predictor(solver=Functional()).fit(X, y)
    assert est.n_iter_ == 10
    np.testing.assert_array_equal(est.coef_, 10)
    est.set_params(calibration=2)
    with pytest.raises(KeyboardInterrupt):
        est.fit(X, y)
    np.testing.assert_array_equal(est.coef_, 10)


def test_partial_fit_goes_on_from_the_weights_that_early_stopping_chose() -> None:
    """Not from the last ones; and its history has the entries of a fit."""
    X, y = words(40)
    rng = np.random.default_rng(0)
    noise = [rng.choice(list("abc"), len(v)) for v in y]
    looks: list[dict[str, Any]] = []
    est = predictor(solver=DoubleSGD(n_passes=60, step=PlainStep(0.3)))
    est.fit(X, y, validation=(X, noise), patience=2, callback=looks.append)
    chosen, last = est.coef_.copy(), looks[-1]["coef"]
    after = est.partial_fit(X[:1], y[:1]).coef_
    assert np.linalg.norm(after - chosen) < np.linalg.norm(after - last)
    assert set(est.history_[-1]) == set(looks[-1]) - {"validation_loss", "coef"}


class Renumbered(SequenceLike):
    """A model that joins its examples by Potentials.batch, which gives them other streams."""

    def potentials(self, w: Any, batch: Dataset, n_labels: int) -> Potentials:
        f = super().potentials(w, batch, n_labels)
        return Potentials.batch([f[n] for n in range(len(f))])


def test_a_model_that_renumbers_streams_is_refused() -> None:
    """Else the noise of an example would depend on what else is in its batch."""
    X, y = words(10)
    predictor(model=SequenceLike(), structure=Tree()).fit(X, y)
    with pytest.raises(ValueError, match=r"Renumbered must make potentials by Potentials.on\(batch.layout, ...\)"):
        predictor(model=Renumbered(), structure=Tree()).fit(X, y)


# Mistakes.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y[:-1]), "X and y must have the same length, but X has 6 examples and y 5"),
        (lambda X, y: ([], []), "X must hold at least one example"),
        (lambda X, y: (X[0], y[0]), "X must be a list of examples"),
        (lambda X, y: ([x[:, 0] for x in X], y), r"features of example 0 must have shape \(n_sites, n_features\)"),
        (lambda X, y: ([X[0][:, :2], *X[1:]], y), "features must have the same number of columns"),
        (
            lambda X, y: ([X[0] * np.nan, *X[1:]], y),
            r"features of example 0 must be finite, but entry \[0, 0\] is nan",
        ),
        (lambda X, y: (X, [y[0][:-1], *y[1:]]), r"y\[0\] must have one label for each site"),
        (lambda X, y: (X, None), "y must be a list"),
        (lambda X, y: (X, [0, 1, 0, 1, 0, 1]), r"y\[0\] must be a sequence of labels"),
        (lambda X, y: (X, [[[0.5, 0.5]] * len(y[0]), *y[1:]]), r"y\[0\] must hold one label for each site"),
        (lambda X, y: (sp.csr_matrix(X[0]), y), "X must be a list of examples"),
        (lambda X, y: (X, [None] * 6), "y must hold some labelled site"),
        (lambda X, y: (X, [np.full(len(v), -1) for v in y]), "y must hold some labelled site"),
        (
            lambda X, y: (X, [np.full((len(y[0]), 2), 0.7), *y[1:]]),
            r"y\[0\] must have shape \(\d, 3\) for soft labels",
        ),
        (lambda X, y: (X, [np.full((len(y[0]), 3), 0.7), *y[1:]]), r"y\[0\] must hold probabilities"),
        (lambda X, y: ([Example(X[0], [[0, 99]]), *X[1:]], y), "edges of example 0 must join sites"),
        (lambda X, y: ([Example(X[0], sizes=[-1.0] * len(X[0])), *X[1:]], y), "sizes of example 0 must be"),
        (
            lambda X, y: ([Example(X[0], edge_features=[[1.0]] * 99), *X[1:]], y),
            "edge_features of example 0 must have",
        ),
    ],
)
def test_mistakes_in_the_data_are_named_before_any_work(change: Any, message: str) -> None:
    """Each with the argument and the place."""
    with pytest.raises(ValueError, match=message):
        predictor().fit(*change(*words(6)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l2": 0}, "l2 must be a number above 0"),
        ({"l2": np.nan}, "l2 must be a number above 0"),
        ({"unlabelled_weight": -1}, "unlabelled_weight must be a number at least 0"),
        ({"solver": DoubleSGD(n_passes=0)}, "n_passes must be a number above 0"),
        ({"solver": DoubleSGD(batch_size=0)}, "batch_size must be an integer of at least 1"),
        ({"solver": DoubleSGD(step=PlainStep(-1))}, "first_step must be a number above 0"),
        ({"objective": MarginalLogLikelihood(WeightedHamming([1, 2]))}, "label_costs must be 3 numbers"),
        ({"objective": MarginalLogLikelihood(WeightedHamming([1, -2, 1]))}, "label_costs must be 3 numbers"),
        ({"model": GraphModel("repulsive")}, "pairwise must be one of 'potts', 'symmetric', 'directed', but is"),
        ({"model": MatchingModel()}, "MatchingModel needs label_features"),
        ({"structure": BinaryGraph()}, "BinaryGraph needs two labels"),
        ({"classes": ["a", "a"]}, "classes must not repeat"),
        ({"classes": ["a", "b"]}, "which is not among the classes"),
        ({"calibration": 100}, "calibration must be a number of folds"),
        ({"random_state": -1}, "random_state must be"),
        ({"solver": DoubleSGD(batch_size=2.5)}, "batch_size must be an integer"),  # type: ignore[arg-type]
        ({"n_perturbations": 0}, "n_perturbations must be"),
        ({"n_jobs": 0}, "n_jobs must be a number of processes"),
        ({"n_jobs": "2"}, "n_jobs must be a number of processes"),
    ],
)
def test_mistakes_in_the_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    """Before any work is done."""
    with pytest.raises(ValueError, match=message):
        predictor(**parameters).fit(*words(6))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": GraphModel}, r"model must be of type Model, such as SequenceModel\(\)"),
        ({"structure": "chain"}, "structure must be of type Structure"),
        ({"objective": Hamming()}, "objective must be of type Objective"),
        ({"objective": LogLikelihood}, "objective must be"),
        ({"solver": "sgd"}, "solver must be of type Solver, such as DoubleSGD"),
        ({"decoding": "MAP"}, "decoding must be of type Decoding"),
        ({"task_loss": "hamming"}, "task_loss must be of type TaskLoss"),
    ],
)
def test_parts_of_the_wrong_type_are_named(parameters: dict[str, Any], message: str) -> None:
    """Classes for objects, names for objects, losses for objectives."""
    with pytest.raises(TypeError, match=message):
        predictor(**parameters).fit(*words(6))


@pytest.mark.parametrize("task_loss", [Hamming(), BalancedHamming(), ZeroOne()])
def test_labels_that_were_not_learned_count_as_missed(task_loss: TaskLoss) -> None:
    """As scikit-learn has it, so that a rare label in one fold does not end a search."""
    X, y = words(6)
    est = predictor(task_loss=task_loss).fit(X, y)
    right = est.predict(X)
    assert est.score(X, right) == 1.0
    other = [np.array(["z" if d == 0 else label for d, label in enumerate(labels)]) for labels in right]
    wrong = [["ab"[label == "a"] if d == 0 else label for d, label in enumerate(labels)] for labels in right]
    found = est.losses(X, other)
    if isinstance(task_loss, BalancedHamming):  # there is one more label to miss, all of it
        assert (found > 0).all()
        assert found[0] == pytest.approx(1 / len(set(other[0])))
    else:
        np.testing.assert_array_equal(found, est.losses(X, wrong))


def test_mistakes_after_the_fit_are_named() -> None:
    """Not fitted, other features, labels never seen, soft labels for a likelihood of labellings."""
    X, y = words(6)
    fresh = predictor()
    for method, arguments in (
        (fresh.predict, (X,)),
        (fresh.score, (X, y)),
        (fresh.save, ("nowhere",)),
        (fresh.predict_marginals, (X,)),
    ):
        with pytest.raises(NotFittedError, match="call fit"):
            method(*arguments)
    est = predictor().fit(X, y)
    with pytest.raises(ValueError, match="X has 2 features, but the fit had 4"):
        est.predict([x[:, :2] for x in X])
    with pytest.raises(ValueError, match="y must hold labels that were learned"):
        est.score(X, [np.full(len(v), "z") for v in y])
    with pytest.raises(ValueError, match="classes must stay what they were"):
        est.partial_fit(X, y, classes=["a", "b"])
    with pytest.raises(ValueError, match=r"given\[0\] holds the label 'z'"):
        est.predict_marginals(X[:1], given=[np.full(len(y[0]), "z")])
    with pytest.raises(ValueError, match="LogLikelihood learns from labels"):
        predictor(objective=LogLikelihood()).fit(
            X, [np.full((len(v), 3), 1 / 3) if i else v for i, v in enumerate(y)]
        )
    with pytest.raises(ValueError, match="edge_features must not be negative"):
        predictor(model=GraphModel(), structure=BinaryGraph()).fit(
            [Example(np.ones((2, 1)), edge_features=[[-1.0]])], [[0, 1]]
        )


def test_matchings_need_a_row_for_every_site_and_no_more_than_labels() -> None:
    """Label k is row k of label_features; at predict too."""
    rng = np.random.default_rng(0)

    def example(n_sites: int, n_rows: int) -> Example:
        return Example(rng.normal(size=(n_sites, 2)), label_features=rng.normal(size=(n_rows, 3)))

    est = predictor(model=MatchingModel(), structure=Matching(), classes=range(4))
    est.fit([example(2, 4), example(3, 3)], [[3, 0], [0, 1, 2]])
    for bad in (example(3, 2), example(2, 5)):
        with pytest.raises(ValueError, match="label_features of example 0 must have at least one row for each site"):
            est.predict([bad])
    with pytest.raises(ValueError, match="needs label_features"):
        est.predict([rng.normal(size=(2, 2))])
    wide = Example(rng.normal(size=(2, 2)), label_features=rng.normal(size=(3, 5)))
    with pytest.raises(ValueError, match="the examples must have as many"):
        est.predict([wide])


def test_options_of_fit_are_checked_before_it(tmp_path: Path) -> None:
    """Each error names the option; nothing is lost after hours."""
    X, y = words(6)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"validation": X}, "validation must be a pair"),
        ({"validation": True}, "validation must be a pair"),
        ({"patience": 0}, "patience must be an integer"),
        ({"patience": "a"}, "patience must be an integer"),
        ({"checkpoint": tmp_path / "nowhere" / "x"}, "does not exist"),
        ({"checkpoint": tmp_path}, "it is a folder"),
        ({"checkpoint": tmp_path / "x", "checkpoint_seconds": "x"}, "checkpoint_seconds must be a number"),
        ({"callback": 3}, "callback must be a function"),
    ]
    for options, message in cases:
        with pytest.raises((ValueError, TypeError, OSError), match=message):
            predictor().fit(X, y, **options)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"solver": DoubleSGD(n_passes="a")}, "n_passes must be a number"),  # type: ignore[arg-type]
        ({"solver": DoubleSGD(step=PlainStep("a"))}, "first_step must be a number"),  # type: ignore[arg-type]
        ({"solver": DoubleSGD(averaging=3)}, "averaging must be an Averaging"),  # type: ignore[arg-type]
        ({"calibration": 2.5}, "calibration must be a number of folds"),
        ({"objective": MarginalLogLikelihood("hamming")}, "loss of the objective must be of type TaskLoss"),  # type: ignore[arg-type]
    ]
    for parameters, message in wrong:
        with pytest.raises((ValueError, TypeError), match=message):
            predictor(**parameters).fit(X, y)


def test_every_example_is_tried_on_the_structure_before_the_fit() -> None:
    """A cycle in the last of them, and labels that no matching has, are found and named at once."""
    path, cycle = [[0, 1], [1, 2]], [[0, 1], [1, 2], [2, 0]]
    X = [Example(np.ones((3, 1)), edges) for edges in (path, path, path, cycle)]
    with pytest.raises(ValueError, match="example 3 contain a cycle"):
        StructuredPredictor(structure=Tree(), random_state=0).fit(X, [[0, 1, 0]] * 4)
    X = [Example(np.ones((2, 1)), label_features=np.ones((3, 1)))] * 3
    with pytest.raises(ValueError, match="y holds labels that Matching does not allow"):
        StructuredPredictor(MatchingModel(), Matching(), classes=range(3), random_state=0).fit(
            X, [[0, 1], [1, 2], [2, 2]]
        )


def test_classes_may_be_a_range_and_l2_a_small_float(tmp_path: Path) -> None:
    """Both are saved, by save and in a checkpoint."""
    X, letters = words(6)
    y = [np.searchsorted(list("abc"), word) for word in letters]
    est = predictor(classes=range(3), l2=np.float32(0.1), solver=DoubleSGD(n_passes=1))
    est.fit(X, y, checkpoint=tmp_path / "checkpoint", checkpoint_seconds=0).save(tmp_path / "model")
    assert StructuredPredictor.load(tmp_path / "model").classes_.tolist() == [0, 1, 2]
