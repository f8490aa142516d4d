"""Small sets of examples of every kind, in memory and as stores."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import perturbmap as pm
from perturbmap.data import Dataset
from perturbmap.potentials import Floats


def graphs(n: int, seed: int = 0, dtype: Any = np.float32) -> tuple[list[pm.Example], list[np.ndarray]]:
    """Graphs of uneven sizes with edge features and sizes of sites; the first feature tells the label, with noise."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        height, width = rng.integers(2, 6, 2).tolist()
        edges = pm.grid_edges(height, width)
        features = rng.normal(size=(height * width, 6)).astype(dtype)
        similarity = rng.uniform(0, 1, (len(edges), 2))
        X.append(pm.Example(features, edges, similarity, sizes=rng.uniform(1, 4, height * width)))
        y.append((features[:, 0] + 0.5 * rng.normal(size=height * width) > 0).astype(int))
    return X, y


def cutter(**parameters: Any) -> pm.StructuredPredictor:
    """A predictor for `graphs`, quickly learned."""
    solver = pm.DoubleSGD(n_passes=3, batch_size=8)
    loss = pm.MarginalLogLikelihood(pm.BalancedHamming())
    settings: dict[str, Any] = {"l2": 0.1, "solver": solver, "n_perturbations": 8, "random_state": 0, **parameters}
    return pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), loss, **settings)


def make_store(folder: Path, n: int = 60, shards: int = 4, seed: int = 0) -> pm.Store:
    """`graphs` in about so many shards."""
    X, y = graphs(n, seed)
    total = sum(x.features.size * 4 for x in X)
    pm.write_store(folder, X, y, classes=[0, 1], shard_bytes=max(1, total // shards - 1))
    return pm.Store(folder)


def sentences(n: int, seed: int = 0) -> tuple[list[Any], list[np.ndarray]]:
    """Chains of two labels with two features of a thousand each, one of which tells the label."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = rng.integers(2, size=rng.integers(2, 6))
        columns = np.column_stack([labels, rng.integers(2, 1000, len(labels))]).ravel()
        starts = np.arange(0, len(columns) + 1, 2)
        X.append(sp.csr_array((rng.normal(1, 0.2, len(columns)), columns, starts), shape=(len(labels), 1000)))
        y.append(labels)
    return X, y


def make_sparse_store(folder: Path, n: int = 12, shards: int = 2) -> pm.Store:
    """`sentences` in about so many shards, of which the last has nothing but ones."""
    X, y = sentences(n)
    total = sum(x.nnz * 8 for x in X)
    pm.write_store(folder, X, y, classes=[0, 1], shard_bytes=max(1, total // shards - 1))
    pm.write_store(folder, [x.sign() for x in X[:3]], y[:3], append=True)
    return pm.Store(folder)


def tagger(**parameters: Any) -> pm.StructuredPredictor:
    """A predictor for `sentences`, quickly learned."""
    settings: dict[str, Any] = {"solver": pm.DoubleSGD(n_passes=1), "n_perturbations": 2, "random_state": 0}
    return pm.StructuredPredictor(**settings | parameters)


def rounds(sgd: pm.DoubleSGD | None = None, **parameters: Any) -> pm.StructuredPredictor:
    """The same, learned in rounds on the shards of a store."""
    return cutter(solver=pm.LocalSGD(pm.DoubleSGD(n_passes=3, batch_size=8) if sgd is None else sgd), **parameters)


class Mortal(pm.LinearModel):
    """`GraphModel`, but the first process that uses it in its work, other than ``parent``, dies of it."""

    def __init__(self, marker: str, parent: int) -> None:
        self.marker, self.parent = marker, parent

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        return pm.GraphModel().shapes(data, n_labels)

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> pm.Potentials:
        if os.getpid() != self.parent:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return pm.GraphModel().potentials(w, batch, n_labels)

    def pullback(self, batch: Dataset, n_labels: int, moments: pm.Moments) -> Floats:
        return pm.GraphModel().pullback(batch, n_labels, moments)

    def squared_length(self, data: Dataset, n_labels: int) -> float:
        return pm.GraphModel().squared_length(data, n_labels)

    def site_weights(self, data: Dataset, n_labels: int) -> Any:
        return pm.GraphModel().site_weights(data, n_labels)

    nonnegative = ("edges",)
