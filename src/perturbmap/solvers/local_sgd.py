"""Local steps and averaging: double stochastic gradient on many shards at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.annotations import Annotations
from perturbmap.blas import one_blas_thread
from perturbmap.checks import check_number
from perturbmap.examples import Dataset
from perturbmap.models.base import Model
from perturbmap.objectives.base import Objective, Targets
from perturbmap.potentials import Floats
from perturbmap.solvers.averaging import PolynomialAveraging
from perturbmap.solvers.base import Problem, Solver, State
from perturbmap.solvers.double_sgd import DoubleSGD, Passes, take_step
from perturbmap.store.shards import MANIFEST, identity, shard_name
from perturbmap.structures.base import Structure

#: How often a round is run again whose workers died.
_RETRIES = 2


@final
class LocalSGD(Solver[State]):
    """Rounds: each shard of a `Store` takes its own steps from the common weights; their mean begins the next round.

    ``w <- sum_s n_s / n w_s``, where ``w_s`` comes from w by steps of `DoubleSGD` on the ``n_s`` examples of shard s.
    A batch is shared out: a step of shard s looks at ``batch_size * n_s / n`` examples, one at least. So a pass has
    as many steps, of the same lengths, as without shards, unless there are more shards than examples in a batch. Over
    rounds, the mean of all local iterates is averaged.

    sgd : how steps are taken, and how many passes in all; `DoubleSGD` by default
    rounds_per_pass : how often weights are averaged while every shard is passed through once

    Shards are worked on through joblib, as many at once as the estimator's ``n_jobs`` says, here or on the cluster of
    ``joblib.parallel_config``. Workers open their shards by path; weights travel, and labels unless they are the
    store's own; examples never do. The result depends on the seed and on the shards, not on how many work at once.
    """

    takes_long = True

    def __init__(self, sgd: DoubleSGD | None = None, rounds_per_pass: float = 4) -> None:
        self.sgd = sgd
        self.rounds_per_pass = rounds_per_pass

    @property
    def _sgd(self) -> DoubleSGD:
        return DoubleSGD() if self.sgd is None else self.sgd

    def check(self, objective: Objective) -> None:
        """See `Solver.check`."""
        if not isinstance(self._sgd, DoubleSGD):
            raise TypeError(f"sgd must be DoubleSGD(...), but is {self.sgd!r}.")
        self._sgd.check(objective)
        check_number("rounds_per_pass", self.rounds_per_pass)

    def n_iter(self, n_examples: int) -> int:
        """Rounds in all."""
        sgd = self._sgd
        n_passes = max(sgd.n_passes, sgd.min_steps * min(sgd.batch_size, n_examples) / n_examples)
        return max(1, int(np.ceil(n_passes * self.rounds_per_pass)))

    def is_due(self, state: State, n_examples: int) -> bool:
        """After every round."""
        return True

    def start(self, problem: Problem, w: Floats | None = None) -> State:
        """See `Solver.start`; zeros by default."""
        return self._sgd.start(problem, w)

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> State:
        """See `Solver.restore`."""
        return self._sgd.restore(problem, arrays, iteration)

    def progress(self, problem: Problem, state: State) -> dict[str, float]:
        """The objective, on a fixed set of perturbations."""
        return self._sgd.progress(problem, state)

    def run(
        self,
        problem: Problem,
        state: State,
        on_step: Callable[[State], bool] | None = None,
        n_iter: int | None = None,
    ) -> State:
        """See `Solver.run`."""
        tasks = self._tasks(problem)
        sizes = np.array([task.n_examples for task in tasks], dtype=np.float64)
        averaging = PolynomialAveraging() if self._sgd.averaging is None else self._sgd.averaging
        n_iter = self.n_iter(len(problem.data)) if n_iter is None else n_iter
        while state.iteration < n_iter:
            answers = _run_round(tasks, state.w, state.iteration, problem.n_jobs)
            state.w = _mean(sizes, [w for w, _ in answers])
            state.iteration += 1
            local = _mean(sizes, [mean for _, mean in answers])
            state.average = state.average + averaging.rate(state.iteration, n_iter) * (local - state.average)
            if on_step is not None and on_step(state):
                break
        return state

    def _tasks(self, problem: Problem) -> list[_Task]:
        data = problem.data
        if data.store is None or data.shards is None:
            raise ValueError("LocalSGD works on the shards of a Store: write X with write_store, or use DoubleSGD.")
        offset, tasks = self._sgd.offset(problem), []
        for shard in np.unique(data.shards).tolist():
            indices = np.flatnonzero(data.shards == shard)
            size = max(1, round(self._sgd.batch_size * len(indices) / len(data)))
            tasks.append(
                _Task(
                    store=data.store.path,
                    shard=shard,
                    first=data.store.firsts[shard],
                    streams=None if problem.has_stored_labels else data.streams[indices],
                    targets=None if problem.has_stored_labels else problem.batch(indices)[1],
                    n_examples=len(indices),
                    n_labels=problem.n_labels,
                    model=problem.model,
                    structure=problem.structure.with_threads(1),
                    objective=problem.objective,
                    l2=problem.l2,
                    seed=problem.seed,
                    offset=offset,
                    size=size,
                    steps_per_round=len(indices) / (size * self.rounds_per_pass),
                )
            )
        return tasks


@dataclass(frozen=True, eq=False)
class _Task:
    """What a worker needs to know of a shard: where it is, and what is to be done there."""

    store: Path
    shard: int
    first: int  # number of its first example in the whole store
    streams: NDArray[np.uint64] | None  # of the examples that take part; None: all
    targets: Targets | None  # None: those of the store's labels
    n_examples: int
    n_labels: int
    model: Model
    structure: Structure
    objective: Objective
    l2: float
    seed: int
    offset: float
    size: int
    steps_per_round: float

    def problem(self) -> Problem:
        """With the examples of the shard."""
        manifest = identity(self.store / shard_name(self.shard) / MANIFEST)
        data, known = _open(self.store, self.shard, self.first, manifest)
        if self.targets is not None and self.streams is not None:
            data = data.take((self.streams - np.uint64(self.first)).astype(np.intp))
            targets = self.targets
        else:
            assert known is not None
            c = self.objective.label_weights(known.q, data.sizes, data.site_offsets)
            targets = Targets(known.labels, c, known.is_complete, np.ones(len(data)))
        parts = (self.model, self.structure, self.objective)
        return Problem(data, targets, self.n_labels, *parts, self.l2, self.seed)


@lru_cache(maxsize=256)
def _open(store: Path, shard: int, first: int, manifest: tuple[str, int, int]) -> tuple[Dataset, Annotations | None]:
    """Kept from round to round, as long as the shard is that of its manifest: labels and edges, a hundredth of it."""
    from perturbmap.store import Store

    opened = Store.one_shard(store, shard, first)
    data, labels = opened.dataset, None if opened.classes is None else opened.y
    return data, None if labels is None else Annotations.encode(labels, data, labels.classes)


def _run_round(tasks: list[_Task], w: Floats, number: int, n_jobs: int | None) -> list[tuple[Floats, Floats]]:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    for attempt in range(_RETRIES + 1):
        try:
            work = Parallel(n_jobs=n_jobs, batch_size=1, pre_dispatch="all")
            return list(work(delayed(_take_steps)(task, w, number) for task in tasks))
        except TerminatedWorkerError:  # one was killed; its part, and what waited for it, is done again
            if attempt == _RETRIES:
                raise
    raise AssertionError


def _take_steps(task: _Task, w: Floats, number: int) -> tuple[Floats, Floats]:
    """The weights after this shard's steps of a round, and the mean over these steps."""
    # A fraction of a step is carried over to the next round: so many rounds are so many passes.
    first, last = int(number * task.steps_per_round), int((number + 1) * task.steps_per_round)
    if first == last:
        return w, w
    problem = task.problem()
    passes = Passes(problem)
    total = np.zeros_like(w)
    with one_blas_thread():
        for h in range(first + 1, last + 1):
            w = take_step(problem, w, passes.indices(h, task.size), h, task.offset)
            total += w
    problem.data.release()
    return w, total / (last - first)


def _mean(sizes: Floats, parts: list[Floats]) -> Floats:
    """Weighted by the examples of the shards, and summed in their order."""
    total = np.zeros_like(parts[0])
    for size, part in zip(sizes, parts, strict=True):
        total += (size / sizes.sum()) * part
    return total
