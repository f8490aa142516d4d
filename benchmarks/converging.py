"""Marginals and log Z of attractive models beside what else there is, from weak to strong coupling.

    INSTANCES=10 SECONDS=10 make bench ONLY=converging
    python -m benchmarks.converging [--instances 2] [--picture docs/images/converging.png]

Grids of 10 x 20 and planar graphs of 150 sites, which are summed exactly, and grids of 14 x 20, too wide for that by
default. The reference of grids is a transfer matrix; planar graphs have none but our own exact sum, so that there the
lines say only how far peers are, and that ours takes no longer. Ours goes on for a CPU second (SECONDS), once for
marginals alone (chains where these can be trusted, else particles) and once with log Z (particles); peers
(`benchmarks.peers`) then have the time that ours took. The second command makes the table and the picture of
docs/choosing.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import perturbmap as pm
from benchmarks.against_work import planar
from benchmarks.converging_bounds import bounds
from benchmarks.harness import Benchmark, Line
from benchmarks.peers import Found, annealed, belief_propagation, chains, timed
from benchmarks.transfer import transfer
from perturbmap.inference import Converging
from perturbmap.inference.elimination import sum_out
from perturbmap.potentials import Floats, Potentials

COUPLINGS, FIELDS = (0.5, 1.0, 2.0, 3.0, 4.0), (1.0, 3.0)
ONE = pm.BinaryGraph(n_threads=1)
# Instances have the seeds from here on: those before it are what the method was worked out on.
FIRST_SEED = 300
#: Of each kind, and the CPU seconds that ours has for each, in `make bench`; ten of both take hours.
N_INSTANCES, SECONDS = int(os.environ.get("INSTANCES", "2")), float(os.environ.get("SECONDS", "1"))
OURS = ("CONVERGING", "with log Z")


def model(edges: NDArray[np.int32], coupling: float, fields: float, rng: np.random.Generator) -> Potentials:
    n = int(edges.max()) + 1
    unary = np.stack([np.zeros(n), rng.normal(0, fields, n)], axis=1)
    return Potentials(unary, pm.potts(coupling * rng.uniform(0.5, 1.5, len(edges))), edges)


def grid(height: int, width: int, coupling: float, fields: float, seed: int) -> Potentials:
    return model(pm.grid_edges(height, width), coupling, fields, np.random.default_rng(seed))


def regions(n: int, coupling: float, fields: float, seed: int) -> Potentials:
    return model(planar(n, coupling, 1, seed).edges, coupling, fields, np.random.default_rng(seed))


KINDS: dict[str, Callable[[float, float, int], Potentials]] = {
    "grid 10 x 20": partial(grid, 10, 20),
    "planar 150": partial(regions, 150),
    "grid 14 x 20": partial(grid, 14, 20),
}

HEIGHTS = {"grid 10 x 20": 10, "grid 14 x 20": 14}


def time_is_up(seconds: float) -> Callable[[int, float], bool]:
    """A callback that ends an estimate where one more group would take it beyond so many CPU seconds from now."""
    began = time.process_time()
    return lambda n_groups, error: (time.process_time() - began) * (n_groups + 1) / n_groups > seconds


def converging(f: Potentials, seconds: float) -> Found:
    """Marginals alone, from as many groups as there is CPU time for, one at least."""
    method = Converging(n_groups=10**6, callback=time_is_up(seconds))
    return timed(lambda: (pm.marginals(ONE, f, method=method, rng=0).mean, np.nan))


def with_log_z(f: Potentials, seconds: float) -> tuple[Found, float]:
    """Marginals and log Z in the same way, and the width of its interval."""
    began = time.process_time()
    answer = pm.log_partition(ONE, f, n_groups=10**6, callback=time_is_up(seconds), rng=0)
    found = Found(answer.marginals.mean, float(answer.estimate.mean[0]), time.process_time() - began)
    return found, float(np.ptp(answer.interval[0]))


def our_exact(f: Potentials) -> tuple[float, Floats]:
    (log_z,), q = sum_out(f, None, 1)
    return float(log_z), q


def pinned(f: Potentials, n: int) -> Found:
    return timed(lambda: (pm.marginals(ONE, f, n_perturbations=n, rng=0).mean, np.nan))


def bound(f: Potentials) -> float:
    return float(pm.log_partition_bound(ONE, f, n_perturbations=100, rng=0).mean[0])


class Cell:
    """Errors of all methods on the instances of one kind, coupling and spread of the fields."""

    def __init__(self, kind: str, coupling: float, fields: float, seconds: float, n_instances: int) -> None:
        self.height = HEIGHTS.get(kind)
        self.name = f"{kind}, coupling {coupling:g}, fields {fields:g}"
        seeds = range(FIRST_SEED, FIRST_SEED + n_instances)
        rows = [self._row(KINDS[kind](coupling, fields, seed), seconds) for seed in seeds]
        self.seconds = float(np.mean([row["seconds"] for row in rows]))
        self.width = float(np.mean([row["width"] for row in rows]))
        self.marginals = {k[3:]: float(np.mean([row[k] for row in rows])) for k in rows[0] if k.startswith("q: ")}
        self.log_z = {k[3:]: float(np.mean([row[k] for row in rows])) for k in rows[0] if k.startswith("Z: ")}

    def _row(self, f: Potentials, seconds: float) -> dict[str, float]:
        log_z, q = transfer(f, self.height) if self.height else our_exact(f)
        ours, (summed, width) = converging(f, seconds), with_log_z(f, seconds)
        time_left = max(seconds, ours.seconds, summed.seconds)
        bethe, gumbel = belief_propagation(f), bound(f)
        marginals = {
            "CONVERGING": ours,
            "with log Z": summed,
            "PINNED": pinned(f, 1000),
            "Gibbs": chains(f, time_left, with_clusters=False, from_samples=False),
            "Gibbs from samples": chains(f, time_left, with_clusters=False, from_samples=True),
            "Swendsen-Wang": chains(f, time_left, with_clusters=True, from_samples=True),
            "BP": bethe,
        }
        log_zs = {
            "CONVERGING": summed.log_z,
            "A_G": gumbel,
            "Bethe": bethe.log_z,
            "annealing": annealed(f, time_left, with_clusters=False).log_z,
        }
        return {
            "seconds": ours.seconds,
            "width": width / (gumbel - bethe.log_z),
            **{f"q: {name}": float(np.abs(found.q - q).mean()) for name, found in marginals.items()},
            **{f"Z: {name}": abs(value - log_z) for name, value in log_zs.items()},
        }

    def __str__(self) -> str:
        """One line with all figures."""
        parts = [f"{name} {error:.2g}" for name, error in self.marginals.items()]
        sums = [f"{name} {error:.2g}" for name, error in self.log_z.items()]
        return f"  {self.name}, {self.seconds:.1f} s: {', '.join(parts)}; log Z: {', '.join(sums)}"

    def line(self) -> Line:
        """Ours against the best peer's; where all of these are far off, it must be better by half."""
        error = self.marginals["CONVERGING"]
        others = {name: e for name, e in self.marginals.items() if name not in OURS}
        best = min(others, key=lambda name: others[name])
        work = f"marginals, {self.name}: error {error:.2g}, over the best peer's"
        bar = 0.5 if others[best] > 0.02 else 1.1
        return Line(work, f"{best}, {others[best]:.2g}", error / others[best], bar, at_least=False)


