"""What the handwriting experiment compares: methods, how each is solved, and the paper's numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perturbmap.objectives import (
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    LogLikelihood,
    MarginalLogLikelihood,
    Objective,
    StructuredHinge,
)
from perturbmap.solvers import BCFW, LBFGS, DoubleSGD, PolynomialAveraging, Solver


@dataclass(frozen=True)
class Method:
    """A row of the table: what is learned, how, where the search for l2 begins, and the paper's mean and spread."""

    name: str
    objective: Objective
    solvers: dict[str, Solver[Any]]
    first_l2: dict[str, float]
    paper: dict[str, tuple[float, float]] = field(default_factory=dict)


def _frank_wolfe(n_passes: int) -> BCFW:
    averaging = PolynomialAveraging(1)
    return BCFW(0.01, n_passes, batch_size=8, gap_sampling=False, pairwise_steps=False, averaging=averaging)


#: By protocol; and shorter, for a quick look. On the 6,251 words of "large", L-BFGS takes 280 to 360 passes; 30 of
#: small steps end where the objective is 1 % less, and read as well.
_EXACT: dict[str, Solver[Any]] = {"small": LBFGS(0.01), "large": DoubleSGD(30), "quick": LBFGS(0.01)}
_BCFW: dict[str, Solver[Any]] = {"small": _frank_wolfe(100), "large": _frank_wolfe(60), "quick": _frank_wolfe(30)}
_SGD: dict[str, Solver[Any]] = {"small": DoubleSGD(100), "large": DoubleSGD(30), "quick": DoubleSGD(30)}

METHODS: dict[str, Method] = {
    "crf": Method(
        "CRF",
        ExactLogLikelihood(),
        _EXACT,
        {"small": 3e-4, "large": 1e-5, "quick": 9.5e-5},
        {"small": (19.5, 0.4), "large": (13.1, 0.8)},
    ),
    "ssvm": Method(
        "structured SVM",
        StructuredHinge(),
        _BCFW,
        {"small": 1e-3, "large": 1e-5, "quick": 1e-3},
        {"small": (19.5, 0.4), "large": (12.0, 1.1)},
    ),
    "perturb-map": Method(
        "perturb&MAP",
        LogLikelihood(),
        _SGD,
        {"small": 1e-4, "large": 1e-5, "quick": 1e-3},
        {"small": (19.1, 0.3), "large": (12.5, 1.1)},
    ),
    "marginal": Method(
        "marginal perturb&MAP",
        MarginalLogLikelihood(),
        _SGD,
        {"small": 3.2e-4, "large": 3.2e-6, "quick": 3.2e-4},
        {"small": (19.1, 0.3), "large": (12.8, 1.2)},
    ),
    "exact-marginal": Method(
        "exact marginal likelihood",
        ExactMarginalLogLikelihood(),
        _EXACT,
        {"small": 9.5e-5, "large": 1e-5, "quick": 9.5e-5},
    ),
}
