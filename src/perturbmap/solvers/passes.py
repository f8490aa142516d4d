"""Which examples a stochastic step looks at: all of them in turn, those that count more in more steps than others."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.solvers.problem import Problem


class Batch(NamedTuple):
    """The examples of a step, and how much each counts there; None: by its own weight."""

    indices: NDArray[np.intp]
    weights: Floats | None = None


@final
class Passes:
    """The order of the examples in each pass: shuffled.

    Where all weights are equal, a pass has each of the n examples once. Where they are not, as in phase 2 of
    Algorithm 3, with a dozen masks among hundreds of guesses, it has example i about ``n weights[i] / sum(weights)``
    times, rounded up or down at random (systematic sampling), and all draws count the same: the gradient of a step
    has the same mean as that of examples drawn evenly and multiplied by their weights, and far less variance, since
    no step depends on whether a heavy example happens to be in it. An example that is drawn twice in a step is
    solved once and counts twice.

    On disk, shards are shuffled, and the examples of each, so that disks see long reads.
    """

    def __init__(self, problem: Problem) -> None:
        self._seed, self._n, self._shards = problem.seed, len(problem.data), problem.data.shards
        self._orders: dict[int, NDArray[np.intp]] = {}
        weights = problem.targets.weights
        self._mean = float(weights.mean()) if len(weights) else 0.0
        self._shares = None if self._mean == 0 or np.ptp(weights) == 0 else weights / self._mean

    def batch(self, h: int, size: int) -> Batch:
        """The examples of step h, the first being 1: the next ones, from one pass into the next.

        Where weights differ and a step has room for all examples, it has each of them, with its weight.
        """
        if self._shares is not None and size >= self._n:
            return Batch(np.arange(self._n))
        first, last = (h - 1) * size, h * size - 1
        indices = self.order(first // self._n)[first % self._n : first % self._n + size]
        if last // self._n != first // self._n:
            indices = np.concatenate([indices, self.order(last // self._n)[: last % self._n + 1]])
        if self._shares is None:
            return Batch(indices)
        each, counts = np.unique(indices, return_counts=True)
        return Batch(each, np.asarray(counts * (self._mean * len(each) / size), dtype=np.float64))

    def order(self, number: int) -> NDArray[np.intp]:
        """The draws of one pass; kept while its steps may ask again."""
        if number not in self._orders:
            self._orders = {n: order for n, order in self._orders.items() if n == number - 1}
            rng = np.random.default_rng([self._seed, number])
            order = rng.permutation(self._n)
            if self._shares is not None:
                at = np.searchsorted(np.cumsum(self._shares[order]), rng.random() + np.arange(self._n), side="right")
                order = rng.permutation(order[np.minimum(at, self._n - 1)])
            if self._shards is not None:
                names = np.unique(self._shards)
                place = np.random.default_rng([self._seed, number, 1]).permutation(len(names))
                rank = place[np.searchsorted(names, self._shards[order])]
                order = order[np.argsort(rank, kind="stable")]
            self._orders[number] = order
        return self._orders[number]
