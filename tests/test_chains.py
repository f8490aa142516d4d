"""Chains of Gibbs sampling that start from exact samples, and what is not left to them."""

import time
from itertools import combinations

import numpy as np
import pytest

import perturbmap as pm
from perturbmap import BinaryGraph, BruteForce, Potentials, grid_edges, potts
from perturbmap.inference import CONVERGING, Converging, NotConvergedWarning, converging, particles
from perturbmap.inference.chains import start_chains
from perturbmap.inference.elimination import sum_out
from perturbmap.inference.particles import run_group
from perturbmap.inference.sweeps import sweeps


def grid(height: int, width: int, coupling: float, fields: float, seed: int) -> Potentials:
    rng = np.random.default_rng(seed)
    edges = grid_edges(height, width)
    unary = np.stack([np.zeros(height * width), fields * rng.normal(size=height * width)], axis=1)
    return Potentials(unary, potts(coupling * rng.uniform(0.5, 1.5, len(edges))), edges)


@pytest.fixture
def without_exact_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converging, "exact_answers", lambda structure, f, given: [None] * len(f))


def no_particles(*arguments: object) -> None:
    raise AssertionError("particles are not needed here")


@pytest.mark.parametrize("given", [None, [-1, 1, -1, -1, -1, 0]], ids=["all free", "some given"])
def test_chains_start_from_exact_samples(given: list[int] | None) -> None:
    """Of 20,000 chains, as many are at each labelling as its probability says, within four standard errors."""
    f = grid(2, 3, 1.5, 0.5, 0)
    known = None if given is None else np.array(given, dtype=np.int32)
    chains = start_chains(BinaryGraph(2), f, known, 0, 20_000)
    assert chains is not None
    y = np.array(list(np.ndindex(*[2] * 6)), dtype=np.int32)
    is_allowed = np.ones(64, dtype=bool) if known is None else ((y == known) | (known < 0)).all(axis=1)
    p = np.where(is_allowed, np.exp(f.score(y)[:, 0] - BruteForce().log_partition(f, given)[0][0]), 0.0)
    shares = np.bincount(chains.labels @ (2 ** np.arange(6)[::-1]), minlength=64) / 20_000
    assert (np.abs(shares - p) <= 4 * np.sqrt(p * (1 - p) / 20_000)).all()


@pytest.mark.parametrize("coupling", [0.5, 3.0])
def test_sweeps_keep_the_order_of_labellings(coupling: float) -> None:
    """With the same random numbers, where edges attract; and not with those of another chain."""
    f = grid(8, 8, coupling, 1.0, 3)
    rng = np.random.default_rng(4)
    low = (rng.random((200, 64)) < 0.3).astype(np.int32)
    high = np.maximum(low, rng.random((200, 64)) < 0.3).astype(np.int32)
    for n_sweeps in (1, 2, 5):
        ends = [sweeps(BinaryGraph(), f, None, y, 0, 0, n_sweeps, 0)[0] for y in (low, high)]
        assert (ends[0] <= ends[1]).all()
        assert (ends[0] < ends[1]).any()
    assert (
        sweeps(BinaryGraph(), f, None, low, 0, 200, 1, 0)[0] > sweeps(BinaryGraph(), f, None, high, 0, 0, 1, 0)[0]
    ).any()


def test_chains_are_the_same_whichever_structure_has_the_graph() -> None:
    """`Graph` has them for two labels that attract each other, and for no others."""
    f = grid(4, 5, 0.5, 1.0, 0)
    chains, others = (start_chains(structure, f, None, 0, 16) for structure in (BinaryGraph(), pm.Graph()))
    assert chains is not None
    assert others is not None
    for some in (chains, others):
        some.advance()
    for one, other in zip(chains.groups(), others.groups(), strict=True):
        assert np.array_equal(one.marginals, other.marginals)
    assert start_chains(pm.Graph(), Potentials(f.unary, -potts(0.1), f.edges), None, 0, 16) is None
    assert start_chains(pm.Graph(), Potentials(np.zeros((20, 3)), potts(0.1, 3), f.edges), None, 0, 16) is None


