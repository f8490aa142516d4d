"""Sparse learning on real sentences, beside crfsuite: time to its loss, to its accuracy, memory, tagging, a step.

The sentences are no part of the package: ``TAGGING=folder make bench ONLY=tagging`` names the folder of ``perturbmap
reproduce tagging``. Every tagger is learned in a process of its own: its memory is its own too.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pycrfsuite
import scipy.sparse as sp

from benchmarks.harness import Benchmark, Line, MissingError, interleaved
from perturbmap import LBFGS, Chain, DoubleSGD, ExactLogLikelihood, StructuredPredictor
from perturbmap.experiments.tagging.data import Corpus
from perturbmap.experiments.tagging.learning import forget_peak_memory, memory
from perturbmap.solvers import Problem

# The penalty of all, c2 ||w||^2 beside the sum over sentences: crfsuite's default.
C2 = 1.0
# Penalties c1 ||w||_1 and c2 ||w||^2 of taggers that are to be small, as sklearn-crfsuite's documentation has them.
SMALL = (0.1, 0.1)
# Passes that Algorithm 2 is given, as in `reproduce tagging`; once 5, with which today's steps miss the accuracy.
N_PASSES = 10
FEATURES = "neighbours"


def folder() -> Path:
    """Where the sentences are."""
    if "TAGGING" not in os.environ:
        raise MissingError("TAGGING=folder must name the sentences (perturbmap reproduce tagging)")
    return Path(os.environ["TAGGING"])


class Stopwatch:
    """Seconds and megabytes from its beginning."""

    def __init__(self) -> None:
        forget_peak_memory()
        self._memory, self._wall, self._cpu = memory("VmRSS") or 0.0, time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {
            "wall": time.perf_counter() - self._wall,
            "cpu": time.process_time() - self._cpu,
            "memory": (memory("VmHWM") or 0.0) - self._memory,
        }


def in_a_process(function: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def accuracy(predicted: list[Any], corpus: Corpus) -> float:
    pairs = zip(predicted, corpus.parts["dev"].tags, strict=True)
    return float(np.mean([a == b for ours, true in pairs for a, b in zip(ours, true, strict=True)]))


def crfsuite(where: Path, model: Path, c1: float = 0.0, c2: float = C2) -> dict[str, float]:
    """Learns as its users do, to the end by its own rule."""
    corpus = Corpus.load(where)
    X, y = corpus.training_set(FEATURES, "all")
    watch = Stopwatch()
    trainer = pycrfsuite.Trainer("lbfgs", params={"c1": c1, "c2": c2}, verbose=False)
    for x, tags in zip(X, y, strict=True):
        trainer.append(x, tags)
    trainer.train(str(model))
    seen = watch.read()
    tagger = pycrfsuite.Tagger()
    tagger.open(str(model))
    dev = [tagger.tag(x) for x in corpus.tokens("dev", FEATURES)]
    last = trainer.logparser.last_iteration
    return {**seen, "loss": last["loss"], "weights": last["active_features"], "accuracy": accuracy(dev, corpus)}


def exact(where: Path, loss: float, n_threads: int, c1: float = 0.0, c2: float = C2) -> dict[str, float]:
    """Learns until the loss is no larger than crfsuite's."""
    X, y = Corpus.load(where).training_set(FEATURES, "all")
    watch = Stopwatch()
    crf = StructuredPredictor(structure=Chain(n_threads), objective=ExactLogLikelihood(), l2=2 * c2 / len(X))
    problem, solver = crf.problem(X, y), LBFGS(1e-6, l1=c1 / len(X))
    state = solver.run(problem, solver.start(problem), lambda state: bool(-state.objective * len(X) <= loss))
    return {**watch.read(), "loss": -state.objective * len(X), "weights": float(np.count_nonzero(state.w))}


def fitted(where: Path) -> dict[str, float]:
    """A whole fit by its own rule, to weigh what it needs."""
    X, y = Corpus.load(where).training_set(FEATURES, "all")
    watch = Stopwatch()
    StructuredPredictor(structure=Chain(2), objective=ExactLogLikelihood(), l2=2 * C2 / len(X)).fit(X, y)
    return watch.read()


def algorithm_2(where: Path) -> dict[str, float]:
    """A few passes of the default solver, on one thread."""
    corpus = Corpus.load(where)
    X, y = corpus.training_set(FEATURES, "all")
    watch = Stopwatch()
    predictor = StructuredPredictor(
        structure=Chain(1), l2=2 * C2 / len(X), solver=DoubleSGD(N_PASSES), random_state=0
    )
    predictor.fit(X, y)
    seen = watch.read()
    return {**seen, "accuracy": accuracy(predictor.predict(corpus.tokens("dev", FEATURES)), corpus)}


