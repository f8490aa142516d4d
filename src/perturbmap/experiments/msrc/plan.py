"""What the MSRC experiment compares: methods, how each is learned, and how much is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perturbmap.inference.decoding import Decoding
from perturbmap.objectives import ExactLogLikelihood, LogLikelihood, MarginalLogLikelihood, Objective, StructuredHinge
from perturbmap.potentials import Floats
from perturbmap.solvers import BCFW, LBFGS, DoubleSGD, PolynomialAveraging, Solver
from perturbmap.task_losses import Hamming, WeightedHamming

DECODINGS = (Decoding.MAP, Decoding.LOSS_AWARE)


@dataclass(frozen=True)
class Method:
    """A row of the table: what is learned, and with edges or without.

    quick_l2 : the l2 that is taken without a search
    has_costs : whether the objective has the costs of classes for its loss, instead of what stands here
    """

    name: str
    objective: Objective
    quick_l2: float
    has_edges: bool = True
    has_costs: bool = False

    def objective_under(self, costs: Floats) -> Objective:
        """The objective with what it costs to miss a pixel of each class, where it takes a loss of the kind."""
        if not self.has_costs:
            return self.objective
        return type(self.objective)(WeightedHamming(costs))  # type: ignore[call-arg]  # those with costs take a loss


#: The method without edges, which the others are compared with.
BASE = "unaries"

METHODS: dict[str, Method] = {
    BASE: Method("unaries alone", ExactLogLikelihood(), 0.01, has_edges=False),
    "ssvm": Method("structured SVM", StructuredHinge(), 0.03, has_costs=True),
    "perturb-map": Method("perturb&MAP", LogLikelihood(), 0.1),
    "marginal": Method("marginal perturb&MAP", MarginalLogLikelihood(Hamming()), 0.03),
    "weighted": Method("weighted marginal perturb&MAP", MarginalLogLikelihood(), 0.3, has_costs=True),
}

#: The l2 to choose from. One list serves all methods, since every objective counts a superpixel as 1 on average
#: (`class_costs`).
L2S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Effort:
    """How much is done.

    n_steps : of `DoubleSGD`, with 16 photos each
    n_passes : of the structured SVM at most, which stops at a gap of 1 %
    tolerance : of `LBFGS`
    n_perturbations : from which marginals are estimated
    is_searched : whether l2 is chosen by the photos of validation
    """

    n_steps: int = 400
    n_passes: int = 20
    tolerance: float = 0.005
    n_perturbations: int = 10
    is_searched: bool = True

    def l2s(self, method: str) -> tuple[float, ...]:
        """Those among which one is chosen."""
        return L2S if self.is_searched else (METHODS[method].quick_l2,)

    def solver(self, objective: Objective) -> Solver[Any]:
        """The solver that suits the objective."""
        if objective.is_hinge:
            return BCFW(0.01, self.n_passes, averaging=PolynomialAveraging(1))
        return DoubleSGD(1, min_steps=self.n_steps) if objective.is_perturbed else LBFGS(self.tolerance)


QUICK = Effort(n_steps=300, n_passes=10, tolerance=0.01, n_perturbations=5, is_searched=False)