def cells(kind: str, seconds: float, n_instances: int) -> Iterator[Line]:
    found = []
    for fields in FIELDS:
        for coupling in COUPLINGS:
            cell = Cell(kind, coupling, fields, seconds, n_instances)
            print(cell, flush=True)
            yield cell.line()
            found.append(cell)
    where = f"{kind}, {seconds:g} s"
    errors = [cell.marginals["CONVERGING"] for cell in found]
    gaps = [cell.log_z["CONVERGING"] for cell in found]
    widths = [cell.width for cell in found]
    yield Line(f"marginals, {where}: error in the worst cell", "none", max(errors), 0.02, at_least=False)
    yield Line(f"marginals, {where}: mean error of all cells", "none", float(np.mean(errors)), 0.01, at_least=False)
    yield Line(
        f"log Z, {where}: error in the worst cell, in nats", _others(found, max), max(gaps), 0.1, at_least=False
    )
    mean = float(np.mean(gaps))
    yield Line(
        f"log Z, {where}: mean error of all cells, in nats", _others(found, np.mean), mean, 0.03, at_least=False
    )
    yield Line(f"width of the interval, {where}: in the worst cell, over", "A_G - Bethe", max(widths), 0.25, False)


def _others(found: list[Cell], how: Callable[[list[float]], float]) -> str:
    names = [name for name in found[0].log_z if name != "CONVERGING"]
    return ", ".join(f"{name} {how([cell.log_z[name] for cell in found]):.2g}" for name in names)


def wide_bounds() -> Iterator[Line | str]:
    return bounds([grid(14, 20, c, 1.0, FIRST_SEED) for c in COUPLINGS])


BENCHMARKS = [
    *(Benchmark(f"converging {kind}, {SECONDS:g} s", partial(cells, kind, SECONDS, N_INSTANCES)) for kind in KINDS),
    Benchmark("converging bounds", wide_bounds),
]


def table(n_instances: int) -> Iterator[str]:
    """The cells of the wide grids as a table, for 3 seconds of ours."""
    names = ["PINNED", "Gibbs from samples", "Swendsen-Wang", "BP", *OURS]
    yield "| fields | coupling | " + " | ".join(names) + " | log Z: A_G | Bethe | annealing | CONVERGING |"
    yield "|---" * 12 + "|"
    for fields in FIELDS:
        for coupling in COUPLINGS:
            cell = Cell("grid 14 x 20", coupling, fields, 3.0, n_instances)
            errors = [f"{cell.marginals[name]:.4f}" for name in names]
            gaps = [f"{cell.log_z[name]:.3f}" for name in ("A_G", "Bethe", "annealing", "CONVERGING")]
            yield f"| {fields:g} | {coupling:g} | " + " | ".join([*errors, *gaps]) + " |"


def narrow() -> Iterator[str]:
    """Region graphs as superpixels have them: how often sums are exact, and how long they take beside PINNED."""
    for n in (100, 150, 200, 300):
        examples = [regions(n, 1.0, 2.0, seed) for seed in range(8)]
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
        f = grid(14, 20, coupling, 1.0, FIRST_SEED)
        q = transfer(f, 14)[1]
        ways = {
            "PINNED": [pinned(f, n) for n in (10, 100, 1000)],
            "Gibbs": [chains(f, s, with_clusters=False, from_samples=True) for s in (0.1, 1.0, 10.0)],
            "Swendsen-Wang": [chains(f, s, with_clusters=True, from_samples=True) for s in (0.1, 1.0, 10.0)],
            "loopy BP": [belief_propagation(f)],
            "CONVERGING": [converging(f, s) for s in (1.0, 3.0, 10.0)],
        }
        for (name, found), marker in zip(ways.items(), "osv^D", strict=True):
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
    for lines in (narrow(), table(arguments.instances)):
        for line in lines:
            print(line, flush=True)
    if arguments.picture:
        picture(arguments.picture)


if __name__ == "__main__":
    main()