def learning() -> Iterator[Line]:
    where = folder()
    with TemporaryDirectory() as temporary:
        peer = in_a_process(crfsuite, where, Path(temporary) / "crfsuite")
    name = f"python-crfsuite, {peer['cpu']:.0f} CPU s, {peer['memory']:.0f} MB, loss {peer['loss']:.0f}"
    for n_threads, clock, bar in ((1, "cpu", 1.0), (2, "wall", 0.5)):
        ours = in_a_process(exact, where, peer["loss"], n_threads)
        work = f"tagging: exact CRF to the same loss, {n_threads} thread{'s' if n_threads > 1 else ''}, {clock} time"
        yield Line(work, name, ours[clock] / peer[clock], bar, at_least=False)
    ours = in_a_process(fitted, where)
    work = "tagging: exact CRF, memory that a whole fit adds, 2 threads"
    yield Line(work, name, ours["memory"] / peer["memory"], 1.5, at_least=False)
    ours = in_a_process(algorithm_2, where)
    work = f"tagging: Algorithm 2, {N_PASSES} passes, 1 thread, CPU time; dev {100 * ours['accuracy']:.2f} %"
    name = f"python-crfsuite; dev {100 * peer['accuracy']:.2f} %"
    is_as_good = ours["accuracy"] >= peer["accuracy"]
    yield Line(work, name, ours["cpu"] / peer["cpu"] if is_as_good else np.inf, 0.4, at_least=False)


def small() -> Iterator[Line]:
    """Under an L1 penalty, which leaves few weights."""
    where = folder()
    with TemporaryDirectory() as temporary:
        peer = in_a_process(crfsuite, where, Path(temporary) / "crfsuite", *SMALL)
    ours = in_a_process(exact, where, peer["loss"], 1, *SMALL)
    work = f"tagging: exact CRF with L1 to the same loss, 1 thread, CPU time; {ours['weights']:,.0f} weights"
    name = f"python-crfsuite, {peer['cpu']:.0f} CPU s; {peer['weights']:,.0f} weights"
    yield Line(work, name, ours["cpu"] / peer["cpu"], 1.0, at_least=False)


def tagging() -> Iterator[Line]:
    where = folder()
    corpus = Corpus.load(where, 1000)
    X, y = corpus.training_set(FEATURES, "all")
    dev = corpus.tokens("dev", FEATURES)
    crf = StructuredPredictor(structure=Chain(1), objective=ExactLogLikelihood(), solver=LBFGS(0.05), l2=2 / len(X))
    crf.fit(X, y)
    with TemporaryDirectory() as temporary:
        trainer = pycrfsuite.Trainer("lbfgs", params={"c2": 1.0, "max_iterations": 50}, verbose=False)
        for x, tags in zip(X, y, strict=True):
            trainer.append(x, tags)
        trainer.train(f"{temporary}/crfsuite")
        tagger = pycrfsuite.Tagger()
        tagger.open(f"{temporary}/crfsuite")
        tasks = [lambda: crf.predict(dev), lambda: [tagger.tag(x) for x in dev]]
        ours, theirs = interleaved(tasks, repeats=9, clock=time.process_time)
    work = f"tagging: {len(dev):,} sentences, from names to tags, 1 thread"
    yield Line(work, "python-crfsuite", ours / theirs, 1.0, at_least=False)


def sparse_problem(n_features: int) -> Problem:
    """Sentences of twenty tokens with twenty features each, of which many are rare; the first of so many columns."""
    rng = np.random.default_rng(0)
    n_sentences, n_tokens, n_each, k = 500, 20, 20, 17
    columns = np.minimum(rng.zipf(1.3, size=(n_sentences, n_tokens * n_each)), 200_000) - 1
    starts = np.arange(0, n_tokens * n_each + 1, n_each)
    ones = np.ones(n_tokens * n_each, dtype=np.float32)
    X = [sp.csr_array((ones, row, starts), shape=(n_tokens, n_features)) for row in columns]
    y = rng.integers(k, size=(n_sentences, n_tokens))
    return StructuredPredictor(structure=Chain(1), l2=1e-4, classes=range(k)).problem(X, list(y))


def steps() -> Iterator[Line]:
    solver = DoubleSGD(n_passes=1000)
    tasks: list[Callable[[], object]] = []
    for n_features in (200_000, 2_000_000):
        problem = sparse_problem(n_features)
        state = solver.run(problem, solver.start(problem), n_iter=50)

        def go_on(problem: Problem = problem, state: Any = state) -> None:
            solver.run(problem, state, n_iter=state.iteration + 30)

        tasks.append(go_on)
    few, many = interleaved(tasks, repeats=15, clock=time.process_time)
    work = "tagging: a step of DoubleSGD, 10 times the features, the same rows"
    yield Line(work, f"itself, {1e3 * few / 30:.2f} ms", many / few, 1.1, at_least=False)


BENCHMARKS = [
    Benchmark("tagging: learning", learning),
    Benchmark("tagging: small models", small),
    Benchmark("tagging: predicting", tagging),
    Benchmark("tagging: steps", steps),
]
