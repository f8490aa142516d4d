"""Averages of the iterates of stochastic gradient descent."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

from perturbmap.support.parts import Part


class Averaging(Part):
    """A running average of the weights ``w_h`` of stochastic steps, ``a_h = (1 - rho_h) a_{h-1} + rho_h w_h``."""

    @abstractmethod
    def rate(self, h: int, n_iter: int) -> float:
        """The rate rho of step h = 1, 2, ..., n_iter; a rate of 1 forgets what was before."""


def check_averaging(averaging: object) -> None:
    """Raises TypeError for anything but an `Averaging`, or None for the default."""
    if averaging is not None and not isinstance(averaging, Averaging):
        raise TypeError(f"averaging must be an Averaging, such as PolynomialAveraging(), but is {averaging!r}.")


@final
class NoAveraging(Averaging):
    """Uses the last iterate, the weights after the last step: nothing is averaged."""

    def rate(self, h: int, n_iter: int) -> float:
        """The rate is 1: nothing is averaged."""
        return 1.0


@final
class UniformAveraging(Averaging):
    """Uses the mean of all iterates (the weights after each step), each with the same weight."""

    def rate(self, h: int, n_iter: int) -> float:
        """The rate of step h, ``rho = 1 / h``."""
        return 1.0 / h


@final
class SuffixAveraging(Averaging):
    """Uses the mean of the last ``fraction`` of the iterates (Rakhlin, Shamir and Sridharan 2012).

    The iterates are the weights after each step; ``fraction`` is above 0 and at most 1.
    """

    def __init__(self, fraction: float = 0.5) -> None:
        self.fraction = fraction

    def rate(self, h: int, n_iter: int) -> float:
        """The rate of step h, ``rho = 1 / (h - start)``, and 1 before the suffix begins."""
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be in (0, 1], but is {self.fraction}.")
        start = n_iter - max(1, round(self.fraction * n_iter))
        return 1.0 if h <= start else 1.0 / (h - start)


@final
class PolynomialAveraging(Averaging):
    """Uses a mean in which later iterates weigh more, step h about ``h ** power`` (Shamir and Zhang 2013).

    The iterates are the weights after each step. A ``power`` of 0 is a plain mean; a larger one forgets the first
    steps sooner.
    """

    def __init__(self, power: float = 3.0) -> None:
        self.power = power

    def rate(self, h: int, n_iter: int) -> float:
        """The rate of step h, ``rho = (1 + power) / (h + power)``."""
        if not self.power >= 0:
            raise ValueError(f"power must not be negative, but is {self.power}.")
        return (1.0 + self.power) / (h + self.power)
