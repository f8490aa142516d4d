"""Averages of the iterates of stochastic gradient descent."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

from sklearn.base import BaseEstimator


class Averaging(BaseEstimator):
    """A running average ``a_h = (1 - rho_h) a_{h-1} + rho_h w_h``."""

    @abstractmethod
    def rate(self, h: int, n_iter: int) -> float:
        """Rho of step h = 1, 2, ... of n_iter; 1 forgets what was before."""


def check_averaging(averaging: object) -> None:
    """None, for the default, or an `Averaging`."""
    if averaging is not None and not isinstance(averaging, Averaging):
        raise TypeError(f"averaging must be an Averaging, such as PolynomialAveraging(), but is {averaging!r}.")


@final
class NoAveraging(Averaging):
    """The last iterate."""

    def rate(self, h: int, n_iter: int) -> float:
        """1."""
        return 1.0


@final
class UniformAveraging(Averaging):
    """The mean of all iterates."""

    def rate(self, h: int, n_iter: int) -> float:
        """1 / h."""
        return 1.0 / h


@final
class SuffixAveraging(Averaging):
    """The mean of the last ``fraction`` of the iterates (Rakhlin, Shamir and Sridharan 2012)."""

    def __init__(self, fraction: float = 0.5) -> None:
        self.fraction = fraction

    def rate(self, h: int, n_iter: int) -> float:
        """1 / (h - start), and 1 before the suffix begins."""
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be in (0, 1], but is {self.fraction}.")
        start = n_iter - max(1, round(self.fraction * n_iter))
        return 1.0 if h <= start else 1.0 / (h - start)


@final
class PolynomialAveraging(Averaging):
    """Later iterates weigh more, step h about ``h ** power`` (Shamir and Zhang 2013)."""

    def __init__(self, power: float = 3.0) -> None:
        self.power = power

    def rate(self, h: int, n_iter: int) -> float:
        """(1 + power) / (h + power)."""
        if not self.power >= 0:
            raise ValueError(f"power must not be negative, but is {self.power}.")
        return (1.0 + self.power) / (h + self.power)
