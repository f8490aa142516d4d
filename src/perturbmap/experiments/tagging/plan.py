"""What the tagging experiment compares: methods, how each is learned, and how much is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perturbmap.objectives import ExactLogLikelihood, LogLikelihood, MarginalLogLikelihood, Objective, StructuredHinge
from perturbmap.solvers import BCFW, LBFGS, DoubleSGD, PolynomialAveraging, Solver


@dataclass(frozen=True)
class Method:
    """A row of the table: what is learned, and where the search for its penalty begins.

    objective : None for crfsuite itself
    first_c2 : of the penalty ``c2 ||w||^2`` beside the sum over sentences, which is ``l2 = 2 c2 / N``
    """

    name: str
    objective: Objective | None
    first_c2: float = 0.1

    @property
    def has_probabilities(self) -> bool:
        """Whether what is learned are probabilities: a margin is none."""
        return self.objective is None or not self.objective.is_hinge


#: The peer, our version of what it does, and the method that learns from unknown tags.
PEER, BASE, OURS = "crfsuite", "crf", "marginal"

METHODS: dict[str, Method] = {
    PEER: Method("python-crfsuite", None),
    BASE: Method("CRF", ExactLogLikelihood()),
    "ssvm": Method("structured SVM", StructuredHinge()),
    "perturb-map": Method("perturb&MAP (Algorithm 1)", LogLikelihood()),
    OURS: Method("marginal perturb&MAP (Algorithm 2)", MarginalLogLikelihood()),
}
#: Penalties, and weights of the sentences that are not fully labelled, to choose from.
C2S, KAPPAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0), (0.3, 1.0, 3.0, 10.0)
FIRST_KAPPA = 3.0


@dataclass(frozen=True)
class Effort:
    """How much is done.

    n_passes, min_steps : of `DoubleSGD`
    n_hinge_passes : of the structured SVM at most, which stops at a gap of 1 %
    tolerance : of `LBFGS`
    n_perturbations : from which marginals are estimated
    n_train : sentences to learn from; None for all
    is_searched : whether features, penalties and kappa are chosen by the sentences of dev
    """

    n_passes: int = 10
    min_steps: int = 2000
    n_hinge_passes: int = 10
    tolerance: float = 0.001
    n_perturbations: int = 20
    n_train: int | None = None
    is_searched: bool = True

    def solver(self, objective: Objective) -> Solver[Any]:
        """The solver that suits the objective."""
        if objective.is_hinge:
            return BCFW(0.01, self.n_hinge_passes, averaging=PolynomialAveraging(1))
        if objective.is_perturbed:
            return DoubleSGD(self.n_passes, min_steps=self.min_steps)
        return LBFGS(self.tolerance)


QUICK = Effort(
    n_passes=3, min_steps=200, n_hinge_passes=5, tolerance=0.01, n_perturbations=5, n_train=400, is_searched=False
)
