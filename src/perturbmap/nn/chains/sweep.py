"""The sweeps over a chain that all its answers are made of, and their noise.

Messages go one way, weights come back. With ``(+)`` for log-sum-exp or for max,

- messages: ``a[t] = m[t] + x[t]``, ``m[t + 1, k] = (+)_i (a[t, i] + T[i, k])``, less their maximum over k; m[0] is
  zero, or what the rims say. The a are kept: they hold all that the way back needs to know of x.
- flow: ``F[t, i] = v w[t, i] + sum_k P(i | k) F[t + 1, k]``, where ``P(. | k)`` is the softmax, or the first argmax,
  of what the message to k at t + 1 was made of: the gradient of ``v sum(w * a)``.
- samples: messages go backwards, labels are drawn from the first site on, the next from the weights
  ``exp(T[y[t], k] + a[t + 1, k])``: it is the one at which their running sum exceeds u times all of them.

A sweep ``backwards`` is the same on the chain read from its last site, with the tables transposed. Sites beyond an
example's length are neither read nor written.

x : (n, n_sites, n_labels), in float32 or float64
tables : one for all edges, (n_labels, n_labels); or (n_tables, n_edges, n_labels, n_labels); -inf where forbidden
rims : (2, n_labels), added to the first and to the last site: -inf where a label may not stand; or None
lengths : (n_lengths,), int32; or None, if all chains are as long as the tensor
given : (n, n_sites), integers, a label or one below zero where any may be; or None

A sweep has n rows, and twice as many if it runs both ways: first all rows forwards, then all backwards. Row r belongs
to number ``r % n`` of x, and so on for tables and lengths: several draws of the same examples share them.

The noise is that of `perturbmap.gumbel_noise`, and the numbers u of samples, one for each site, are those of
`Chain.sample`, made where the tensors are: Philox4x32-10 with key = seed and counter = (block, draw, stream), as in
the compiled core; 52 bits give u, and ``-log(-log u) - c`` with Euler's
constant c is taken in double precision, by a logarithm that differs from the core's in the last bits.

References.  Forward filtering, backward smoothing: Rabiner, A tutorial on hidden Markov models, Proc. IEEE 1989.
Backward filtering, forward sampling: Chib, Calculating posterior distributions and modal estimates in Markov mixture
models, Journal of Econometrics 1996.
Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, final

from torch import Tensor

#: The bits of a 32-bit word.
WORD = 0xFFFFFFFF


class Way(Enum):
    """Which way messages go along the chains."""

    FORWARDS = "forwards"
    BACKWARDS = "backwards"
    BOTH = "both"


class Sweep(NamedTuple):
    """What both sweeps are told: the potentials, which way, and whether labellings are summed or maximised over."""

    x: Tensor
    tables: Tensor
    rims: Tensor | None
    lengths: Tensor | None
    given: Tensor | None
    way: Way
    sums: bool

    @property
    def n_rows(self) -> int:
        """The number of rows of the results."""
        n = self.x.shape[0]  # len() of a tensor takes longer
        return 2 * n if self.way is Way.BOTH else n

    @property
    def first_backwards(self) -> int:
        """The first row that runs backwards; those after it do so too."""
        n = self.n_rows
        return n if self.way is Way.FORWARDS else 0 if self.way is Way.BACKWARDS else n // 2


class Weights(NamedTuple):
    """One for each example, over a divisor; ``each`` is (n,), one number for all, or None for 1."""

    each: Tensor | None
    divisor: int = 1

    def over(self, divisor: int) -> Weights:
        """The same over another divisor."""
        return Weights(self.each, self.divisor * divisor)

    def part(self, some: slice) -> Weights:
        """The weights of some of the examples."""
        return self if self.each is None or self.each.dim() == 0 else Weights(self.each[some], self.divisor)


@final
@dataclass(frozen=True)
class Key:
    """What noise is a function of, besides the example and the place: a seed, the first draw, a domain's number."""

    seed: int
    first_draw: int
    domain: int

    @property
    def words(self) -> tuple[int, int, int, int]:
        """Low and high word of the seed, the draw, high word of the streams; each as a signed number of 32 bits."""
        whole = (self.seed & WORD, self.seed >> 32, self.first_draw & WORD, self.domain << 16 & WORD)
        return tuple(word - 2**32 if word >= 2**31 else word for word in whole)  # type: ignore[return-value]
