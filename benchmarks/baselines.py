"""The baselines: the CRF against crfsuite, the structured SVM against the clock, its variants against each other."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pycrfsuite
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import (
    BCFW,
    LBFGS,
    Chain,
    ExactLogLikelihood,
    PolynomialAveraging,
    SequenceModel,
    StructuredHinge,
    StructuredPredictor,
)
from perturbmap.data import Dataset
from perturbmap.datasets import OCR, load_ocr
from perturbmap.potentials import Floats
from tests.test_crf import crfsuite_features

LETTERS = list("abcdefghijklmnopqrstuvwxyz")


@cache
def ocr() -> OCR:
    return load_ocr()


def words(indices: np.ndarray, unit_length: bool) -> tuple[list[Floats], list[Any]]:
    X = [ocr().X[i] for i in indices]
    if unit_length:
        X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in X]
    return X, [ocr().y[i] for i in indices]


def crf() -> Iterator[Line]:
    """The same convex problem, raw pixels, c2 = 1; ours ends at an objective no worse than theirs."""
    train, _ = ocr().split("large", 0)
    X, y = words(train, unit_length=False)
    trainer = pycrfsuite.Trainer(verbose=False)
    for x, word in zip(X, y, strict=True):
        trainer.append(crfsuite_features(x), list(word))
    trainer.set_params({"c1": 0, "c2": 1.0, "feature.possible_states": True, "feature.possible_transitions": True})
    ours = {
        n: StructuredPredictor(
            structure=Chain(n), objective=ExactLogLikelihood(), l2=2 / len(train), solver=LBFGS(2e-4), random_state=0
        )
        for n in (1, 2)
    }

    def fit(n: int) -> None:
        with threadpool_limits(n):
            ours[n].fit(X, y)

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.crfsuite")
        peer, one, two = interleaved([lambda: trainer.train(path), lambda: fit(1), lambda: fit(2)], repeats=3)
    loss = trainer.logparser.last_iteration["loss"]
    for n, seconds, bar in ((1, one, 1.0), (2, two, 0.6)):
        objective = -ours[n].history_[-1]["objective"] * len(train)
        yield Line(
            f"CRF, OCR nine folds, {n} thread{'s' * (n > 1)}: {seconds:.1f} s to a loss of {objective:.1f}",
            f"python-crfsuite, {peer:.1f} s, {loss:.1f}",
            seconds / peer if objective <= loss else float("inf"),
            bar,
            at_least=False,
        )


def svm_predictor(l2: float, n_passes: int) -> StructuredPredictor:
    solver = BCFW(0.01, n_passes, gap_sampling=False, pairwise_steps=False, averaging=PolynomialAveraging(1))
    return StructuredPredictor(
        structure=Chain(1), objective=StructuredHinge(), l2=l2, solver=solver, classes=LETTERS, random_state=0
    )


def svm() -> Iterator[Line | str]:
    """Seconds of training until the test error is 12.5 %; l2 by a quarter of the training words, held out."""
    train, test = ocr().split("large", 0)
    shuffled = np.random.default_rng(0).permutation(train)
    held, rest = shuffled[: len(train) // 4], shuffled[len(train) // 4 :]
    errors = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # eight passes are what they are given
        for l2 in (3e-5, 1e-4, 3e-4):
            est = svm_predictor(l2, 8).fit(*words(rest, True))
            X, y = words(held, True)
            errors[l2] = float(np.mean(np.concatenate(est.predict(X)) != np.concatenate(y)))
        best = min(errors, key=lambda l2: errors[l2])
        yield "l2 by held-out words: " + ", ".join(f"{l2:g} {error:.2%}" for l2, error in errors.items())
        X, y = words(test, True)
        data, truth = Dataset.from_examples(X), np.searchsorted(LETTERS, np.concatenate(y))
        looking = 0.0
        reached: list[tuple[float, float]] = []

        def look(info: dict[str, Any]) -> None:
            nonlocal looking
            start = time.perf_counter()
            f = SequenceModel().potentials(info["coef"], data, 26)
            error = float(np.mean(Chain().argmax(f) != truth))
            if error <= 0.125 or info["gap"] <= 0.01 * info["primal"]:
                reached.append((info["seconds"] - looking, error))
            looking += time.perf_counter() - start

        svm_predictor(best, 8).fit(*words(train, True), callback=look)
    seconds, error = reached[0] if reached else (float("inf"), float("nan"))
    yield Line(
        f"SSVM, OCR nine folds: seconds to 12.5 % test error or 1 % gap ({error:.1%})",
        "seconds",
        seconds,
        20,
        at_least=False,
    )


def svm_variants() -> Iterator[Line]:
    """Maximisations until the gap is 0.1 %, on 100 words."""
    train, _ = ocr().split("small", 0)
    X, y = words(np.random.default_rng(0).permutation(train)[:100], unit_length=False)
    calls: dict[str, float] = {}
    variants = {
        "plain BCFW": (False, False, False),
        "gap sampling": (True, False, False),
        "pairwise steps": (False, True, False),
        "cache": (False, False, True),
        "gap sampling + pairwise steps (default)": (True, True, False),
        "gap sampling + pairwise steps + cache": (True, True, True),
    }
    for name, (gap_sampling, pairwise, cached) in variants.items():
        solver = BCFW(1e-3, 3000, gap_sampling=gap_sampling, pairwise_steps=pairwise, cache=cached)
        est = StructuredPredictor(objective=StructuredHinge(), l2=0.3, solver=solver, random_state=0).fit(X, y)
        calls[name] = est.history_[-1]["oracle_calls"]
        if name != "plain BCFW":
            yield Line(
                f"SSVM to a gap of 0.1 %, {name}: {calls[name]:,} oracle calls, fewer by",
                f"plain BCFW, {calls['plain BCFW']:,}",
                calls["plain BCFW"] / calls[name],
                1,
            )


BENCHMARKS = [
    Benchmark("baselines crf", crf),
    Benchmark("baselines svm time", svm),
    Benchmark("baselines svm variants", svm_variants),
]
