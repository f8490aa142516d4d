"""What the tightened upper bound gains over A_G, and what pins cost in particles."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

import perturbmap as pm
from benchmarks.harness import Line, interleaved
from perturbmap.inference.elimination import cut_sites
from perturbmap.inference.upper_bound import upper_bound
from perturbmap.potentials import Labels, Potentials

ONE = pm.BinaryGraph(n_threads=1)
N_DRAWS, N_RUNS = 100, 24
N_PARTICLES, N_PERTURBATIONS = 64, 16


def bounds(grids: Sequence[Potentials]) -> Iterator[Line]:
    """Standard deviation from run to run and CPU time, medians over the grids."""
    spreads, times, gaps = [], [], []
    for f in grids:
        plain = partial(pm.log_partition_bound, ONE, f, n_perturbations=N_DRAWS)
        a_g = [float(plain(rng=seed).mean[0]) for seed in range(N_RUNS)]
        tight = [upper_bound(ONE, f, None, N_DRAWS, seed)[0] for seed in range(N_RUNS)]
        spreads.append(np.std(a_g) / np.std(tight))
        ours, theirs = interleaved(
            [partial(upper_bound, ONE, f, None, N_DRAWS, 0), partial(plain, rng=0)], clock=time.process_time
        )
        times.append(ours / theirs)
        gaps.append(np.mean(a_g) - np.mean(tight))
    sd, cost = np.array(spreads), np.array(times)
    work = f"upper bound of log Z, {N_DRAWS} draws"
    yield Line(f"{work}: standard deviation, theirs over ours", "A_G", float(np.median(sd)), 2)
    yield Line(f"{work}: time, ours over theirs", "A_G", float(np.median(cost)), 1.1, at_least=False)
    yield Line(f"{work}: variance x time, theirs over ours", "A_G", float(np.median(sd**2 / cost)), 3.6)
    print(f"  lower than A_G by {', '.join(f'{gap:.2g}' for gap in gaps)} nats, from weak to strong coupling")
    yield from pins(grids)


def pins(grids: Sequence[Potentials]) -> Iterator[Line]:
    """The pins of the next site of all particles, one more site being given: no flow is kept from step to step."""
    ratios = []
    for f in grids:
        order = cut_sites(f, None, 13)
        rng = np.random.default_rng(0)
        given = np.full((N_PARTICLES, f.n_sites), -1, dtype=np.int32)
        given[:, order[:6]] = rng.integers(0, 2, (N_PARTICLES, 6))
        before = given.copy()
        before[:, order[5]] = -1
        scratch, after = interleaved(
            [partial(_pins, f, known, order[6]) for known in (before, given)], clock=time.process_time
        )
        ratios.append(scratch / after)
    work = f"pins of one site of {N_PARTICLES} particles, one more site fixed"
    yield Line(work, "pins from scratch", float(np.median(ratios)), 4)


def _pins(f: Potentials, given: Labels, site: int) -> None:
    known = given.ravel()
    noise = np.tile(pm.gumbel_noise(f, 0, N_PERTURBATIONS), (1, len(given), 1))
    perturbed = pm.perturb(Potentials.batch([f] * len(given)), np.where(known[:, None] >= 0, 0.0, noise))
    mask = np.zeros((f.n_sites, 2), dtype=bool)
    mask[site] = True
    ONE.pinned(perturbed, pins=np.tile(mask, (len(given), 1)), given=known)
