"""The problem of each shard of a store: small enough to travel to a worker, who reads the examples there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perturbmap.data.dataset import Shards
from perturbmap.models.base import Model
from perturbmap.noise import Domain
from perturbmap.objectives import Objective, Targets
from perturbmap.potentials import Mask
from perturbmap.solvers.problem import Problem
from perturbmap.structures import Structure
from perturbmap.support.workers import delayed

# How often work is done again whose workers died: once for bad luck, once more to be sure that it was not.
_RETRIES = 2


@dataclass(frozen=True, eq=False)
class ShardProblem:
    """What a worker needs to know of a shard: where it is, and what is to be solved there."""

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
    learned: Mask | None

    def open(self) -> Problem:
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
            learned_of_whole=self.learned,
        )


def by_shard(problem: Problem) -> list[ShardProblem]:
    """The problems of the shards, each for one thread; labels travel unless they are the store's own."""
    data = problem.data
    assert data.store is not None
    found = []
    for shard, indices in examples_of_shards(problem):
        found.append(
            ShardProblem(
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
                learned=problem.learned,
            )
        )
    return found


def examples_of_shards(problem: Problem) -> list[tuple[int, NDArray[np.intp]]]:
    """The shards of a store in order, and the examples of each."""
    shards = problem.data.shards
    assert shards is not None
    return [(shard, np.flatnonzero(shards == shard)) for shard in np.unique(shards).tolist()]


T = TypeVar("T")


def run_tasks(function: Callable[..., T], tasks: Sequence[Any], n_jobs: int | None, *arguments: Any) -> list[T]:
    """``function(task, *arguments)`` of each task, through joblib, in the order of the tasks."""
    from joblib import Parallel
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    for attempt in range(_RETRIES + 1):
        try:
            work = Parallel(n_jobs=n_jobs, batch_size=1, pre_dispatch="all")
            return list(work(delayed(function)(task, *arguments) for task in tasks))
        except TerminatedWorkerError:  # one was killed; its part, and what waited for it, is done again
            if attempt == _RETRIES:
                raise
    raise AssertionError
