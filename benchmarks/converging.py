"""Marginals and log Z of attractive grids beside what else there is, at weak and at strong coupling.

    python -m benchmarks.converging [--instances 2] [--picture docs/images/converging.png]

Grids of 14 x 20 with fields of standard deviation 1 and 3 and mean couplings from 0.5 to 4, too wide for exact sums
by default; the reference is an exact sum with sixteen times the memory. Gibbs sampling has the CPU time that
`CONVERGING` takes with log Z, starts from perturb-and-MAP samples and runs in the same core; belief propagation is
damped and stops at rest. Mean absolute error of the marginals, and error of log Z.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import perturbmap as pm
from benchmarks.against_work import planar
from perturbmap.inference import Converging
from perturbmap.inference.elimination import sum_out
from perturbmap.inference.sweeps import sweeps
from perturbmap.potentials import Floats, Potentials

HEIGHT, WIDTH = 14, 20
COUPLINGS, FIELDS = (0.5, 1.0, 2.0, 3.0, 4.0), (1.0, 3.0)
N_CHAINS = 64


@dataclass(frozen=True)
class Found:
    """Marginals, log Z where a method has it, and CPU seconds."""

    q: Floats
    log_z: float
    seconds: float


def grid(coupling: float, fields: float, seed: int) -> Potentials:
    rng = np.random.default_rng(seed)
    edges = pm.grid_edges(HEIGHT, WIDTH)
    unary = np.stack([np.zeros(HEIGHT * WIDTH), rng.normal(0, fields, HEIGHT * WIDTH)], axis=1)
    return Potentials(unary, pm.potts(coupling * rng.uniform(0.5, 1.5, len(edges))), edges)


def timed(work: Callable[[], tuple[Floats, float]]) -> Found:
    began = time.process_time()
    q, log_z = work()
    return Found(q, log_z, time.process_time() - began)


def converging(f: Potentials, n_groups: int) -> Found:
    def work() -> tuple[Floats, float]:
        answer = Converging(64, n_groups).answers(pm.BinaryGraph(), f, None, 0, wants_log_z=True)[0]
        return answer.marginals, answer.log_z

    return timed(work)


def marginals_alone(f: Potentials, n_groups: int) -> Found:
    """Without log Z: by chains where these can be trusted."""
    method = Converging(64, n_groups)
    return timed(lambda: (pm.marginals(pm.BinaryGraph(), f, method=method, rng=0).mean, np.nan))


def pinned(f: Potentials, n: int) -> Found:
    return timed(lambda: (pm.marginals(pm.BinaryGraph(), f, n_perturbations=n, rng=0).mean, np.nan))


def bound(f: Potentials) -> float:
    return float(pm.log_partition_bound(pm.BinaryGraph(), f, n_perturbations=100, rng=0).mean[0])


def gibbs(f: Potentials, seconds: float) -> Found:
    """Many chains from perturb-and-MAP samples; the first tenth of the time is not averaged."""

    def work() -> tuple[Floats, float]:
        labels = pm.sample(pm.BinaryGraph(), f, N_CHAINS, rng=0)
        began = time.process_time()
        labels, _ = sweeps(pm.BinaryGraph(1), f, None, labels, 1, 0, 10, 10)
        n = max(10, int(seconds / (time.process_time() - began) * 20))
        return sweeps(pm.BinaryGraph(1), f, None, labels, 2, 0, n // 10, n - n // 10)[1].mean(axis=0), np.nan

    return timed(work)


def belief_propagation(f: Potentials) -> Found:
    """Damped, in logarithms, all messages at once; log Z is Bethe's."""

    def work() -> tuple[Floats, float]:
        i, j = f.edges.T
        tail, head = np.concatenate([i, j]), np.concatenate([j, i])
        tables = np.concatenate([f.tables, f.tables.swapaxes(1, 2)])
        back = np.roll(np.arange(len(tail)), len(i))
        m = np.zeros((len(tail), 2))
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

    return timed(work)


