"""Solvers: how an objective is maximised."""

from perturbmap.solvers.averaging import (
    Averaging,
    NoAveraging,
    PolynomialAveraging,
    SuffixAveraging,
    UniformAveraging,
)
from perturbmap.solvers.double_sgd import DoubleSGD, Problem, SGDState

__all__ = [
    "Averaging",
    "DoubleSGD",
    "NoAveraging",
    "PolynomialAveraging",
    "Problem",
    "SGDState",
    "SuffixAveraging",
    "UniformAveraging",
]
