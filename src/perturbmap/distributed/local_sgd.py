"""Local steps and averaging: double stochastic gradient on many shards at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.solvers import DoubleSGD, Problem, Solver
from perturbmap.solvers.averaging import UniformAveraging
from perturbmap.solvers.double_sgd import SGDState, remember
from perturbmap.solvers.iterate import Iterate
from perturbmap.solvers.passes import Passes
from perturbmap.solvers.shards import ShardProblem, by_shard, run_tasks
from perturbmap.solvers.steps import Rule, take_step
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_number


@final
class LocalSGD(Solver[SGDState]):
    """Stochastic gradient steps on each shard of a `Store` by itself, after which the weights are averaged.

    Learning goes in rounds: each shard takes its own steps from the common weights, and the mean of what the shards
    end with begins the next round, ``w <- sum_s n_s / n w_s``. There ``w_s`` comes from w by steps of `DoubleSGD` on
    the ``n_s`` examples of shard s. The shards divide a batch among them: a step of shard s looks at
    ``batch_size * n_s / n`` examples, one at least. So a pass has as many steps, of the same lengths, as without
    shards, unless there are more shards than examples in a batch. The weights to use are an average over the rounds,
    of the mean of all local iterates in each.

    sgd : how steps are taken, and how many passes in all; `DoubleSGD` by default
    rounds_per_pass : how often weights are averaged while every shard is passed through once; more rounds keep the
        shards closer together, and send the weights more often

    Shards are worked on through joblib, as many at once as the estimator's ``n_jobs`` says, here or on the cluster of
    ``joblib.parallel_config``. Workers open their shards by path, which they must therefore be able to read; they are
    sent the weights, and labels unless these are the store's own, but never examples. The result depends on the seed
    and on the shards, not on how many work at once.
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
        tasks = self.tasks(problem, state)
        sizes = np.array([task.part.n_examples for task in tasks], dtype=np.float64)
        remember(state, tasks[0].rule, problem.n_weights)
        averaging = self._sgd.chosen_averaging
        n_iter = self.n_iter(len(problem.data)) if n_iter is None else n_iter
        while state.iteration < n_iter:
            answers = run_tasks(_take_steps, tasks, problem.n_jobs, state.w, state.memory, state.iteration)
            state.memory = _mean(sizes, [answer.memory for answer in answers])
            state.iteration += 1
            w, local = (_mean(sizes, parts) for parts in zip(*((a.w, a.average) for a in answers), strict=True))
            average = state.average
            average = average + averaging.rate(state.iteration, n_iter) * (local - average)
            state.iterate = Iterate.of(w, average)
            if all(answer.n_steps for answer in answers):
                state.see(float(_mean(sizes, [answer.objective for answer in answers])))
            if on_step is not None and on_step(state):
                break
        return state

    def tasks(self, problem: Problem, state: SGDState) -> list[ShardTask]:
        """What is to be done on each shard: all that travels to its worker, but for the weights."""
        rule, tasks = self._sgd.rule(problem, state), []
        for part in by_shard(problem):
            size = max(1, round(self._sgd.batch_size * part.n_examples / len(problem.data)))
            tasks.append(ShardTask(part, rule, size, part.n_examples / (size * self.rounds_per_pass)))
        return tasks


@dataclass(frozen=True, eq=False)
class ShardTask:
    """What a worker needs to know of a shard: its problem, and the steps that are to be taken there."""

    part: ShardProblem
    rule: Rule
    size: int
    steps_per_round: float


class _Answer(NamedTuple):
    """The weights after a shard's steps of a round, the mean over these steps, their memory, what they saw."""

    w: Floats
    average: Floats
    memory: Floats
    objective: float
    n_steps: int


def _take_steps(task: ShardTask, w: Floats, memory: Floats, number: int) -> _Answer:
    """The steps of one shard in a round."""
    # A fraction of a step is carried over to the next round: so many rounds are so many passes.
    first, last = int(number * task.steps_per_round), int((number + 1) * task.steps_per_round)
    if first == last:
        return _Answer(w, w, memory, 0.0, 0)
    problem = task.part.open()
    passes, mean = Passes(problem), UniformAveraging()
    iterate, seen, memory = Iterate.of(w, w), 0.0, memory.copy()
    with one_blas_thread():
        for n, h in enumerate(range(first + 1, last + 1), start=1):
            rate = mean.rate(n, last - first)
            seen += take_step(problem, task.rule, iterate, memory, passes.batch(h, task.size), h, rate)
    problem.data.release()
    return _Answer(iterate.weights(), iterate.average(), memory, seen / (last - first), last - first)


def _mean(sizes: Floats, parts: Sequence[Any]) -> Any:
    """The mean over shards, weighted by their numbers of examples and summed in their order."""
    total = np.zeros_like(parts[0])
    for size, part in zip(sizes, parts, strict=True):
        total += (size / sizes.sum()) * part
    return total
