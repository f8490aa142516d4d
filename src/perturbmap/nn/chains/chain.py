"""What a chain answers about tensors: totals, pinned values and best labellings, each with its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, final

import torch
from torch import Tensor

from perturbmap.nn.chains import plain
from perturbmap.nn.chains.sweep import Key, Sweep, Way


@final
@dataclass(frozen=True, eq=False)
class Slopes:
    """The gradient of one number for each example.

    unary : (n, n_sites, n_labels)
    pairwise : (n, n_labels, n_labels), or one table for each edge, (n, n_edges, n_labels, n_labels)
    """

    unary: Tensor
    pairwise: Tensor

    def __add__(self, other: Slopes) -> Slopes:
        return Slopes(self.unary + other.unary, self.pairwise + other.pairwise)

    def __sub__(self, other: Slopes) -> Slopes:
        return Slopes(self.unary - other.unary, self.pairwise - other.pairwise)

    def scaled(self, weights: Tensor) -> Slopes:
        """Each example's slopes times its weight."""
        each = weights.to(self.unary.dtype)
        return Slopes(*(t * each.reshape(-1, *[1] * (t.dim() - 1)) for t in (self.unary, self.pairwise)))

    def over_draws(self, n_examples: int) -> Slopes:
        """The sum over several draws of the same examples, which are one after another."""
        if len(self.unary) == n_examples:
            return self
        return Slopes(*(t.unflatten(0, (-1, n_examples)).sum(0) for t in (self.unary, self.pairwise)))


@final
@dataclass(frozen=True, eq=False)
class TensorChain:
    """A batch of chains but for their unary potentials ``x``, which its questions bring along.

    tables : (n_labels, n_labels), or (n_examples, n_edges, n_labels, n_labels)
    lengths : (n_examples,), int32
    """

    tables: Tensor
    lengths: Tensor

    def total(
        self, x: Tensor, given: Tensor | None = None, *, sums: bool, slopes: bool
    ) -> tuple[Tensor, Slopes | None]:
        """``log sum_y exp f(y)`` or ``max_y f(y)`` over the labellings that have the given labels, in float64.

        ``given`` may hold several lots of labels, one after another, each for all of x; so do the answers then. The
        slopes, if they are asked for, are marginals, or the indicators of the maximiser; ties go to the smallest
        label, from the first site on.
        """
        sweep, route = Sweep(x, self.tables, self.lengths, given, Way.BACKWARDS, sums), _route(x)
        m, values = route.messages(sweep, keep=slopes)
        return values, Slopes(*route.flow(sweep, m, None, spend=True)) if slopes else None

    def gain(self, x: Tensor, given: Tensor, *, sums: bool, slopes: bool) -> tuple[Tensor, Slopes | None]:
        """The total over the labellings that have the given labels minus that over all: both in one sweep."""
        both = torch.cat([given, torch.full_like(given, -1)])
        values, each = self.total(x, both, sums=sums, slopes=slopes)
        known, total = values.chunk(2)
        if each is None:
            return known - total, None
        (unary, other_unary), (pairwise, other_pairwise) = each.unary.chunk(2), each.pairwise.chunk(2)
        return known - total, Slopes(unary - other_unary, pairwise - other_pairwise)

    def best(self, x: Tensor) -> Tensor:
        """The best labels, (n, n_sites), int64; what stands beyond an example's length means nothing."""
        _, slopes = self.total(x, sums=False, slopes=True)
        assert slopes is not None
        labels: Tensor = slopes.unary.argmax(2)
        return labels

    def pinned(self, x: Tensor, given: Tensor | None = None, *, sums: bool) -> PinnedTensors:
        """All pinned problems: `PinnedTensors.others` plus x is ``(+) { f(y) : y_d = k }``, up to a constant."""
        return PinnedTensors(Sweep(x, self.tables, self.lengths, given, Way.BOTH, sums))

    def perturbed(self, x: Tensor, key: Key, n_draws: int = 1) -> Tensor:
        """``x + z`` with the noise of the key, (n_draws * n_examples, n_sites, n_labels)."""
        perturbed: Tensor = _route(x).perturbed(x, self.lengths, key, n_draws)
        return perturbed


@final
class PinnedTensors:
    """Answers to all pinned problems of a batch of chains."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep, self._route = sweep, _route(sweep.x)
        self._messages: Tensor = self._route.messages(sweep, keep=True)[0]

    @property
    def others(self) -> Tensor:
        """What all other sites and the edges add to each label of a site; not defined beyond an example's length."""
        left, right = self._messages.chunk(2)
        return left + right

    def slopes(self, w: Tensor, *, spend: bool = False) -> Slopes:
        """``sum_{d,k} w[d, k] * marginals, or maximiser, given y_d = k``; w is zero beyond an example's length.

        With ``spend``, memory is saved, and nothing can be asked again.
        """
        unary, pairwise = self._route.flow(self._sweep, self._messages, w, spend=spend)
        (left, right), (across, back) = unary.chunk(2), pairwise.chunk(2)
        return Slopes((left + right).sub_(w), across + back)  # both ways hold w itself


@cache
def _kernels() -> Any:
    try:
        from perturbmap.nn.chains import kernels
    except ImportError:  # no Triton
        return None
    return kernels


def _route(x: Tensor) -> Any:
    """The Triton kernels where they can work on the tensor, else plain torch operations."""
    kernels = _kernels() if x.is_cuda else None
    return plain if kernels is None or x.shape[2] > kernels.MOST_LABELS else kernels
