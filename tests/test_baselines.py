"""The exact CRF, the exact marginal likelihood and the structured SVM: against enumeration, programs and crfsuite."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pycrfsuite
import pytest
from scipy.optimize import minimize

from perturbmap import (
    BCFW,
    EXACT,
    LBFGS,
    BinaryGraph,
    BruteForce,
    Chain,
    DoubleSGD,
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    Example,
    FromSolver,
    GraphModel,
    Hamming,
    LogLikelihood,
    MarginalLogLikelihood,
    Objective,
    PolynomialAveraging,
    Potentials,
    Solver,
    StructuredHinge,
    StructuredPredictor,
    WeightedHamming,
    ZeroOne,
    marginals,
    regularisation_path,
)
from perturbmap.datasets import load_ocr
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem
from perturbmap.solvers.dual_state import BCFWState
from perturbmap.solvers.line_search import line_search

from .instances import is_injective
from .test_learning import CASES, problem

ALPHABET = list("abcdefghijklmnopqrstuvwxyz")

# The exact CRF.

EXACT_OBJECTIVES: list[Objective] = [ExactLogLikelihood(), ExactMarginalLogLikelihood()]


@pytest.mark.parametrize("objective", EXACT_OBJECTIVES, ids=repr)
@pytest.mark.parametrize("name", ["chain", "sparse tree"])
@pytest.mark.parametrize("n_known", [None, 1])
def test_exact_objectives_are_those_of_enumeration(
    name: str, objective: Objective, n_known: int | None, rng: np.random.Generator
) -> None:
    """Value and gradient, examples weighted, labels all known or only some; the gradient is a finite difference."""
    p, w = problem(name, objective, rng)
    if n_known is not None:
        t = p.targets
        known = np.arange(p.data.n_sites) % 2 == 0
        gaps = replace(t, labels=np.where(known, t.labels, -1), label_weights=t.label_weights * known[:, None])
        p = replace(p, targets=gaps)
    listed = replace(p, structure=BruteForce())
    value, gradient = p.value_and_grad(w)
    expected_value, expected_gradient = listed.value_and_grad(w)
    assert value == pytest.approx(expected_value, rel=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-12)
    direction = rng.normal(size=w.shape)
    up, down = (listed.value_and_grad(w + s * 1e-6 * direction)[0] for s in (1, -1))
    assert (up - down) / 2e-6 == pytest.approx(gradient @ direction, rel=1e-6)


def test_the_exact_log_likelihood_is_a_probability(rng: np.random.Generator) -> None:
    """Its exponential, summed over all labellings, is one."""
    p, w = problem("chain", ExactLogLikelihood(), rng)
    one = replace(p, data=p.data.take(np.array([0])))
    total = 0.0
    for y in itertools.product(range(3), repeat=4):
        labels = np.array(y, dtype=np.int32)
        targets = replace(p.targets, labels=labels, weights=np.ones(1), is_complete=np.array([True]))
        total += np.exp(replace(one, targets=targets).value_and_grad(w)[0])
    assert total == pytest.approx(1.0)


def test_the_gumbel_bound_lies_below_the_exact_likelihood(rng: np.random.Generator) -> None:
    """The bound f - A_G is at most log P, on average over the noise."""
    exact, w = problem("chain", ExactLogLikelihood(), np.random.default_rng(1))
    bound, _ = problem("chain", LogLikelihood(), np.random.default_rng(1))
    values = [bound.value_and_grad(w, draw=d)[0] for d in range(400)]
    assert np.mean(values) < exact.value_and_grad(w)[0] + 3 * np.std(values) / 20


@pytest.mark.parametrize("objective", [*EXACT_OBJECTIVES, LogLikelihood()], ids=repr)
def test_where_no_exact_sum_exists_it_refuses_and_says_what_to_use(objective: Objective) -> None:
    """A graph with cycles has none; the Gumbel objectives need none."""
    X = [Example(np.ones((3, 1)), [[0, 1], [1, 2], [2, 0]])]
    y = [[0, 1, 1]]
    estimator = StructuredPredictor(GraphModel(), BinaryGraph(), objective, random_state=0)
    if isinstance(objective, LogLikelihood):
        estimator.fit(X, y)
        return
    instead = "MarginalLogLikelihood" if isinstance(objective, ExactMarginalLogLikelihood) else "LogLikelihood"
    with pytest.raises(TypeError, match=rf"not for BinaryGraph: use {instead}\(\)"):
        estimator.fit(X, y)
    with pytest.raises(TypeError, match="not for BinaryGraph: use PINNED"):
        marginals(BinaryGraph(), Potentials(np.zeros((2, 2))), method=EXACT)


def test_lbfgs_keeps_its_bounds_and_its_certificate(rng: np.random.Generator) -> None:
    """The gap bounds what a longer run still gains, also where weights end at a bound."""
    for name in ("chain", "graph"):
        p, _ = problem(name, ExactLogLikelihood(), rng)
        p = replace(p, structure=BruteForce())
        rough, fine = LBFGS(tolerance=1e-2), LBFGS(tolerance=1e-9)
        state, best = rough.run(p, rough.start(p)), fine.run(p, fine.start(p))
        assert -1e-12 <= best.objective - state.objective <= state.gap
        assert state.gap <= 1e-2 * abs(state.objective)
        assert best.objective == pytest.approx(p.objective_at(best.w), rel=1e-12)
        signed = p.model.nonnegative(p.data, p.n_labels)
        assert (best.w[signed] >= 0).all()
    assert (best.w[signed] == 0).any()  # the case is one where the bound matters


def test_a_crf_gives_exact_marginals() -> None:
    """What is learned by exact sums is answered by exact sums."""
    X, y, folds = load_ocr()
    words = np.flatnonzero(folds == 0)[:20]
    X, y = [X[i] for i in words], [y[i] for i in words]
    crf = StructuredPredictor(objective=ExactLogLikelihood(), random_state=0).fit(X, y)
    f = crf._potentials(X)[1]
    expected = marginals(Chain(), f, method=EXACT).mean
    np.testing.assert_array_equal(np.concatenate(crf.predict_marginals(X)), expected)
    np.testing.assert_allclose(expected.sum(axis=1), 1)


def crfsuite_fit(X: list[Floats], y: list[Any], c2: float, path: Path, epsilon: float) -> tuple[float, Any]:
    """The same model in crfsuite: pixels, a bias, marks at both ends; its loss and a tagger."""
    trainer = pycrfsuite.Trainer(verbose=False)
    for x, word in zip(X, y, strict=True):
        trainer.append(crfsuite_features(x), list(word))
    trainer.set_params(
        {
            "c1": 0.0,
            "c2": c2,
            "feature.possible_states": True,
            "feature.possible_transitions": True,
            "epsilon": epsilon,
            "delta": epsilon,
        }
    )
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return trainer.logparser.last_iteration["loss"], tagger


def crfsuite_features(x: Floats) -> list[dict[str, float]]:
    rows = [{"bias": 1.0, **{str(j): 1.0 for j in np.flatnonzero(pixels)}} for pixels in x]
    rows[0]["first"] = rows[-1]["last"] = 1.0
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("fold", [0, 1])
def test_the_crf_is_that_of_crfsuite(fold: int, tmp_path: Path) -> None:
    """The same convex problem, l2 = 2 c2 / N: the same optimum, and the same letters."""
    X, y, folds = load_ocr()
    train, test = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
    c2 = 1.0
    X_train, y_train = [X[i] for i in train], [y[i] for i in train]
    loss, tagger = crfsuite_fit(X_train, y_train, c2, tmp_path / "model", 1e-6)
    estimator = StructuredPredictor(
        objective=ExactLogLikelihood(), l2=2 * c2 / len(train), solver=LBFGS(tolerance=1e-4)
    ).fit(X_train, y_train)
    assert -estimator.history_[-1]["objective"] * len(train) == pytest.approx(loss, rel=1e-3)
    truth = np.concatenate([y[i] for i in test])
    ours = np.mean(np.concatenate(estimator.predict([X[i] for i in test])) != truth)
    theirs = np.mean(np.concatenate([tagger.tag(crfsuite_features(X[i])) for i in test]) != truth)
    assert abs(ours - theirs) < 0.002


# The structured SVM.

VARIANTS = [
    BCFW(gap_sampling=gap_sampling, pairwise_steps=pairwise, cache=cache)
    for gap_sampling, pairwise, cache in itertools.product([False, True], repeat=3)
]


def hinge_problem(name: str, rng: np.random.Generator) -> Problem:
    loss = WeightedHamming([1.0, 2.0]) if name in ("graph", "sparse tree") else Hamming()
    return problem(name, StructuredHinge(loss), rng)[0]


def quadratic_program(p: Problem) -> float:
    """The optimum of the primal, with one constraint a labelling, by SciPy's SLSQP."""
    n, n_weights = len(p.data), p.n_weights
    rows, bounds = [], []
    for i in range(n):
        one = p.data.take(np.array([i]))
        sites = p.data.sites_of(np.array([i]))
        truth, c = p.targets.labels[sites], p.targets.label_weights[sites]
        f = p.model.potentials(np.zeros(n_weights), one, p.n_labels)
        for y in itertools.product(range(p.n_labels), repeat=len(sites)):
            labels = np.array(y, dtype=np.int32)
            if f.score(labels)[0] < 0 or (f.pairwise is None and not is_injective(labels)):
                continue  # no labelling of this matching
            psi = p.model.pullback(one, p.n_labels, f.indicators(truth))
            psi = psi - p.model.pullback(one, p.n_labels, f.indicators(labels))
            slack = np.zeros(n)
            slack[i] = 1.0
            rows.append(np.concatenate([psi, slack]))
            bounds.append((c.sum(axis=1, keepdims=True) - c)[np.arange(len(sites)), labels].sum())
    a, b = np.array(rows), np.array(bounds)
    scale = p.targets.weights / n
    signed = p.model.nonnegative(p.data, p.n_labels)
    lower = np.full(n_weights + n, -np.inf)
    lower[signed] = 0.0

    def primal(x: Floats) -> tuple[float, Floats]:
        w, slack = x[:n_weights], x[n_weights:]
        return float(0.5 * p.l2 * w @ w + scale @ slack), np.concatenate([p.l2 * w, scale])

    start = np.concatenate([np.zeros(n_weights), np.full(n, b.max())])
    solved = minimize(
        primal,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(low, None) for low in lower],
        constraints={"type": "ineq", "fun": lambda x: a @ x - b, "jac": lambda x: a},
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    assert solved.success
    return float(solved.fun)


