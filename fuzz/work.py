"""Pieces of work for a soak, each with data of a random size, and a folder of its own that is removed afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.instances import Generator
from fuzz.mutations import choose
from perturbmap import (
    BCFW,
    LBFGS,
    BinaryGraph,
    Decoding,
    DoubleSGD,
    ExactLogLikelihood,
    Example,
    LocalSGD,
    LogLikelihood,
    MarginalLogLikelihood,
    Matching,
    MatchingModel,
    Potentials,
    Store,
    StructuredHinge,
    StructuredPredictor,
    grid_edges,
    log_partition_bound,
    potts,
    uai,
    write_store,
)
from perturbmap.inference import COUNTED, marginals
from tests.factor_graphs import random_forest
from tests.stored import cutter, graphs

Work = Callable[[Generator, Path], None]

LEARNERS: list[dict[str, Any]] = [
    {"objective": MarginalLogLikelihood(), "solver": DoubleSGD(n_passes=2)},
    {"objective": LogLikelihood(), "solver": DoubleSGD(n_passes=2), "calibration": 2},
    {"objective": ExactLogLikelihood(), "solver": LBFGS(max_iter=10)},
    {"objective": StructuredHinge(), "solver": BCFW(n_passes=3)},
]


def words(rng: Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sequences of three labels, which their features tell, with noise."""
    y = [rng.integers(0, 3, n) for n in rng.integers(1, 9, rng.integers(10, 60))]
    return [np.eye(3, 8)[labels] + rng.normal(0, 0.5, (len(labels), 8)) for labels in y], y


def learn_words(rng: Generator, folder: Path) -> None:
    """A fit, its predictions, its file, and the predictions of what was read."""
    X, y = words(rng)
    predictor = StructuredPredictor(**choose(rng, LEARNERS), n_perturbations=10, random_state=0).fit(X, y)
    predictor.predict(X)
    predictor.save(folder / "words.pm")
    loaded = StructuredPredictor.load(folder / "words.pm")
    loaded.predict_marginals(X)
    loaded.score(X, y)


def learn_graphs(rng: Generator, folder: Path) -> None:
    """Graphs, some of them without labels, with a checkpoint that is taken up again."""
    X, y = graphs(int(rng.integers(10, 40)), int(rng.integers(1000)))
    partly = [None if n % 3 == 2 else labels for n, labels in enumerate(y)]
    for _ in range(2):
        predictor = cutter(decoding=Decoding.LOSS_AWARE)
        predictor.fit(X, partly, checkpoint=folder / "fit.pm", checkpoint_seconds=0)
    predictor.predict(X)


def learn_matchings(rng: Generator, folder: Path) -> None:
    """Matchings, whose labels have features."""
    X = [Example(rng.normal(size=(4, 3)), label_features=rng.normal(size=(5, 3))) for _ in range(12)]
    y = [rng.permutation(5)[:4] for _ in X]
    predictor = StructuredPredictor(
        MatchingModel(), Matching(), MarginalLogLikelihood(), solver=DoubleSGD(n_passes=2), n_perturbations=10
    )
    predictor.fit(X, y).predict_marginals(X)


def keep_in_a_store(rng: Generator, folder: Path) -> None:
    """A store that is written, added to, read, learned from and predicted on."""
    X, y = graphs(int(rng.integers(10, 40)), int(rng.integers(1000)))
    for append in (False, True):
        write_store(folder / "store", X, y, classes=[0, 1], shard_bytes=4000, append=append)
    store = Store(folder / "store")
    store.verify()
    solver = choose(rng, [DoubleSGD(n_passes=1), LocalSGD(DoubleSGD(n_passes=1))])
    predictor = cutter(solver=solver).fit(store, store.y)
    predictor.predict(store)
    predictor.predict_marginals(Store(folder / "store", shards=[0]))


def infer(rng: Generator, folder: Path) -> None:
    """Bounds, marginals and samples of a grid, on all cores; and a file of a factor graph."""
    side = int(rng.integers(5, 40))
    f = Potentials(rng.normal(size=(side * side, 2)), potts(0.4), grid_edges(side, side))
    log_partition_bound(BinaryGraph(), f, n_perturbations=20, rng=0)
    marginals(BinaryGraph(), f, method=COUNTED, n_perturbations=20, rng=0)
    BinaryGraph(n_threads=2).pinned(f).moments(rng.random(f.unary.shape))
    graph, _ = random_forest(rng)
    uai.write_factors(folder / "graph.uai", graph)
    uai.read_factors(folder / "graph.uai")


def refuse(rng: Generator, folder: Path) -> None:
    """Mistakes, whose errors must not keep anything."""
    (folder / "broken.pm").write_bytes(rng.bytes(3000))
    for mistake in (
        lambda: StructuredPredictor.load(folder / "broken.pm"),
        lambda: StructuredPredictor().fit([np.full((3, 2), np.nan)], [[0, 1, 0]]),
        lambda: Store(folder),
        lambda: uai.read(folder / "broken.pm"),
        lambda: BinaryGraph().maximise(Potentials(np.zeros((3, 2)), -potts(1.0))),
    ):
        try:
            mistake()
        except ValueError:
            continue
        raise AssertionError("a mistake was not refused.")


WORK: list[Work] = [learn_words, learn_graphs, learn_matchings, keep_in_a_store, infer, refuse]
