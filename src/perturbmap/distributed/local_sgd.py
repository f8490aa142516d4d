"""Local steps and averaging: double stochastic gradient on many shards at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data.dataset import Shards
from perturbmap.models.base import Model
from perturbmap.noise import Domain
from perturbmap.objectives import Objective, Targets
from perturbmap.potentials import Floats
from perturbmap.solvers import DoubleSGD, Problem, Solver
from perturbmap.solvers.double_sgd import Passes, SGDState, remember, take_step
from perturbmap.solvers.steps import Rule
from perturbmap.structures import Structure
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_number

# How often a round is run again whose workers died: once for bad luck, once more to be sure that it was not.
_RETRIES = 2


@final
class LocalSGD(Solver[SGDState]):
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

    saves_every_step = True

    def __init__(self, sgd: DoubleSGD | None = None, rounds_per_pass: float = 4) -> None:
        self.sgd = sgd
        self.rounds_per_pass = rounds_per_pass

    @property
    def _sgd(self) -> DoubleSGD:
        return DoubleSGD() if self.sgd is None else self.sgd

    def check(self, problem: Problem) -> None:
        """See `Solver.check`: the examples must be those of a `Store`."""
        if not isinstance(self._sgd, DoubleSGD):
            raise TypeError(f"sgd must be DoubleSGD(...), but is {self.sgd!r}.")
        self._sgd.check(problem)
        check_number("rounds_per_pass", self.rounds_per_pass)
        if problem.data.store is None:
            raise ValueError("LocalSGD works on the shards of a Store: write X with write_store, or use DoubleSGD.")

    def n_iter(self, n_examples: int) -> int:
        """The number of rounds in all."""
        sgd = self._sgd
        n_passes = max(sgd.n_passes, sgd.min_steps * min(sgd.batch_size, n_examples) / n_examples)
        return max(1, int(np.ceil(n_passes * self.rounds_per_pass)))

    def examples_per_step(self, n_examples: int) -> int:
        """The number of examples that a round looks at."""
        return max(1, round(n_examples / self.rounds_per_pass))

    def is_due(self, state: SGDState, n_examples: int) -> bool:
        """See `Solver.is_due`: a report is due after every round."""
        return True

    def start(self, problem: Problem, w: Floats | None = None) -> SGDState:
        return self._sgd.start(problem, w)

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> SGDState:
        return self._sgd.restore(problem, arrays, iteration)

    def progress(self, problem: Problem, state: SGDState) -> dict[str, float]:
        """See `Solver.progress`: the objective as the steps of the round saw it."""
        return self._sgd.progress(problem, state)

    def run(
        self,
        problem: Problem,
        state: SGDState,
        on_step: Callable[[SGDState], bool] | None = None,
        n_iter: int | None = None,
    ) -> SGDState:
        tasks = self.tasks(problem)
        sizes = np.array([task.n_examples for task in tasks], dtype=np.float64)
        remember(state, tasks[0].rule)
        averaging = self._sgd.chosen_averaging
        n_iter = self.n_iter(len(problem.data)) if n_iter is None else n_iter
        while state.iteration < n_iter:
            answers = _run_round(tasks, state.w, state.memory, state.iteration, problem.n_jobs)
            state.w = _mean(sizes, [answer.w for answer in answers])
            state.memory = _mean(sizes, [answer.memory for answer in answers])
            state.iteration += 1
            local = _mean(sizes, [answer.average for answer in answers])
            state.average = state.average + averaging.rate(state.iteration, n_iter) * (local - state.average)
            if all(answer.n_steps for answer in answers):
                state.see(float(_mean(sizes, [answer.objective for answer in answers])))
            if on_step is not None and on_step(state):
                break
        return state

    def tasks(self, problem: Problem) -> list[ShardTask]:
        """What is to be done on each shard: all that travels to its worker, but for the weights."""
        data = problem.data
        assert data.store is not None
        assert data.shards is not None
        rule, tasks = self._sgd.rule(problem), []
        for shard in np.unique(data.shards).tolist():
            indices = np.flatnonzero(data.shards == shard)
            size = max(1, round(self._sgd.batch_size * len(indices) / len(data)))
            tasks.append(
                ShardTask(
                    store=data.store,
                    shard=shard,
                    streams=None if problem.has_stored_labels else data.layout.streams[indices],
                    targets=None if problem.has_stored_labels else problem.batch(indices)[1],
                    n_examples=len(indices),
                    n_labels=problem.n_labels,
                    model=problem.model,
                    structure=problem.structure.with_threads(1),
                    objective=problem.objective,
                    l2=problem.l2,
                    seed=problem.seed,
                    domain=problem.domain,
                    rule=rule,
                    size=size,
                    steps_per_round=len(indices) / (size * self.rounds_per_pass),
                )
            )
        return tasks


@dataclass(frozen=True, eq=False)
class ShardTask:
    """What a worker needs to know of a shard: where it is, and what is to be done there."""

    store: Shards
    shard: int
    streams: NDArray[np.uint64] | None  # of the examples that take part; None: all
    targets: Targets | None  # None: those of the store's labels
    n_examples: int
    n_labels: int
    model: Model
    structure: Structure
    objective: Objective
    l2: float
    seed: int
    domain: Domain
    rule: Rule
    size: int
    steps_per_round: float

    def problem(self) -> Problem:
        """The problem of the examples of the shard, which are read here."""
        data, known = (contents := self.store.open(self.shard)).data, contents.known
        if self.targets is not None and self.streams is not None:
            targets = self.targets
            data = data.take(np.searchsorted(data.layout.streams, self.streams))
        else:
            assert known is not None
            targets = self.objective.targets(known)
        return Problem(
            data,
            targets,
            self.n_labels,
            self.model,
            self.structure,
            self.objective,
            self.l2,
            self.seed,
            self.domain,
        )


class _Answer(NamedTuple):
    """The weights after a shard's steps of a round, the mean over these steps, their memory, what they saw."""

    w: Floats
    average: Floats
    memory: Floats
    objective: float
    n_steps: int


def _run_round(tasks: list[ShardTask], w: Floats, memory: Floats, number: int, n_jobs: int | None) -> list[_Answer]:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    for attempt in range(_RETRIES + 1):
        try:
            work = Parallel(n_jobs=n_jobs, batch_size=1, pre_dispatch="all")
            return list(work(delayed(_take_steps)(task, w, memory, number) for task in tasks))
        except TerminatedWorkerError:  # one was killed; its part, and what waited for it, is done again
            if attempt == _RETRIES:
                raise
    raise AssertionError


def _take_steps(task: ShardTask, w: Floats, memory: Floats, number: int) -> _Answer:
    """The steps of one shard in a round."""
    # A fraction of a step is carried over to the next round: so many rounds are so many passes.
    first, last = int(number * task.steps_per_round), int((number + 1) * task.steps_per_round)
    if first == last:
        return _Answer(w, w, memory, 0.0, 0)
    problem = task.problem()
    passes = Passes(problem)
    total, seen, memory = np.zeros_like(w), 0.0, memory.copy()
    with one_blas_thread():
        for h in range(first + 1, last + 1):
            w, objective = take_step(problem, task.rule, w, memory, passes.indices(h, task.size), h)
            total += w
            seen += objective
    problem.data.release()
    return _Answer(w, total / (last - first), memory, seen / (last - first), last - first)


def _mean(sizes: Floats, parts: Sequence[Any]) -> Any:
    """The mean over shards, weighted by their numbers of examples and summed in their order."""
    total = np.zeros_like(parts[0])
    for size, part in zip(sizes, parts, strict=True):
        total += (size / sizes.sum()) * part
    return total