@pytest.mark.parametrize("name", CASES)
def test_every_variant_ends_at_the_optimum_of_the_quadratic_program(name: str, rng: np.random.Generator) -> None:
    """The optimum lies between dual and primal all along; the dual never falls; the gap closes; signs are kept."""
    p = hinge_problem(name, rng)
    optimum = quadratic_program(p)
    for solver in VARIANTS:
        tolerance = 1e-6 if solver.pairwise_steps else 2e-2  # with plain steps the gap closes like 1 / passes
        solver = BCFW(**{**solver.get_params(), "tolerance": tolerance, "n_passes": 20000})
        duals: list[float] = []

        def watch(state: BCFWState, duals: list[float] = duals) -> bool:
            dual = state.dual(p.l2)
            assert dual <= optimum + 1e-9
            assert not duals or dual >= duals[-1] - 1e-12
            if state.certified_at == state.iteration:
                assert state.primal >= optimum - 1e-9
                assert state.primal == pytest.approx(-p.objective_at(state.w), rel=1e-12)
            duals.append(dual)
            return False

        state = solver.run(p, solver.start(p), watch)
        assert state.gap(p.l2) <= tolerance * state.primal, solver
        assert state.primal - optimum <= state.gap(p.l2) + 1e-9
        assert (state.w[p.model.nonnegative(p.data, p.n_labels)] >= 0).all()
        assert all(block.alpha.sum() == pytest.approx(1.0) and (block.alpha >= 0).all() for block in state.blocks)


