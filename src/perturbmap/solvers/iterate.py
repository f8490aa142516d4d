"""The weights of stochastic gradient descent and their running average, of which a step changes a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Mask

#: Positions in w: some of them, each once, or all.
Positions = NDArray[np.intp] | NDArray[np.int32] | slice
# Factors that have become so small are multiplied out: the scale, which divides, loses three digits until then, and
# the rest, which weighs what is long past, none.
_LEAST_SCALE, _LEAST_REST = 1e-3, 1e-100


@final
class Iterate:
    """``w = scale * u`` and ``average = share * u + rest * lag`` (after Bottou's and Xu's averaged gradient descent).

    A step shrinks all weights, changes those that its examples have, and averages. Shrinking and averaging change
    the three numbers alone, whatever the length of w. Weights and average are multiplied out for whoever asks; what
    is kept stays as it is, so that looking changes no bit.
    """

    def __init__(self, u: Floats, lag: Floats, numbers: Floats) -> None:
        self._u, self._lag = u, lag
        self._scale, self._share, self._rest, self._squares = (float(number) for number in numbers)
        self._lags = bool(lag.any())

    @classmethod
    def of(cls, w: Floats, average: Floats) -> Iterate:
        """These weights and this average."""
        return cls(w.copy(), average - w, np.array([1.0, 1.0, 1.0, float((w * w).sum())]))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is kept, as named arrays; `from_arrays` brings it back."""
        return {
            "u": self._u,
            "lag": self._lag,
            "numbers": np.array([self._scale, self._share, self._rest, self._squares]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_weights: int) -> Iterate:
        """What `arrays` gave; ValueError where it is not that of so many weights."""
        u, lag, numbers = (np.array(arrays[name], dtype=np.float64) for name in ("u", "lag", "numbers"))
        if u.shape != (n_weights,) or lag.shape != (n_weights,) or numbers.shape != (4,):
            raise ValueError(f"the weights must be {n_weights} numbers.")
        if not all(np.isfinite(part).all() for part in (u, lag, numbers)) or numbers[0] <= 0 or numbers[2] <= 0:
            raise ValueError("the weights must be finite numbers.")
        return cls(u, lag, numbers)

    def weights(self) -> Floats:
        """The weights w, multiplied out."""
        return np.asarray(self._scale * self._u)

    def average(self) -> Floats:
        """The average of the weights."""
        return self._share * self._u + self._rest * self._lag if self._lags else self._share * self._u

    def at(self, positions: Positions) -> Floats:
        """The weights at some positions."""
        return self._scale * self._u[positions]

    @property
    def squared_norm(self) -> float:
        """The squared length of w: a running sum."""
        return max(0.0, self._scale * self._scale * self._squares)

    def step(
        self, positions: Positions, change: Floats, *, shrink: float, rate: float, nonnegative: Mask | None = None
    ) -> None:
        """``w <- shrink * w``, and a change at some positions; then ``average <- (1 - rate) average + rate * w``.

        nonnegative : which of the weights that are changed must not be negative
        """
        if self._scale * shrink < _LEAST_SCALE or self._rest * (1.0 - rate) < _LEAST_REST:
            self._multiply_out(shrink)
        else:
            self._scale *= shrink
        before = self._u[positions].copy()
        after = before + change / self._scale
        if nonnegative is not None:
            after[nonnegative] = np.maximum(0.0, after[nonnegative])
        self._u[positions] = after
        moved = after - before
        self._squares += float((moved * (after + before)).sum())
        if rate == 1.0:
            self._forget()
            return
        self._lag[positions] -= (self._share / self._rest) * moved
        self._lags = True
        self._share = (1.0 - rate) * self._share + rate * self._scale
        self._rest *= 1.0 - rate

    def _forget(self) -> None:
        """The average is the weights, whatever was before."""
        if self._lags:
            self._lag[:] = 0.0
            self._lags = False
        self._share, self._rest = self._scale, 1.0

    def _multiply_out(self, shrink: float) -> None:
        """Shrinks the weights, which are then u itself; the average stays."""
        average = self.average()
        self._u *= self._scale * shrink
        self._lag = average - self._u
        self._lags = True
        self._squares *= (self._scale * shrink) ** 2
        self._scale = self._share = self._rest = 1.0
