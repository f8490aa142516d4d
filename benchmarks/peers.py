"""What else there is for marginals and log Z: Gibbs, Swendsen-Wang, annealing (compiled), loopy BP.

Each has as many CPU seconds as it is given, but for loopy BP, which stops at rest. `peers.cpp` is compiled when it is
first used, into ``build/``, by ``CXX`` or ``c++``.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import perturbmap as pm
from perturbmap.potentials import Floats, Potentials

SOURCE = Path(__file__).with_name("peers.cpp")
FLAGS = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]
N_CHAINS = 64


@dataclass(frozen=True)
class Found:
    """Marginals and log Z, NaN where a method has none, and CPU seconds."""

    q: Floats
    log_z: float
    seconds: float


def timed(work: Callable[[], tuple[Floats, float]]) -> Found:
    began = time.process_time()
    q, log_z = work()
    return Found(q, log_z, time.process_time() - began)


@cache
def compiled() -> ctypes.CDLL:
    """The library of `peers.cpp`, compiled anew if that has changed."""
    compiler = os.environ.get("CXX", "c++")
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join([compiler, *FLAGS]).encode()).hexdigest()[:12]
    library = SOURCE.parents[1] / "build" / f"peers-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@dataclass(frozen=True)
class Ising:
    """``constant + sum_i fields[i] y_i + sum_e couplings[e] [y_i == y_j]``: any binary model with two-site tables."""

    fields: Floats
    couplings: Floats
    edges: NDArray[np.int32]
    constant: float

    @classmethod
    def of(cls, f: Potentials) -> Ising:
        t = f.tables
        couplings = 0.5 * (t[:, 0, 0] + t[:, 1, 1] - t[:, 0, 1] - t[:, 1, 0])
        fields = f.unary[:, 1] - f.unary[:, 0]
        np.add.at(fields, f.edges[:, 0], t[:, 1, 0] - t[:, 0, 0] + couplings)
        np.add.at(fields, f.edges[:, 1], t[:, 0, 1] - t[:, 0, 0] + couplings)
        constant = f.unary[:, 0].sum() + (t[:, 0, 0] - couplings).sum()
        return cls(fields, couplings, np.ascontiguousarray(f.edges, dtype=np.int32), float(constant))

    def call(self, name: str, with_clusters: bool, effort: Any, seed: int, n_chains: int, *arrays: Any) -> None:
        getattr(compiled(), name)(
            len(self.fields),
            len(self.couplings),
            *(ctypes.c_void_p(a.ctypes.data) for a in (self.edges, self.fields, self.couplings)),
            int(with_clusters),
            effort,
            ctypes.c_uint64(seed),
            n_chains,
            *(ctypes.c_void_p(a.ctypes.data) for a in arrays),
        )


def chains(f: Potentials, seconds: float, *, with_clusters: bool, from_samples: bool, seed: int = 0) -> Found:
    """Gibbs sampling, or Swendsen-Wang, from random labels or perturb-and-MAP samples, which cost time too."""

    def work() -> tuple[Floats, float]:
        began = time.process_time()
        labels = np.random.default_rng(seed).integers(0, 2, (N_CHAINS, f.n_sites), dtype=np.int32)
        if from_samples:
            labels = np.ascontiguousarray(pm.sample(pm.BinaryGraph(n_threads=1), f, N_CHAINS, rng=seed))
        p = np.empty(f.n_sites)
        left = ctypes.c_double(seconds - (time.process_time() - began))
        Ising.of(f).call("run_chains", with_clusters, left, seed, N_CHAINS, labels, p)
        return np.stack([1 - p, p], axis=1), np.nan

    return timed(work)


def annealed(f: Potentials, seconds: float, *, with_clusters: bool, seed: int = 0) -> Found:
    """Annealed importance sampling with as many steps as there is time for, measured by a tenth of it or less."""

    def log_weights(n_steps: int) -> Floats:
        weights = np.empty(N_CHAINS)
        model.call("anneal", with_clusters, n_steps, seed, N_CHAINS, weights)
        return weights

    def work() -> tuple[Floats, float]:
        n_steps = 10
        while True:
            began = time.process_time()
            log_weights(n_steps)
            spent = time.process_time() - began
            if spent > seconds / 30:
                break
            n_steps *= 3
        weights = log_weights(max(n_steps, int(0.9 * seconds / spent * n_steps)))
        return np.full((f.n_sites, 2), np.nan), float(
            np.logaddexp.reduce(weights) - np.log(N_CHAINS) + model.constant
        )

    model = Ising.of(f)
    return timed(work)


def belief_propagation(f: Potentials) -> Found:
    """Damped, in logarithms, all messages at once; log Z is Bethe's.

    From messages that say nothing, and from those that are all for one label: of the points of rest the one of the
    largest value is kept, which for attractive models lies below log Z (Ruozzi, NIPS 2012).
    """

    def work() -> tuple[Floats, float]:
        starts = np.array([[0.0, 0.0], [0.0, -10.0], [-10.0, 0.0]])
        return max((_at_rest(f, start) for start in starts), key=lambda found: found[1])

    return timed(work)


def _at_rest(f: Potentials, start: Floats) -> tuple[Floats, float]:
    i, j = f.edges.T
    tail, head = np.concatenate([i, j]), np.concatenate([j, i])
    tables = np.concatenate([f.tables, f.tables.swapaxes(1, 2)])
    back = np.roll(np.arange(len(tail)), len(i))
    m = np.tile(start, (len(tail), 1))
    for _ in range(2000):
        before = m
        sums = _sums(f, head, m)
        out = np.logaddexp.reduce((sums[tail] - m[back])[:, :, None] + tables, axis=1)
        m = 0.5 * m + 0.5 * (out - out.max(axis=1, keepdims=True))
        if np.abs(m - before).max() < 1e-9:
            break
    belief = _softmax(_sums(f, head, m))
    cavity = _sums(f, head, m)[tail] - m[back]
    pairs = cavity[: len(i), :, None] + cavity[len(i) :, None, :] + f.tables
    pairs = np.exp(pairs - pairs.max(axis=(1, 2), keepdims=True))
    pairs /= pairs.sum(axis=(1, 2), keepdims=True)
    degree = np.bincount(head, minlength=f.n_sites)
    energy = (belief * f.unary).sum() + (pairs * f.tables).sum()
    entropy = _entropy(pairs).sum() - ((degree - 1)[:, None] * _entropy(belief)).sum()
    return belief, float(energy + entropy)


def _sums(f: Potentials, head: NDArray[np.int32], m: Floats) -> Floats:
    sums = f.unary.copy()
    np.add.at(sums, head, m)
    return sums


def _softmax(x: Floats) -> Floats:
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def _entropy(p: Floats) -> Floats:
    return np.asarray(-p * np.log(np.maximum(p, 1e-300)))
