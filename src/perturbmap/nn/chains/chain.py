"""What a chain answers about tensors: totals with their gradient, pinned values, best labellings and samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, final

import torch
from torch import Tensor

from perturbmap.nn.chains import plain
from perturbmap.nn.chains.sweep import Key, Sweep, Way, Weights


@final
@dataclass(frozen=True, eq=False)
class Slopes:
    """The gradient of a number.

    unary : (n, n_sites, n_labels)
    pairwise : (n_labels, n_labels); or one table for each edge, (n, n_edges, n_labels, n_labels)
    """

    unary: Tensor
    pairwise: Tensor

    def add_(self, other: Slopes) -> Slopes:
        """Adds slopes to these, in place."""
        self.unary.add_(other.unary)
        self.pairwise.add_(other.pairwise)
        return self

    def scale_(self, factor: Tensor) -> Slopes:
        """Multiplies these by a number, in place."""
        self.unary.mul_(factor)
        self.pairwise.mul_(factor)
        return self


@final
@dataclass(frozen=True, eq=False)
class TensorChain:
    """A batch of chains but for their unary potentials ``x``, which its questions bring along.

    tables : (n_labels, n_labels), or (n_examples, n_edges, n_labels, n_labels); -inf where a pair is forbidden
    rims : (2, n_labels), zero or -inf where a chain may not begin or end with a label; None if it may with any
    lengths : (n_examples,), int32; None if all are as long as x
    """

    tables: Tensor
    rims: Tensor | None
    lengths: Tensor | None

    def part(self, some: slice) -> TensorChain:
        """Some of the chains of the batch, with their tables and lengths."""
        tables = self.tables if self.tables.dim() == 2 else self.tables[some]
        return TensorChain(tables, self.rims, None if self.lengths is None else self.lengths[some])

    def total(
        self, x: Tensor, given: Tensor | None = None, *, sums: bool, keep: bool, labels: Tensor | None = None
    ) -> Total:
        """``log sum_y exp f(y)`` or ``max_y f(y)`` over the labellings that have the given labels.

        ``keep`` says whether slopes will be asked for. Nothing is given where labels are to be scored too.
        """
        sweep = Sweep(x, self.tables, self.rims, self.lengths, given, Way.BACKWARDS, sums)
        return Total(sweep, *route(x).messages(sweep, keep=keep, labels=labels))

    def is_possible(self, x: Tensor, given: Tensor | None = None) -> bool:
        """Whether each chain has a labelling with the given labels; waits for the device."""
        return bool(self.total(x, given, sums=False, keep=False).values.isfinite().all())

    def best(self, x: Tensor) -> Tensor:
        """The best labels, (n, n_sites), int64; what stands beyond an example's length means nothing."""
        return self.total(x, sums=False, keep=True).slopes(Weights(None)).unary.argmax(2)

    def pinned(self, x: Tensor, given: Tensor | None = None, *, sums: bool) -> PinnedTensors:
        """All pinned problems: `PinnedTensors.others` plus x is ``(+) { f(y) : y_d = k }``, up to a constant."""
        return PinnedTensors(Sweep(x, self.tables, self.rims, self.lengths, given, Way.BOTH, sums))

    def perturbed(self, x: Tensor, key: Key, n_draws: int = 1) -> Tensor:
        """``x + z`` with the noise of the key, (n_draws * n_examples, n_sites, n_labels)."""
        perturbed: Tensor = route(x).perturbed(x, self.lengths, key, n_draws)
        return perturbed


@final
class Total:
    """Totals of a batch of chains, (n,), in float64; by how much they exceed the scores of labels; their slopes."""

    def __init__(self, sweep: Sweep, messages: Tensor, values: Tensor, excess: Tensor) -> None:
        self._sweep, self._messages = sweep, messages
        self.values, self.excess = values, excess

    def slopes(self, weights: Weights, less: Tensor | None = None) -> Slopes:
        """Those of ``sum_n weights[n] (total[n] - f_n(less))``, with labels ``less``; can be asked for once.

        Marginals, or the indicators of the maximiser; ties go to the smallest label, from the first site on.
        """
        unary, crossing = route(self._sweep.x).flow(self._sweep, self._messages, weights, labels=less)
        return Slopes(unary, _over_examples(crossing, len(unary)))

    def sample(self, key: Key, n_draws: int) -> Tensor:
        """Labellings drawn from ``exp f``, of totals that are sums and finite, (n, n_sites, n_draws), int64.

        What stands beyond an example's length means nothing.
        """
        labels: Tensor = route(self._sweep.x).sample(self._sweep, self._messages, key, n_draws)
        return labels


@final
class PinnedTensors:
    """Answers to all pinned problems of a batch of chains."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep, self._route = sweep, route(sweep.x)
        self._messages: Tensor = self._route.messages(sweep, keep=True)[0]

    @property
    def others(self) -> Tensor:
        """What all other sites and the edges add to each label of a site; not defined beyond an example's length."""
        left, right = self._messages.chunk(2)
        return (left + right).sub_(self._sweep.x, alpha=2)

    def toward(self, x: Tensor, aim: Tensor, *, integrate: bool, out: Tensor) -> tuple[Tensor, Tensor]:
        """The values of `plain.toward`, and the weights of the pins, which are in ``out``."""
        values: Tensor = self._route.toward(self._sweep, self._messages, x, aim, integrate, out)
        return values, out

    def slopes(self, w: Tensor, weights: Weights) -> Slopes:
        """``sum_n weights[n] sum_{d,k} w[d, k] * marginals, or maximiser, given y_d = k``; can be asked for once.

        w is zero beyond an example's length; the slopes take its place.
        """
        unary, crossing = self._route.flow(self._sweep, self._messages, weights, w)
        left, right = unary.chunk(2)
        return Slopes(torch.add(left, right, out=w), _over_examples(crossing, len(w)))


@cache
def _kernels() -> Any:
    try:
        from perturbmap.nn.chains import kernels
    except ImportError:  # no Triton
        return None
    return kernels


def route(x: Tensor) -> Any:
    """The Triton kernels where they can work on the tensor, else plain torch operations."""
    kernels = _kernels() if x.is_cuda else None
    return plain if kernels is None or x.shape[2] > kernels.MOST_LABELS else kernels


def _over_examples(crossing: Tensor, n: int) -> Tensor:
    """What crosses the edges of all rows: summed where one table is shared, else over both ways."""
    if crossing.dim() == 3:
        return crossing.sum(0)
    return crossing if len(crossing) == n else crossing[:n] + crossing[n:]