def test_the_signs_matter_in_the_graph_case(rng: np.random.Generator) -> None:
    """A case in which A alpha has a negative weight that w must not have: else the test above says little."""
    p = hinge_problem("graph", rng)
    solver = BCFW(1e-4, 20000)
    state = solver.run(p, solver.start(p))
    assert (state.a_alpha[p.model.nonnegative(p.data, p.n_labels)] < -1e-3).any()


def test_the_line_search_finds_the_top_of_a_piecewise_quadratic(rng: np.random.Generator) -> None:
    """Against a fine grid."""
    l2 = 0.7
    for _ in range(200):
        v, d = rng.normal(size=8), rng.normal(size=8)
        loss, longest = rng.normal() * 2, rng.uniform(0.1, 3)
        nonnegative = slice(2, rng.integers(2, 9))

        def project(x: Floats, nonnegative: slice = nonnegative) -> Floats:
            x = x.copy()
            x[nonnegative] = np.maximum(0, x[nonnegative])
            return x

        def dual(t: float, v: Floats = v, d: Floats = d, loss: float = loss, project: Any = project) -> float:
            return float(-0.5 * l2 * (project(v + t * d) ** 2).sum() + t * loss)

        gain = loss - l2 * float(project(v) @ d)
        t = line_search(v, d, loss, max(0.0, gain), l2, nonnegative, longest)
        assert 0 <= t <= longest
        assert dual(t) >= max(dual(s) for s in np.linspace(0, longest, 2001)) - 1e-12