def _sums(f: Potentials, head: NDArray[np.int32], m: Floats) -> Floats:
    sums = f.unary.copy()
    np.add.at(sums, head, m)
    return sums


def _softmax(x: Floats) -> Floats:
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def _entropy(p: Floats) -> Floats:
    return np.asarray(-p * np.log(np.maximum(p, 1e-300)))


def cells(n_instances: int) -> Iterator[str]:
    yield (
        "| fields | coupling | marginals: PINNED | Gibbs, equal time | loopy BP | CONVERGING | its seconds "
        "| with log Z | its seconds | log Z: A_G | Bethe | CONVERGING |"
    )
    yield "|---" * 12 + "|"
    for fields in FIELDS:
        for coupling in COUPLINGS:
            rows = []
            for seed in range(n_instances):
                f = grid(coupling, fields, seed)
                (log_z,), q = sum_out(f, None, 2, max_entries=2**26)
                ours, alone = converging(f, 4), marginals_alone(f, 4)
                others = [pinned(f, 100), gibbs(f, ours.seconds), belief_propagation(f)]
                errors = [float(np.abs(found.q - q).mean()) for found in (*others, alone, ours)]
                gaps = [bound(f) - log_z, others[2].log_z - log_z, ours.log_z - log_z]
                seconds = [alone.seconds, ours.seconds]
                rows.append([*errors[:4], seconds[0], errors[4], seconds[1], *(abs(g) for g in gaps)])
            mean = np.mean(rows, axis=0)
            yield (
                f"| {fields:g} | {coupling:g} | "
                + " | ".join(f"{v:.{d}f}" for v, d in zip(mean, (4, 4, 4, 4, 1, 4, 1, 2, 2, 3), strict=True))
                + " |"
            )


def narrow() -> Iterator[str]:
    """Region graphs as superpixels have them: how often sums are exact, and how long they take beside PINNED."""
    for n in (100, 150, 200, 300):
        graphs = [planar(n, 1.0, 1, seed) for seed in range(8)]
        examples = [f.with_unary(f.unary[0]) for f in graphs]
        exact, seconds, others = [], [], []
        for f in examples:
            began = time.process_time()
            exact.append(bool(np.isfinite(sum_out(f, None, 1).values[0])))
            seconds.append(time.process_time() - began)
            others.append(pinned(f, 100).seconds)
        yield (
            f"planar graphs of {n} sites: {sum(exact)} of {len(exact)} exact, in {1e3 * np.median(seconds):.0f} ms "
            f"(PINNED: {1e3 * np.median(others):.0f} ms)"
        )


def picture(path: Path) -> None:
    """Error against seconds, of a grid of moderate and one of strong coupling."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, coupling in zip(axes, (1.0, 3.0), strict=True):
        f = grid(coupling, 1.0, 0)
        q = sum_out(f, None, 2, max_entries=2**26).marginals
        ways = {
            "PINNED": [pinned(f, n) for n in (10, 100, 1000)],
            "Gibbs": [gibbs(f, s) for s in (0.1, 1.0, 10.0)],
            "loopy BP": [belief_propagation(f)],
            "CONVERGING": [converging(f, n) for n in (1, 2, 4, 8)],
        }
        for (name, found), marker in zip(ways.items(), "os^D", strict=True):
            errors = [np.abs(one.q - q).mean() for one in found]
            axis.loglog([one.seconds for one in found], np.maximum(errors, 1e-5), marker=marker, label=name)
        axis.set(title=f"coupling {coupling:g}", xlabel="CPU seconds")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean absolute error of marginals")
    axes[0].legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.converging", description=__doc__)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    for lines in (narrow(), cells(arguments.instances)):
        for line in lines:
            print(line, flush=True)
    if arguments.picture:
        picture(arguments.picture)


if __name__ == "__main__":
    main()
