"""Error against passes for 1, 2, 4 and 8 shards: ``python -m benchmarks.rounds_figure``, some minutes on two cores.

Left, handwriting ("large", fold 0): words shuffled, letters of unit length, l2 = 1e-4. Right, graphs like
superpixels, whose labels were drawn from known weights. One shard is the single run, by `DoubleSGD`; the others are
rounds of `LocalSGD`. Lines are means over seeds, which shuffle the examples and drive the fit; bands are from the
least to the largest. ``--validate`` compares first steps and rounds per pass on fold 1, with fold 0 left out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import Delaunay

from perturbmap import (
    BinaryGraph,
    Chain,
    DoubleSGD,
    Example,
    GraphModel,
    LocalSGD,
    Model,
    PlainStep,
    SequenceModel,
    Solver,
    Store,
    Structure,
    StructuredPredictor,
    gumbel_noise,
    perturb,
    write_store,
)
from perturbmap.data import Dataset
from perturbmap.datasets import load_ocr

SHARDS = (1, 2, 4, 8)
SEEDS = (0, 1, 2)
LOOKS = (1, 2, 3, 5, 7, 10, 15, 20, 30)
N_SITES, N_FEATURES = 60, 30
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "rounds.png"
Curve = list[float]


@dataclass(frozen=True)
class Case:
    """Examples to learn from, those to test on, and how."""

    X: list[Any]
    y: list[np.ndarray]
    X_test: list[Any]
    y_test: list[np.ndarray]
    classes: list[Any]
    model: Model | None
    structure: Structure
    l2: float


def handwriting(fold: int, left_out: list[int]) -> Case:
    X, y, folds = load_ocr()
    X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in X]
    train, test = np.flatnonzero((folds != fold) & ~np.isin(folds, left_out)), np.flatnonzero(folds == fold)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    parts = [[A[i] for i in some] for some in (train, test) for A in (X, y)]
    return Case(parts[0], parts[1], parts[2], parts[3], letters, None, Chain(n_threads=1), 1e-4)


def true_weights() -> np.ndarray:
    """The weights of the features, the bias and the edges."""
    direction = np.random.default_rng(0).normal(size=N_FEATURES)
    return np.concatenate([direction / np.linalg.norm(direction), [0.1, 0.8, 0.2, 0.0]])


def graphs(n: int, seed: int) -> tuple[list[Example], list[np.ndarray]]:
    """Planar graphs; labels are perturb-and-MAP samples."""
    rng = np.random.default_rng([1, seed])
    X = []
    for _ in range(n):
        triangles = Delaunay(rng.random((N_SITES, 2))).simplices
        edges = np.sort(np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1)
        edges = np.unique(edges, axis=0)
        X.append(Example(rng.normal(size=(N_SITES, N_FEATURES)), edges, rng.random((len(edges), 3))))
    f = GraphModel().potentials(true_weights(), Dataset.from_examples(X), 2)
    return X, f.split(BinaryGraph().argmax(perturb(f, gumbel_noise(f, seed)[0])))


def superpixels() -> Case:
    X, y = graphs(400, 0)
    return Case(X, y, *graphs(1000, 1), [0, 1], GraphModel(), BinaryGraph(n_threads=1), 1e-2)


def errors(case: Case, n_shards: int, seed: int, first_step: float | None, rounds_per_pass: float) -> Curve:
    """Errors in per cent, after so many passes."""
    order = np.random.default_rng(seed).permutation(len(case.X))
    X, y = [case.X[i] for i in order], [case.y[i] for i in order]
    sgd = DoubleSGD(n_passes=max(LOOKS), step=PlainStep(first_step))
    solver: Solver[Any] = sgd if n_shards == 1 else LocalSGD(sgd, rounds_per_pass)
    with tempfile.TemporaryDirectory(prefix="perturbmap-rounds-") as folder:
        for part in np.array_split(np.arange(len(X)), n_shards):
            some = slice(part[0], part[-1] + 1)
            first = part[0] == 0
            write_store(f"{folder}/store", X[some], y[some], classes=case.classes, dtype="float64", append=not first)
        store = Store(f"{folder}/store")
        assert len(store.shards) == n_shards
        est = StructuredPredictor(
            case.model,
            case.structure,
            l2=case.l2,
            solver=solver,
            n_jobs=2,
            random_state=seed,
        )
        problem = est.problem(store, store.y)
        steps_a_pass = len(X) / sgd.batch_size if n_shards == 1 else rounds_per_pass
        state, found = solver.start(problem), []
        wrong = reader(case)
        for n_passes in LOOKS:
            state = solver.run(problem, state, n_iter=round(n_passes * steps_a_pass))
            found.append(100 * wrong(state.average))
    return found


def reader(case: Case) -> Callable[[np.ndarray], float]:
    """The share of wrong test sites as a function of the weights."""
    data = Dataset.from_examples(case.X_test)
    model = SequenceModel() if case.model is None else case.model
    number = {c: k for k, c in enumerate(case.classes)}
    truth = np.array([number[c] for labels in case.y_test for c in labels.tolist()])

    def wrong(w: np.ndarray) -> float:
        f = model.potentials(w, data, len(case.classes))
        return float(np.mean(case.structure.argmax(f) != truth))

    return wrong


def validate() -> None:
    case = handwriting(1, [0])
    print(f"fold 1, fold 0 left out; error in per cent after {LOOKS} passes")
    for first_step in (None, 1.0, 3.0):
        single = errors(case, 1, 0, first_step, 0)
        print(f"first_step={first_step}, single run:", np.round(single, 1), flush=True)
        for rounds in (1, 4, 16):
            found = errors(case, 8, 0, first_step, rounds)
            print(f"first_step={first_step}, 8 shards, {rounds} rounds per pass:", np.round(found, 1), flush=True)


def draw(curves: dict[str, dict[int, np.ndarray]], floor: float) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(10, 4), layout="constrained")
    colours = ["0.25", "tab:blue", "tab:orange", "tab:red"]
    for axis, (name, found) in zip(axes, curves.items(), strict=True):
        for (n_shards, runs), colour in zip(found.items(), colours, strict=True):
            label = "single run" if n_shards == 1 else f"{n_shards} shards"
            axis.plot(LOOKS, runs.mean(axis=0), color=colour, label=label, marker="o", markersize=3)
            axis.fill_between(LOOKS, runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        axis.set(xscale="log", xlabel="passes", title=name)
        axis.set_xticks(LOOKS, [str(n) for n in LOOKS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[1].axhline(floor, color="0.5", linestyle=":", label="true weights")
    axes[0].set_ylabel("wrong sites of the test set, %")
    axes[1].legend()
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounds_figure", description=__doc__)
    parser.add_argument("--validate", action="store_true", help="compare parameters on fold 1 instead")
    parser.add_argument("--first-step", type=float, help="of DoubleSGD; its default by default")
    parser.add_argument("--rounds-per-pass", type=float, default=4)
    options = parser.parse_args()
    if options.validate:
        validate()
        return
    cases = {'handwriting, "large", fold 0': handwriting(0, []), "graphs from known weights": superpixels()}
    curves: dict[str, dict[int, np.ndarray]] = {}
    for name, case in cases.items():
        curves[name] = {}
        for n_shards in SHARDS:
            runs = [errors(case, n_shards, s, options.first_step, options.rounds_per_pass) for s in SEEDS]
            curves[name][n_shards] = np.array(runs)
            print(f"{name}, {n_shards} shards, after {LOOKS} passes:")
            print("  mean ", np.round(np.mean(runs, axis=0), 2), flush=True)
            print("  range", np.round(np.ptp(runs, axis=0), 2), flush=True)
    draw(curves, 100 * reader(cases["graphs from known weights"])(true_weights()))


if __name__ == "__main__":
    main()
