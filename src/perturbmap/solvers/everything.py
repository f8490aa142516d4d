"""The whole problem at once: all examples in chunks, shared out to threads, or shard by shard to other processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.solvers.iterate import Positions
from perturbmap.solvers.pieces import Piece
from perturbmap.solvers.problem import Problem
from perturbmap.solvers.shards import ShardProblem, by_shard, examples_of_shards, run_tasks
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.threads import threads

# Examples in a chunk, and about how many sites: its arrays stay in a thread's cache, and each has enough to do.
_MOST_EXAMPLES, _SITES = 512, 4096


class _Part(NamedTuple):
    """The mean over the examples of a chunk, its gradient with respect to some weights, and their number."""

    value: float
    gradient: Floats
    at: Positions
    n: int


@final
class Everything:
    """The whole problem, its examples in chunks that are shared out.

    Everything of a chunk - products with the features, sums over labellings - runs on one thread, in arrays that stay
    in its cache. Chunks do not reach from shard to shard, and are added up in order: neither the number of threads
    nor that of jobs changes anything.
    """

    def __init__(self, problem: Problem) -> None:
        n, structure = len(problem.data), problem.structure
        self._size = int(np.clip(_SITES * n // max(1, problem.data.n_sites), 1, _MOST_EXAMPLES))
        self._n_jobs = None if problem.data.store is None else problem.n_jobs
        self._shards = by_shard(problem) if self._n_jobs not in (None, 1) else []
        n_workers = threads(structure.n_threads) if structure.is_thread_safe else 1
        if structure.is_thread_safe:
            problem = replace(problem, structure=structure.with_threads(1))
        #: Where the weights that are learned are in w.
        self.at: Positions = slice(None) if problem.learned is None else np.flatnonzero(problem.learned)
        self._learns_all = problem.learned is None
        # Where a weight is among those that are learned; of examples in memory it is asked for once.
        self._rank = None if problem.learned is None else np.cumsum(problem.learned, dtype=np.int32) - 1
        self._n_weights = problem.n_weights
        self._problem = problem
        self._chunks = [] if self._shards else _chunks(problem, self._size)
        # Those of a store are made when their turn comes, and forgotten: its features stay on disk.
        self._pieces: list[Piece] | None = None
        if problem.data.store is None:
            self._pieces, self._rank = [self._piece(chunk) for chunk in self._chunks], None
        self._n_workers = max(1, min(n_workers, len(self._chunks)))
        self._pool = ThreadPoolExecutor(self._n_workers)

    def __enter__(self) -> Everything:
        """Starts the threads, which then wait for work."""
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _among_learned(self, at: Positions) -> Positions:
        return at if self._rank is None else self._rank[at]

    def _piece(self, chunk: NDArray[np.intp]) -> Piece:
        """The examples of a chunk; its weights are those that are learned, and looked up among them."""
        piece = Piece.of(self._problem, chunk)
        return replace(piece, at=self._among_learned(piece.at))

    def all_weights(self, learned: Floats) -> Floats:
        """The weights w of those that are learned: the others are zero."""
        if self._learns_all:
            return learned
        w = np.zeros(self._n_weights)
        w[self.at] = learned
        return w

    def _in_order(self, part_of: Callable[[int], _Part]) -> Iterator[_Part]:
        """The parts of all chunks, of which only a few wait to be added up: their gradients are large."""
        waiting: deque[Future[_Part]] = deque()
        for n in range(len(self._chunks)):
            if len(waiting) == 2 * self._n_workers:
                yield waiting.popleft().result()
            waiting.append(self._pool.submit(part_of, n))
        while waiting:
            yield waiting.popleft().result()

    def value_and_grad(self, learned: Floats, draw: int = 0, n_draws: int = 1) -> tuple[float, Floats]:
        """What `Problem.value_and_grad` gives for all examples, of the weights that are learned."""
        parts: Iterable[_Part]
        if self._shards:
            w = self.all_weights(learned)
            shared_out = run_tasks(_evaluate_shard, self._shards, self._n_jobs, self._size, w, draw, n_draws)
            parts = (part._replace(at=self._among_learned(part.at)) for shard in shared_out for part in shard)
        else:

            def part_of(n: int) -> _Part:
                piece = self._piece(self._chunks[n]) if self._pieces is None else self._pieces[n]
                return _evaluate(piece, learned, draw, n_draws)

            parts = self._in_order(part_of)
        value, gradient, n = 0.0, np.zeros(len(learned)), 0
        for part in parts:
            value += part.value * part.n
            gradient[part.at] += part.gradient * part.n
            n += part.n
        gradient /= n
        return value / n, gradient


def _chunks(problem: Problem, size: int) -> list[NDArray[np.intp]]:
    """The examples of each chunk; of a store, from one shard."""
    if problem.data.shards is None:
        runs = [np.arange(len(problem.data))]
    else:
        runs = [indices for _, indices in examples_of_shards(problem)]
    return [run[a : a + size] for run in runs for a in range(0, len(run), size)]


def _evaluate(chunk: Piece, w: Floats, draw: int, n_draws: int) -> _Part:
    return _Part(*chunk.value_and_grad(w[chunk.at], draw, n_draws), chunk.at, len(chunk.problem.data))


def _evaluate_shard(shard: ShardProblem, size: int, w: Floats, draw: int, n_draws: int) -> list[_Part]:
    problem = shard.open()
    with one_blas_thread():
        pieces = (Piece.of(problem, chunk) for chunk in _chunks(problem, size))
        found = [_evaluate(piece, w, draw, n_draws) for piece in pieces]
    problem.data.release()
    return found
