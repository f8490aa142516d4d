"""The simulation of rounds on many machines: closed forms, monotony, the same seed the same plan."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cluster_plan import Plan, closed_form, simulate, simulate_round, table, variants

PLAN = Plan(machines=10, images=1e4, passes=3)
CALM = replace(PLAN, straggler_sigma=0.0, failure_rate=0.0)
#: Nothing but reading from memory and steps.
FREE = replace(
    CALM,
    open_seconds=0.0,
    dispatch_seconds=0.0,
    poll_seconds=0.0,
    latency_seconds=0.0,
    network_bytes_per_second=float("inf"),
    cold_bytes_per_second=float("inf"),
    machine_bytes_per_second=float("inf"),
)


@pytest.mark.parametrize("number", [0, 1, 20])
@pytest.mark.parametrize("plan", [CALM, replace(CALM, weights=1e6), replace(CALM, parts_per_machine=1), FREE])
def test_without_luck_a_round_is_the_closed_form(plan: Plan, number: int) -> None:
    """No stragglers, no failures, a worker for every part."""
    found = simulate_round(plan, number, np.random.default_rng(0))
    assert found.seconds == pytest.approx(closed_form(plan, number), rel=1e-12)
    assert found.failures == 0


@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_more_workers_are_never_slower_without_overheads(sigma: float) -> None:
    """The same parts on more machines."""
    seconds = []
    for machines in (1, 2, 4, 8, 16, 32):
        plan = replace(FREE, straggler_sigma=sigma, machines=machines, parts_per_machine=64 // machines)
        seconds.append(simulate_round(plan, 0, np.random.default_rng(1)).seconds)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(seconds))


def test_without_overheads_a_round_takes_the_work_over_the_workers() -> None:
    """Where the parts go round evenly."""
    plan = replace(FREE, parts_per_machine=8)
    found = simulate_round(plan, 1, np.random.default_rng(0))
    assert found.seconds == pytest.approx(found.busy_seconds / plan.workers)
    assert found.busy_seconds == pytest.approx(plan.parts * plan.task_seconds(1))


def test_failures_only_cost_time() -> None:
    """A part that died is done again, later: the same luck with fewer deaths is never slower."""
    plans = [replace(PLAN, failure_rate=rate) for rate in (0.0, 0.02, 0.2)]
    rounds = [[simulate_round(plan, 1, np.random.default_rng(seed)) for seed in range(20)] for plan in plans]
    failures = [sum(r.failures for r in some) for some in rounds]
    assert failures[0] == 0 < failures[1] < failures[2]
    for fewer, more in itertools.pairwise(rounds):
        assert all(a.seconds <= b.seconds for a, b in zip(fewer, more, strict=True))


def test_overheads_bound_a_round_from_below() -> None:
    """However many machines: sending every task, and one task's own time."""
    for machines in (1, 10, 100, 1000):
        plan = replace(CALM, machines=machines)
        found = simulate_round(plan, 1, np.random.default_rng(0)).seconds
        assert found >= max(plan.parts * plan.send_seconds, plan.task_seconds(1))


def test_a_part_that_comes_back_is_not_read_again() -> None:
    """With room in memory; elsewhere it is read, and checked, by whoever has it first."""
    home, anywhere = replace(CALM, affinity=1.0), replace(CALM, memory_bytes=0.0, cold_bytes_per_second=1e9)
    assert home.warm_share(1) == 1.0
    assert home.new_share(1) == 0.0
    assert anywhere.warm_share(1) == 0.0
    assert home.read_seconds(1) < anywhere.read_seconds(1) < anywhere.read_seconds(0) * (1 + 1e-12)
    assert [home.warm_share(0), home.new_share(0)] == [0.0, 1.0]


def test_small_shards_are_checked_as_they_are_read() -> None:
    """A part of one shard is read whole by its first worker, one of many shards round by round."""
    one, many = replace(CALM, affinity=1.0), replace(CALM, affinity=1.0, shards_per_part=10_000)
    assert one.read_seconds(0) == pytest.approx(4 * many.read_seconds(0), rel=1e-3)
    assert many.read_seconds(3) == many.read_seconds(0)
    assert many.read_seconds(4) == one.read_seconds(1)


def test_the_same_seed_gives_the_same_plan() -> None:
    """And another seed another, where there is luck."""
    assert simulate(PLAN) == simulate(PLAN)
    assert simulate(PLAN) != simulate(replace(PLAN, seed=1))
    assert simulate(CALM) == simulate(replace(CALM, seed=1))


def test_the_table_has_a_column_a_plan() -> None:
    """Each row with as many numbers."""
    plans = variants(PLAN)
    lines = table(plans).splitlines()
    assert all(name in lines[0] for name in plans)
    assert len({len(line) for line in lines}) == 1
