"""The exact CRF: enumeration, crfsuite, certificates."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pycrfsuite
import pytest

from perturbmap import (
    EXACT,
    LBFGS,
    BinaryGraph,
    BruteForce,
    Chain,
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    Example,
    GraphModel,
    LogLikelihood,
    Objective,
    Potentials,
    StructuredPredictor,
    marginals,
)
from perturbmap.datasets import load_ocr
from perturbmap.potentials import Floats

from .test_learning import problem

ALPHABET = list("abcdefghijklmnopqrstuvwxyz")

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
        gaps = replace(t, labels=np.where(known, t.labels, -1), c=t.label_weights * known[:, None])
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
        signed = p.nonnegative
        assert (best.w[signed] >= 0).all()
    assert (best.w[signed] == 0).any()  # the case is one where the bound matters


def test_a_crf_gives_exact_marginals() -> None:
    """What is learned by exact sums is answered by exact sums."""
    X, y, folds = load_ocr()
    words = np.flatnonzero(folds == 0)[:20]
    X, y = [X[i] for i in words], [y[i] for i in words]
    crf = StructuredPredictor(objective=ExactLogLikelihood(), random_state=0).fit(X, y)
    f = crf.potentials(X)
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
def test_the_crf_is_that_of_crfsuite(tmp_path: Path) -> None:
    """The same convex problem, l2 = 2 c2 / N: the same optimum, and the same letters."""
    X, y, folds = load_ocr()
    train, test = np.flatnonzero(folds == 0), np.flatnonzero(folds == 1)
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