def test_weak_coupling_is_answered_by_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid too wide to be summed: right within its standard errors, and ten times as fast as particles."""
    f = grid(14, 20, 0.5, 1.0, 0)
    q = sum_out(f, None, 2, max_entries=2**26).marginals
    began = time.process_time()
    run_group(BinaryGraph(1), f, None, 0, 0, 64)
    by_particles = 8 * (time.process_time() - began)
    monkeypatch.setattr(converging, "run_group", no_particles)
    began = time.process_time()
    found = pm.marginals(BinaryGraph(1), f, method=CONVERGING, rng=0)
    assert 10 * (time.process_time() - began) < by_particles
    assert np.abs(found.mean - q).mean() < 0.003
    assert (np.abs(found.mean - q) < 4 * found.standard_error).all()


@pytest.mark.parametrize("fields", [1.0, 3.0])
@pytest.mark.parametrize("coupling", [0.5, 1.0])
def test_chains_meet_at_weak_coupling(coupling: float, fields: float) -> None:
    """Within 512 sweeps, on grids like those that follow."""
    for seed in (0, 1):
        chains = start_chains(BinaryGraph(2), grid(14, 20, coupling, fields, seed), None, 0, 16)
        assert chains is not None
        assert chains.n_blocks * 8 <= 512


@pytest.mark.parametrize("fields", [1.0, 3.0])
@pytest.mark.parametrize("coupling", [2.0, 3.0, 4.0])
def test_strong_coupling_is_not_left_to_chains(coupling: float, fields: float) -> None:
    """On grids where Gibbs sampling is off by up to 0.4, chains do not meet."""
    for seed in (0, 1):
        assert start_chains(BinaryGraph(2), grid(14, 20, coupling, fields, seed), None, 0, 64) is None


@pytest.mark.usefixtures("without_exact_sums")
def test_what_chains_do_not_answer_particles_do() -> None:
    """A small grid of strong coupling, whose two modes have nearly the same probability."""
    f = grid(3, 4, 8.0, 0.3, 1)
    assert start_chains(BinaryGraph(1), f, None, 0, 64) is None
    q = BruteForce().log_partition(f)[1].unary
    assert 0.2 < q[0, 0] < 0.8
    found = pm.marginals(BinaryGraph(), f, method=CONVERGING, rng=0)
    assert (np.abs(found.mean - q) < 4 * found.standard_error).all()


def test_chains_guide_the_particles_of_log_z() -> None:
    """A grid too wide to be summed: within four standard errors, which are less than a fiftieth of a nat."""
    f = grid(14, 20, 1.0, 1.0, 0)
    (log_z,), q = sum_out(f, None, 2, max_entries=2**26)
    found = pm.log_partition(BinaryGraph(), f, n_groups=6, rng=0)
    error = found.estimate.standard_error[0]
    assert abs(found.estimate.mean[0] - log_z) < 4 * error
    assert (np.abs(found.marginals.mean - q) < 5 * found.marginals.standard_error).all()
    assert error < 0.02


@pytest.mark.usefixtures("without_exact_sums")
@pytest.mark.parametrize("given", [None, [-1, 1] + [-1] * 14], ids=["all free", "some given"])
def test_the_estimate_of_z_is_unbiased_whatever_is_guessed(
    given: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of thousands of tiny groups is Z, within four standard errors; bad labellings only spread them."""
    monkeypatch.setattr(particles, "_SMALL_TABLE", 4)
    f = grid(4, 4, 1.0, 1.0, 5)
    f = f.with_unary(np.where(np.arange(32).reshape(16, 2) == 30, -np.inf, f.unary))
    known = None if given is None else np.array(given, dtype=np.int32)
    chains = start_chains(BinaryGraph(), f, known, 0, 64)
    assert chains is not None
    log_z = float(BruteForce().log_partition(f, known)[0][0])
    spreads = []
    for labels in (chains.labels, np.random.default_rng(0).integers(0, 2, (5, 16)).astype(np.int32)):
        groups = [run_group(BinaryGraph(), f, known, 1, group, 2, np.inf, labels) for group in range(2000)]
        ratios = np.exp([g.log_z - log_z for g in groups])
        assert abs(ratios.mean() - 1) < 4 * ratios.std() / np.sqrt(len(ratios))
        spreads.append(ratios.std())
    assert 0 < 2 * spreads[0] < spreads[1]


def two_modes() -> Potentials:
    """A site that a hundred blocks of four hang on: both of its labels have probability one half.

    Perturb-and-MAP believes in one of them alone: where blocks are free, it counts their sites' noise many times.
    """
    n_blocks, size = 100, 4
    edges, tables = [], []
    for first in range(1, 1 + n_blocks * size, size):
        block = range(first, first + size)
        edges += [(0, d) for d in block] + list(combinations(block, 2))
        tables += [[[0.0, 0.0], [0.0, 3.0 / size]]] * size + [[[1.0, 0.0], [0.0, 1.0]]] * 6
    unary = np.zeros((1 + n_blocks * size, 2))
    known = np.full(len(unary), -1, dtype=np.int32)
    totals = []
    for known[0] in (0, 1):
        totals.append(sum_out(Potentials(unary, np.array(tables), edges), known, 1).values[0])
    unary[0, 1] = totals[0] - totals[1]
    return Potentials(unary, np.array(tables), edges)


