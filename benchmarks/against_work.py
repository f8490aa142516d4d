"""The work that `benchmarks.against` times, by public names that both checkouts have; run by either interpreter.

Reads the number of a task and how often to run it from each line of its input, and answers with its CPU seconds: of
this process, on one thread of the core, so that other work on the machine counts little.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial import Delaunay

import perturbmap as pm
from perturbmap.datasets import load_ocr

LETTERS = list("abcdefghijklmnopqrstuvwxyz")


def planar(n: int, coupling: float, n_copies: int, seed: int) -> pm.Potentials:
    """Perturbed copies of a planar graph, as in benchmarks/core.py."""
    rng = np.random.default_rng(seed)
    triangles = Delaunay(rng.random((n, 2))).simplices
    edges = np.sort(np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1)
    edges = np.unique(edges, axis=0)
    f = pm.Potentials(rng.normal(0, 2, (n, 2)), pm.potts(rng.uniform(0, 2 * coupling, len(edges))), edges)
    return pm.perturb(f, pm.gumbel_noise(f, seed, n_copies))


def core() -> dict[str, Callable[[], object]]:
    """Cuts, pins, chains, inference."""
    one, chain = pm.BinaryGraph(n_threads=1), pm.Chain(n_threads=1)
    tasks: dict[str, Callable[[], object]] = {}
    for name, coupling in {"weak": 0.25, "moderate": 0.5, "strong": 2.0}.items():
        tasks[f"core: all pins, D=150, {name}"] = partial(one.pinned, planar(150, coupling, 100, 1))
        tasks[f"core: all pins, D=2,000, {name}"] = partial(one.pinned, planar(2000, coupling, 10, 2))
    f = planar(150, 0.5, 100, 3)
    tasks["core: one cut, D=150, batch of 100"] = lambda: [one.argmax(f) for _ in range(5)]
    tables, edges = np.array(f.pairwise), np.array(f.edges)
    tasks["core: one cut, D=150, singly"] = lambda: [one.argmax(pm.Potentials(u, tables, edges)) for u in f.unary]
    rng = np.random.default_rng(4)
    grid = pm.grid_edges(400, 400)
    big = pm.Potentials(rng.normal(0, 2, (160_000, 2)), pm.potts(rng.uniform(0, 1, len(grid))), grid)
    tasks["core: one cut, 400 x 400 grid"] = partial(one.argmax, big)
    for length in (8, 100):
        words = pm.Potentials.batch(
            [pm.Potentials(rng.normal(0, 1, (length, 26)), rng.normal(0, 1, (26, 26)))] * (1600 // length)
        )
        weights = rng.normal(size=words.unary.shape)

        def pins(words: pm.Potentials = words, weights: Any = weights) -> None:
            chain.pinned(words).moments(weights)

        tasks[f"core: values and moments of all pins, chain of {length}"] = pins
        tasks[f"core: sums over a chain of {length}"] = partial(chain.log_partition, words)
    graphs = pm.Potentials.batch([(e := planar(150, 0.5, 1, 100 + i)).with_unary(e.unary[0]) for i in range(30)])
    tasks["core: pinned marginals, 30 graphs"] = partial(pm.marginals, one, graphs, n_perturbations=50, rng=0)
    tasks["core: bound, 30 graphs"] = partial(pm.log_partition_bound, one, graphs, n_perturbations=100, rng=0)
    matching = pm.Potentials.batch([pm.Potentials(rng.normal(size=(20, 20))) for _ in range(100)])
    tasks["core: all pins of 100 matchings of 20"] = partial(pm.Matching(n_threads=1).pinned, matching)
    return tasks


def learning() -> dict[str, Callable[[], object]]:
    """Fits and predictions on handwriting and on graphs like superpixels."""
    X, y, folds = load_ocr()
    X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in X]
    train = np.flatnonzero(folds == 0)
    words, letters = [X[i] for i in train], [y[i] for i in train]

    def predictor(objective: Any, solver: Any, l2: float) -> Any:
        return pm.StructuredPredictor(
            pm.SequenceModel(), pm.Chain(1), objective, l2=l2, solver=solver, classes=LETTERS, random_state=0
        )

    steps = {"step": pm.PlainStep(3.0)} if hasattr(pm, "PlainStep") else {"first_step": 3.0}
    sgd = pm.DoubleSGD(n_passes=4, **steps)  # an older checkout has the paper's step alone
    plain = pm.BCFW(0.3, 3, gap_sampling=False, pairwise_steps=False)
    fits = {
        "Algorithm 1": predictor(pm.LogLikelihood(), sgd, 3e-4),
        "Algorithm 2": predictor(pm.MarginalLogLikelihood(), sgd, 3e-4),
        "the paper's estimator": predictor(pm.MarginalLogLikelihood(integrate_noise=False), sgd, 3e-4),
        "exact marginals": predictor(pm.ExactMarginalLogLikelihood(), sgd, 3e-4),
        "CRF, L-BFGS": predictor(pm.ExactLogLikelihood(), pm.LBFGS(1e-2, max_iter=40), 3e-3),
        "SVM, Frank-Wolfe": predictor(pm.StructuredHinge(), plain, 1e-3),
    }
    tasks: dict[str, Callable[[], object]] = {
        f"learning: OCR, {name}": partial(est.fit, words, letters) for name, est in fits.items()
    }
    fitted = predictor(pm.MarginalLogLikelihood(), sgd, 3e-4).set_params(n_perturbations=20).fit(words, letters)
    tasks["learning: OCR, predict_marginals"] = partial(fitted.predict_marginals, words[:200])
    tasks["learning: OCR, predict"] = lambda: [fitted.predict(words) for _ in range(5)]
    examples, labels = [], []
    for i in range(60):
        rng = np.random.default_rng(1000 + i)
        edges = np.array(planar(150, 0.5, 1, i).edges)
        truth = rng.integers(0, 2, 150)
        features = ((2 * truth - 1)[:, None] * 0.002 + rng.normal(0, 0.0135, (150, 1969))).astype(np.float32)
        examples.append(pm.Example(features, edges, rng.random((len(edges), 100)).astype(np.float32) / 10))
        labels.append(truth)
    cutter = pm.StructuredPredictor(
        pm.GraphModel(),
        pm.BinaryGraph(1),
        pm.MarginalLogLikelihood(pm.BalancedHamming()),
        l2=0.03,
        solver=pm.DoubleSGD(n_passes=3, batch_size=8),
        random_state=0,
    )
    tasks["learning: superpixels, masks"] = partial(cutter.fit, examples, labels)
    tasks["learning: superpixels, masks and nothing"] = partial(cutter.fit, examples, [*labels[:30], *[None] * 30])
    return tasks


def main() -> None:
    """Names the tasks, then runs those that it is asked for."""
    warnings.simplefilter("ignore")
    tasks = {**core(), **learning()}
    print(json.dumps(list(tasks)), flush=True)
    for line in sys.stdin:
        number, repeats = map(int, line.split())
        task = tasks[list(tasks)[number]]
        start = time.process_time()
        for _ in range(repeats):
            task()
        print((time.process_time() - start) / repeats, flush=True)


if __name__ == "__main__":
    main()
