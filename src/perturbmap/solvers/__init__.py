"""Solvers: how an objective is maximised."""

from typing import Any

from perturbmap.objectives import Objective, StructuredHinge
from perturbmap.solvers.averaging import (
    Averaging,
    NoAveraging,
    PolynomialAveraging,
    SuffixAveraging,
    UniformAveraging,
)
from perturbmap.solvers.base import Problem, Solver, State
from perturbmap.solvers.bcfw import BCFW
from perturbmap.solvers.double_sgd import DoubleSGD
from perturbmap.solvers.lbfgs import LBFGS
from perturbmap.solvers.local_sgd import LocalSGD


def default_solver(objective: Objective) -> Solver[Any]:
    """Stochastic gradients for what is estimated, L-BFGS for what is exact, Frank-Wolfe for the hinge."""
    if isinstance(objective, StructuredHinge):
        return BCFW()
    return DoubleSGD(min_steps=1000) if objective.is_perturbed else LBFGS()


__all__ = [
    "BCFW",
    "LBFGS",
    "Averaging",
    "DoubleSGD",
    "LocalSGD",
    "NoAveraging",
    "PolynomialAveraging",
    "Problem",
    "Solver",
    "State",
    "SuffixAveraging",
    "UniformAveraging",
    "default_solver",
]
