"""What a chain answers about tensors: totals, pinned values and best labellings, each with its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, final

from torch import Tensor

from perturbmap.nn.chains import plain
from perturbmap.nn.chains.sweep import Key, Sweep


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

        The slopes, if they are asked for, are marginals, or the indicators of the maximiser; ties go to the smallest
        label, from the first site on.
        """
        sweep = self.sweep(x, given, sums=sums, backwards=True)
        route = _route(x)
        m, values = route.messages(sweep, keep=slopes)
        return values, Slopes(*route.flow(sweep, m, None)) if slopes else None

    def best(self, x: Tensor) -> Tensor:
        """The best labels, (n, n_sites), int64; what stands beyond an example's length means nothing."""
        _, slopes = self.total(x, sums=False, slopes=True)
        assert slopes is not None
        return slopes.unary.argmax(2)

    def pinned(self, x: Tensor, given: Tensor | None = None, *, sums: bool) -> PinnedTensors:
        """All pinned problems: `PinnedTensors.others` and x are ``(+) { f(y) : y_d = k }`` but for a number per site."""
        return PinnedTensors(self, x, given, sums)

    def perturbed(self, x: Tensor, key: Key, n_draws: int = 1) -> Tensor:
        """``x + z`` with the noise of the key, (n_draws * n_examples, n_sites, n_labels)."""
        perturbed: Tensor = _route(x).perturbed(x, self.lengths, key, n_draws)
        return perturbed

    def sweep(self, x: Tensor, given: Tensor | None, *, sums: bool, backwards: bool) -> Sweep:
        """A sweep over potentials of one draw or of several."""
        n_draws = len(x) // len(self.lengths)
        return Sweep(x, self.tables, self.lengths.repeat(n_draws), given, backwards, sums)


@final
class PinnedTensors:
    """Answers to all pinned problems of a batch of chains."""

    def __init__(self, chain: TensorChain, x: Tensor, given: Tensor | None, sums: bool) -> None:
        self._sweeps = [chain.sweep(x, given, sums=sums, backwards=b) for b in (False, True)]
        self._route = _route(x)
        self._messages = [self._route.messages(sweep, keep=True)[0] for sweep in self._sweeps]

    @property
    def others(self) -> Tensor:
        """What all other sites and the edges add to each label of a site; not defined beyond an example's length."""
        left, right = self._messages
        return left + right

    def slopes(self, w: Tensor) -> Slopes:
        """``sum_{d,k} w[d, k] * marginals, or maximiser, given y_d = k``; w is zero beyond an example's length."""
        (left, across), (right, back) = (
            self._route.flow(sweep, m, w) for sweep, m in zip(self._sweeps, self._messages, strict=True)
        )
        return Slopes(left.add_(right).sub_(w), across.add_(back))  # both hold w itself


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