def test_chains_that_agree_with_each_other_may_all_be_wrong() -> None:
    """By split R-hat chains from perturb-and-MAP samples mix, and miss half of the probability. Ours do not meet."""
    f = two_modes()
    q = sum_out(f, None, 1).marginals
    assert q[0, 1] == pytest.approx(0.5)
    starts = pm.sample(BinaryGraph(), f, 64, rng=0)
    labels, first, _ = sweeps(BinaryGraph(), f, None, starts, 0, 0, 128, 256)
    _, second, _ = sweeps(BinaryGraph(), f, None, labels, 1, 0, 0, 256)
    m = np.concatenate([first, second])[:, 1:, 1]
    r_hat = np.sqrt(1 + m.var(axis=0, ddof=1) / (m * (1 - m)).mean(axis=0))
    assert r_hat.max() < 1.05
    assert np.abs(np.concatenate([first, second]).mean(axis=0) - q)[0, 1] > 0.49
    assert start_chains(BinaryGraph(2), f, None, 0, 64) is None


@pytest.mark.usefixtures("without_exact_sums")
def test_standard_errors_cover_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 200 grids: the mean standardised error is that of a normal variable, or less, and two hold 95 %."""
    monkeypatch.setattr(converging, "run_group", no_particles)
    rng = np.random.default_rng(0)
    standardised, z = [], []
    for i in range(200):
        f = grid(4, 4, rng.choice([0.25, 0.5, 0.75]), rng.choice([0.5, 1.0, 3.0]), i)
        q = sum_out(f, None, 1).marginals
        found = pm.marginals(BinaryGraph(1), f, method=Converging(32, 8), rng=i)
        standardised.append(np.abs(found.mean - q).mean() / found.standard_error.mean())
        z.append((found.mean - q)[:, 1] / found.standard_error[:, 1])
    assert np.mean(standardised) < 1.2
    assert np.mean(np.abs(z) < 2) > 0.93
    assert np.mean(np.abs(z)) > 0.2  # nor are they far too large


@pytest.mark.usefixtures("without_exact_sums")
def test_the_same_seed_gives_the_same_bits() -> None:
    """Whatever the threads, whether an example is alone or in a batch; and a chain is the same among many."""
    f = Potentials.batch([grid(3, 4, 0.5, 1.0, 0), grid(4, 3, 0.7, 1.0, 1)])
    results = [pm.marginals(BinaryGraph(n), f, method=Converging(16, 2), rng=3) for n in (1, 2, 5)]
    for other in results[1:]:
        assert np.array_equal(results[0].mean, other.mean)
        assert np.array_equal(results[0].standard_error, other.standard_error)
    alone = pm.marginals(BinaryGraph(), f[1], method=Converging(16, 2), rng=3)
    assert np.array_equal(alone.mean, results[0].mean[12:])
    few, many = (start_chains(BinaryGraph(), f[0], None, 3, n) for n in (4, 16))
    assert few is not None
    assert many is not None
    assert np.array_equal(few.labels, many.labels[:4])


@pytest.mark.usefixtures("without_exact_sums")
def test_chains_go_on_until_they_are_accurate() -> None:
    f = grid(4, 4, 0.5, 1.0, 2)
    seen: list[float] = []
    method = Converging(32, 2, tolerance=0.001, callback=lambda n, error: seen.append(error))
    found = pm.marginals(BinaryGraph(), f, method=method, rng=0)
    assert seen[-1] == found.standard_error.max() <= 0.001
    assert all(error > 0.001 for error in seen[1:-1])
    assert len(seen) > 2
    with pytest.warns(NotConvergedWarning, match="groups of 32 labellings, .* short of tolerance=1e-09"):
        pm.marginals(BinaryGraph(), f, method=Converging(32, tolerance=1e-9, max_seconds=0.2), rng=0)
    large = grid(40, 40, 0.5, 1.0, 3)
    with pytest.raises(ValueError, match=r"not one group of 64 labellings .* after max_seconds=0\.001"):
        pm.marginals(BinaryGraph(), large, method=Converging(max_seconds=0.001), rng=0)


def test_what_does_not_attract_has_no_order_to_keep() -> None:
    """Repelling edges, more labels than two, and graphs so large that a try would take minutes."""
    f = grid(2, 2, 0.1, 1.0, 4)
    assert start_chains(BinaryGraph(1), f, None, 0, 4) is not None
    assert start_chains(BinaryGraph(1), Potentials(f.unary, -f.tables, f.edges), None, 0, 4) is None
    assert start_chains(BinaryGraph(1), Potentials(np.zeros((4, 3)), np.zeros((3, 3)), f.edges), None, 0, 4) is None
    assert start_chains(BinaryGraph(1), Potentials(np.zeros((10**6, 2))), None, 0, 64) is None
