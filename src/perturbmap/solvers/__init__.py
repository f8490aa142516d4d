"""Solvers: how an objective is maximised."""

from perturbmap.solvers.adaptive_step import AdaptiveStep
from perturbmap.solvers.averaging import (
    Averaging,
    NoAveraging,
    PolynomialAveraging,
    SuffixAveraging,
    UniformAveraging,
)
from perturbmap.solvers.base import Solver, State
from perturbmap.solvers.bcfw import BCFW
from perturbmap.solvers.double_sgd import DoubleSGD
from perturbmap.solvers.lbfgs import LBFGS
from perturbmap.solvers.plain_step import PlainStep
from perturbmap.solvers.problem import Problem
from perturbmap.solvers.steps import Step

__all__ = [
    "BCFW",
    "LBFGS",
    "AdaptiveStep",
    "Averaging",
    "DoubleSGD",
    "NoAveraging",
    "PlainStep",
    "PolynomialAveraging",
    "Problem",
    "Solver",
    "State",
    "Step",
    "SuffixAveraging",
    "UniformAveraging",
]
