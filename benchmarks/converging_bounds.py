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
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures.fixing import Fixing

ONE = pm.BinaryGraph(n_threads=1)
# Ours has fewer draws, since each costs more than one of A_G: what counts is the time of all of them.
N_DRAWS, OUR_DRAWS, N_RUNS = 100, 40, 100
N_PARTICLES, N_PERTURBATIONS = 64, 16


def bounds(grids: Sequence[Potentials]) -> Iterator[Line | str]:
    """Standard deviation from run to run and CPU time, medians over the grids."""
    spreads, times, gaps = [], [], []
    for f in grids:
        plain = partial(pm.log_partition_bound, ONE, f, n_perturbations=N_DRAWS)
        a_g = [float(plain(rng=seed).mean[0]) for seed in range(N_RUNS)]
        tight = [upper_bound(ONE, f, None, OUR_DRAWS, seed)[0] for seed in range(N_RUNS)]
        spreads.append(np.std(a_g) / np.std(tight))
        ours, theirs = interleaved(
            [partial(upper_bound, ONE, f, None, OUR_DRAWS, 0), partial(plain, rng=0)], clock=time.process_time
        )
        times.append(ours / theirs)
        gaps.append(np.mean(a_g) - np.mean(tight))
    sd, cost = np.array(spreads), np.array(times)
    work = f"upper bound of log Z, {OUR_DRAWS} draws beside {N_DRAWS}"
    yield Line(f"{work}: standard deviation, theirs over ours", "A_G", float(np.median(sd)), 2)
    yield Line(f"{work}: time, ours over theirs", "A_G", float(np.median(cost)), 1.1, at_least=False)
    yield Line(f"{work}: variance x time, theirs over ours", "A_G", float(np.median(sd**2 / cost)), 3.6)
    yield f"variance x time of each: {', '.join(f'{v:.3g}' for v in sd**2 / cost)}, from weak to strong coupling"
    yield f"lower than A_G by {', '.join(f'{gap:.2g}' for gap in gaps)} nats, from weak to strong coupling"
    yield from pins(grids)


def pins(grids: Sequence[Potentials]) -> Iterator[Line]:
    """The pins of the next site of all particles, one more site being fixed: kept cuts against ones begun again."""
    ratios = []
    for f in grids:
        *before, last, site = cut_sites(f, None, 13)[:8].tolist()
        rng = np.random.default_rng(0)
        given = np.full((N_PARTICLES, f.n_sites), -1, dtype=np.int32)
        given[:, [*before, last]] = rng.integers(0, 2, (N_PARTICLES, len(before) + 1))
        seconds: list[tuple[float, float]] = []
        for _ in range(9):
            kept = _kept(f, given, before, last)
            start = time.process_time()
            kept.branch(np.arange(N_PARTICLES), given[:, last])
            found = kept.pin(site)
            middle = time.process_time()
            again = _begun_again(f, given, site)
            seconds.append((middle - start, time.process_time() - middle))
            np.testing.assert_allclose(found.swapaxes(0, 1), again, atol=1e-6)
        ours, scratch = np.median(seconds, axis=0)
        ratios.append(scratch / ours)
    work = f"pins of one site of {N_PARTICLES} particles, one more site fixed"
    yield Line(work, "pins from scratch", float(np.median(ratios)), 4)


def _perturbed(f: Potentials) -> Potentials:
    return pm.perturb(f, pm.gumbel_noise(f, 0, N_PERTURBATIONS))


def _kept(f: Potentials, given: Labels, before: list[int], last: int) -> Fixing:
    """The particles with all but the last of their labels fixed, whose pins are known."""
    kept = ONE.fixing(_perturbed(f), None, N_PARTICLES)
    assert kept is not None
    for number, site in enumerate(before):
        kept.pin(site)
        kept.branch(np.arange(N_PARTICLES) if number else np.zeros(N_PARTICLES), given[:, site])
    kept.pin(last)
    return kept


def _begun_again(f: Potentials, given: Labels, site: int) -> Floats:
    """The same pins by new cuts, (n_perturbations, n_particles, 2)."""
    perturbed = Potentials.batch([f] * len(given)).with_unary(np.tile(_perturbed(f).unary, (1, len(given), 1)))
    mask = np.zeros((f.n_sites, 2), dtype=bool)
    mask[site] = True
    values = ONE.pinned(perturbed, pins=np.tile(mask, (len(given), 1)), given=given.ravel()).values
    return values.reshape(N_PERTURBATIONS, len(given), f.n_sites, 2)[:, :, site]
