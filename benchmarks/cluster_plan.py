"""A plan on paper for a fit by `LocalSGD` on many machines: a small simulation of its rounds.

``python -m benchmarks.cluster_plan --machines 100 --images 1e6`` prints the plan; every constant is an option.
With ``--measure``, those that can be measured on this machine are measured first.

A round. The driver sends one task for each part, one after another: ``dispatch_seconds`` each, and the weights. A
free worker takes the next task. It opens the part, for which it reads its manifests, and reads the examples of the
round: from its machine's memory where they were read there before, else from the shared file system, whose bandwidth
the busy workers share. Of shards that are new to the worker it reads everything, for the checksums. Then it takes its
steps.
Stragglers: a task's time is multiplied by a log-normal factor, 1 at the median. Failures: a task dies at a random
moment of its time; ``detect_seconds`` later it waits for a free worker again. Answers, the weights and their mean,
come back through the driver's network one after another. The round is over when all are there.
"""

from __future__ import annotations

import argparse
import heapq
import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

GB = 1e9
SHARD_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Plan:
    """What is planned with. A worker is one process with one thread; a part is what one task works on."""

    machines: int = 100
    workers_per_machine: int = 4
    parts_per_machine: int = 4
    shards_per_part: int = 1
    images: float = 1e6
    sites: float = 150.0
    features: float = 1969.0
    feature_bytes: float = 4.0
    weights: float = 1974.0
    passes: float = 30.0
    rounds_per_pass: float = 4.0
    # Measured: see --measure. A step's time has the reading of memory in it; warm bytes are those of a fresh map.
    example_seconds: float = 0.4e-3
    open_seconds: float = 7e-3
    dispatch_seconds: float = 1.3e-3
    poll_seconds: float = 0.03
    driver_bytes_per_site: float = 85.0
    warm_bytes_per_second: float = 100 * GB
    checksum_bytes_per_second: float = 3 * GB
    # Not measured here: those of a usual cluster.
    manifest_seconds: float = 0.5e-3
    cold_bytes_per_second: float = 10 * GB
    machine_bytes_per_second: float = 1.25 * GB
    network_bytes_per_second: float = 1.25 * GB
    latency_seconds: float = 0.5e-3
    memory_bytes: float = 64 * GB
    straggler_sigma: float = 0.1
    failure_rate: float = 1e-5
    detect_seconds: float = 30.0
    affinity: float = 0.0
    seed: int = 0

    @property
    def workers(self) -> int:
        return self.machines * self.workers_per_machine

    @property
    def parts(self) -> int:
        return self.machines * self.parts_per_machine

    @property
    def example_bytes(self) -> float:
        return self.sites * self.features * self.feature_bytes

    @property
    def data_bytes(self) -> float:
        return self.images * self.example_bytes

    @property
    def weight_bytes(self) -> float:
        return 8 * self.weights

    @property
    def images_per_task(self) -> float:
        return self.images / (self.parts * self.rounds_per_pass)

    @property
    def step_seconds(self) -> float:
        """Seconds of all steps of one task."""
        return self.images_per_task * self.example_seconds

    def visits(self, number: int) -> int:
        """How often what this round reads was read before: one shard is read whole, many are read in turn."""
        return number if self.shards_per_part == 1 else int(number // self.rounds_per_pass)

    def warm_share(self, number: int) -> float:
        """Of the bytes that a task of this round reads, the share that its machine has in memory.

        With ``affinity`` 1 a part comes back to the worker that had it; with 0 it goes to any, whose machine's memory
        holds what was read there last, of all data.
        """
        if self.visits(number) == 0:
            return 0.0
        own = min(1.0, self.memory_bytes / (self.data_bytes / self.machines))
        anyone = min(1.0, self.memory_bytes / self.data_bytes)
        return self.affinity * own + (1 - self.affinity) * anyone

    def new_share(self, number: int) -> float:
        """The share of the tasks of this round that read what their worker has never checked."""
        n = self.visits(number)
        return 1.0 if n == 0 else float((1 - self.affinity) * (1 - 1 / self.workers) ** n)

    def open_share(self, number: int) -> float:
        """The share of the tasks of this round whose worker has not got the part open."""
        return 1.0 if number == 0 else 1 - self.affinity

    @property
    def whole_open_seconds(self) -> float:
        return self.open_seconds + self.shards_per_part * self.manifest_seconds

    def read_seconds(self, number: int) -> float:
        """Seconds of reading in one task: all workers read at once, and share what there is."""
        warm, new = self.warm_share(number), self.new_share(number)
        part_bytes = self.data_bytes / self.parts
        checked = part_bytes * min(1.0, 1 / self.rounds_per_pass + 1 / self.shards_per_part)
        n_bytes = new * checked + (1 - new) * part_bytes / self.rounds_per_pass
        busy = min(self.parts, self.workers)
        on_machine = min(busy, self.workers_per_machine)
        cold = min(self.cold_bytes_per_second / busy, self.machine_bytes_per_second / on_machine)
        reading = n_bytes * (warm / self.warm_bytes_per_second + (1 - warm) / cold)
        return reading + new * checked / self.checksum_bytes_per_second

    def task_seconds(self, number: int) -> float:
        """Seconds of one task on a worker that nothing slows down."""
        opening = self.open_share(number) * self.whole_open_seconds
        return opening + self.read_seconds(number) + self.step_seconds

    @property
    def send_seconds(self) -> float:
        """Seconds of the driver for each task: dispatch, and the weights."""
        return self.dispatch_seconds + self.weight_bytes / self.network_bytes_per_second

    @property
    def receive_seconds(self) -> float:
        """Seconds of the driver for each answer: the weights and their mean."""
        return 2 * self.weight_bytes / self.network_bytes_per_second


def closed_form(plan: Plan, number: int) -> float:
    """Seconds of a round without stragglers and failures, where every part has a worker.

    The first answer is there after a task, its way and its answer; the others follow at the pace of sending or of
    receiving, whichever is slower.
    """
    assert plan.parts <= plan.workers
    first = plan.send_seconds + 2 * plan.latency_seconds + plan.task_seconds(number) + plan.receive_seconds
    pace = max(plan.send_seconds, plan.receive_seconds)
    return first + (plan.parts - 1) * pace + plan.poll_seconds


@dataclass(frozen=True)
class Round:
    """What a round took."""

    seconds: float
    failures: int
    busy_seconds: float  # of all workers together


def simulate_round(plan: Plan, number: int, rng: np.random.Generator) -> Round:
    """One round, event by event."""
    normal = plan.task_seconds(number)
    # Drawn for each part before anything else: other constants, the same luck.
    slow = np.exp(plan.straggler_sigma * rng.normal(size=plan.parts))
    luck = rng.random((plan.parts, 8))
    moment = rng.random((plan.parts, 8))
    waiting = [((n + 1) * plan.send_seconds + plan.latency_seconds, n, 0) for n in range(plan.parts)]
    heapq.heapify(waiting)
    free = [0.0] * plan.workers
    answers, busy, failures = [], 0.0, 0
    while waiting:
        ready, part, attempt = heapq.heappop(waiting)
        start = max(ready, heapq.heappop(free))
        seconds = normal * float(slow[part])
        dies = attempt < luck.shape[1] and luck[part, attempt] < plan.failure_rate
        if dies:
            seconds *= float(moment[part, attempt])
            failures += 1
            again = start + seconds + plan.detect_seconds + plan.send_seconds + plan.latency_seconds
            heapq.heappush(waiting, (again, part, attempt + 1))
        else:
            answers.append(start + seconds + plan.latency_seconds)
        busy += seconds
        heapq.heappush(free, start + seconds)
    end = 0.0
    for there in sorted(answers):
        end = max(end, there) + plan.receive_seconds
    return Round(end + plan.poll_seconds, failures, busy)


@dataclass(frozen=True)
class Fit:
    """What a whole fit takes."""

    first_pass_seconds: float
    pass_seconds: float
    seconds: float
    failures: int
    efficiency: float  # steps alone, of all the time that all workers were there


def simulate(plan: Plan) -> Fit:
    """All rounds; the first finds nothing in memory."""
    rng = np.random.default_rng(plan.seed)
    n_rounds = max(1, math.ceil(plan.passes * plan.rounds_per_pass))
    n_first = min(n_rounds, math.ceil(plan.rounds_per_pass))
    rounds = [simulate_round(plan, number, rng) for number in range(n_rounds)]
    seconds = [r.seconds for r in rounds]
    later = seconds[n_first:] or seconds
    return Fit(
        sum(seconds[:n_first]),
        float(np.mean(later)) * plan.rounds_per_pass,
        sum(seconds),
        sum(r.failures for r in rounds),
        n_rounds * plan.parts * plan.step_seconds / (plan.workers * sum(seconds)),
    )


def table(plans: dict[str, Plan]) -> str:
    """A table with one column for each plan."""
    rows: list[tuple[str, list[str]]] = [("", list(plans))]
    chosen = list(plans.values())
    fits = [simulate(plan) for plan in chosen]

    def row(name: str, values: list[float], form: str = ",.3g") -> None:
        rows.append((name, [format(value, form) for value in values]))

    row("machines", [p.machines for p in chosen], ",.0f")
    row("workers", [p.workers for p in chosen], ",.0f")
    row("parts", [p.parts for p in chosen], ",.0f")
    row("data, GB", [p.data_bytes / GB for p in chosen], ",.0f")
    row("data per machine, GB", [p.data_bytes / p.machines / GB for p in chosen], ",.1f")
    row("driver sends per round, MB", [p.parts * p.weight_bytes / 1e6 for p in chosen], ",.2f")
    row("driver receives per round, MB", [2 * p.parts * p.weight_bytes / 1e6 for p in chosen], ",.2f")
    last = [max(1, math.ceil(p.passes * p.rounds_per_pass) - 1) for p in chosen]
    row("a task: opening, s", [p.whole_open_seconds for p in chosen])
    row("a task: reading, first round, s", [p.read_seconds(0) for p in chosen])
    row("a task: reading, last round, s", [p.read_seconds(n) for p, n in zip(chosen, last, strict=True)])
    row("a task: steps, s", [p.step_seconds for p in chosen])
    row("a round: sending tasks, s", [p.parts * p.send_seconds for p in chosen])
    row("first pass, s", [f.first_pass_seconds for f in fits])
    row("a later pass, s", [f.pass_seconds for f in fits])
    row("the fit, minutes", [f.seconds / 60 for f in fits])
    row("tasks that died", [f.failures for f in fits], ",.0f")
    row("steps' share of all time", [f.efficiency for f in fits], ".1%")
    row("driver, beside features, GB", [p.images * p.sites * p.driver_bytes_per_site / GB for p in chosen], ",.1f")
    row("a shard, GB", [p.data_bytes / p.parts / p.shards_per_part / GB for p in chosen])
    width = max(len(name) for name, _ in rows)
    columns = [max(len(cells[i]) for _, cells in rows) for i in range(len(chosen))]
    return "\n".join(
        f"{name:<{width}}  " + "  ".join(f"{cell:>{w}}" for cell, w in zip(cells, columns, strict=True))
        for name, cells in rows
    )


def variants(plan: Plan) -> dict[str, Plan]:
    """The plan, and what changes it most."""

    def small(plan: Plan) -> Plan:
        return replace(plan, shards_per_part=max(1, round(plan.data_bytes / plan.parts / SHARD_BYTES)))

    home = replace(plan, affinity=1.0)
    return {
        "planned": plan,
        "small shards": small(plan),
        "+ parts come back": small(home),
        "+ float16": small(replace(home, feature_bytes=2.0)),
        "+ 1 round per pass": small(replace(home, feature_bytes=2.0, rounds_per_pass=1.0)),
        "machines / 10": small(replace(home, machines=max(1, plan.machines // 10))),
        "machines x 10": small(replace(home, machines=plan.machines * 10)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_plan", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure what can be measured here, first")
    for field in fields(Plan):
        kind = int if isinstance(field.default, int) else float
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, help=f"{field.default:g}")
    options = vars(parser.parse_args())
    found: dict[str, float] = {}
    if options.pop("measure"):
        from benchmarks.cluster_constants import measure

        found = measure()
        print("measured here:")
        for name, value in found.items():
            print(f"  {name:<24} {value:.4g}")
        print()
    chosen: dict[str, Any] = found | {name: value for name, value in options.items() if value is not None}
    plan = replace(Plan(), **chosen)
    print(table(variants(plan)))


if __name__ == "__main__":
    main()