def test_the_average_is_certified_too(rng: np.random.Generator) -> None:
    """With averaging, primal and gap are those of the average, which is what is returned."""
    p = hinge_problem("chain", rng)
    optimum = quadratic_program(p)
    solver = BCFW(1e-2, 5000, averaging=PolynomialAveraging(1))
    state = solver.run(p, solver.start(p))
    assert not np.array_equal(state.average, state.w)
    assert state.primal == pytest.approx(-p.objective_at(state.average), rel=1e-12)
    assert 0 <= state.primal - optimum <= state.gap(p.l2) <= 1e-2 * state.primal


def test_the_subgradient_method_agrees(rng: np.random.Generator) -> None:
    """The same hinge by DoubleSGD ends near the same optimum, from above."""
    p = hinge_problem("chain", rng)
    optimum = quadratic_program(p)
    solver = DoubleSGD(n_passes=3000, batch_size=3)
    w = solver.run(p, solver.start(p)).average
    assert optimum <= -p.objective_at(w) <= 1.01 * optimum


def ocr_words(n: int) -> tuple[list[Floats], list[Any]]:
    X, y, folds = load_ocr()
    words = np.random.default_rng(0).permutation(np.flatnonzero(folds == 0))[:n]
    return [X[i] for i in words], [y[i] for i in words]


@pytest.mark.parametrize(
    "solver", [BCFW(1e-2), BCFW(1e-2, gap_sampling=False, averaging=PolynomialAveraging(1)), BCFW(1e-2, cache=True)]
)
def test_history_and_files_of_a_structured_svm(solver: BCFW, tmp_path: Path) -> None:
    """Primal, dual, gap and oracle calls, without being asked for; the same predictions from a file."""
    X, y = ocr_words(60)
    svm = StructuredPredictor(objective=StructuredHinge(), l2=0.3, solver=solver, random_state=0).fit(X, y)
    last = svm.history_[-1]
    assert last["gap"] == last["primal"] - last["dual"] <= 1e-2 * last["primal"]
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
        (StructuredHinge(), BCFW(1e-2)),
        (StructuredHinge(), BCFW(1e-2, cache=True, averaging=PolynomialAveraging(1))),
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
        StructuredHinge: BCFW(1e-3),
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
        data, f = first._potentials(X)
        given = np.full(data.n_sites, -1, dtype=np.int32)
        for n in range(50, 60):
            given[data.site_offsets[n]] = first.classes_.index(y[n][0])
        guessed = f.split(Chain().argmax(f, given))
        labels = [*y[:30], *(np.array(first.classes_)[g] for g in guessed[30:])]
        assert all(labels[n][0] == y[n][0] for n in range(50, 60))
        by_hand = StructuredPredictor(objective=objective, l2=0.5, solver=solver, classes=ALPHABET, random_state=0)
        by_hand.fit(X, labels)  # 30 + 30 words: both means together are twice the mean over all
        assert np.linalg.norm(by_hand.coef_ - estimator.coef_) < 0.1 * np.linalg.norm(estimator.coef_)


def test_solvers_and_objectives_that_do_not_fit_say_so() -> None:
    """Early, naming the one to use."""
    X, y = ocr_words(3)

    def fit(y: Any = y, **parameters: Any) -> None:
        StructuredPredictor(random_state=0, **parameters).fit(X, y)

    with pytest.raises(ValueError, match=r"StructuredHinge is solved by BCFW\(\)"):
        fit(objective=StructuredHinge(), solver=LBFGS())
    with pytest.raises(ValueError, match=r"LogLikelihood is solved by DoubleSGD\(\)"):
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
    with pytest.raises(ValueError, match=r"partial_fit needs solver=DoubleSGD\(\)"):
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
    p = svm._start(X, y)[0]
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
    p = svm._start(X, y)[0]
    assert last["primal"] == pytest.approx(-p.objective_at(svm.coef_), rel=1e-12)
    solver = DoubleSGD(n_passes=2000, batch_size=8)
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

    def interrupt(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(BCFW, "_step", interrupt)
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
