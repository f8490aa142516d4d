"""What an estimator is set to: its parts, with their defaults, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from perturbmap.inference import Decoding
from perturbmap.models import Model, SequenceModel
from perturbmap.objectives import MarginalLogLikelihood, Objective
from perturbmap.solvers import BCFW, LBFGS, DoubleSGD, Solver
from perturbmap.structures import Chain, Structure
from perturbmap.support.checks import check_count, check_number
from perturbmap.support.parts import Part
from perturbmap.task_losses import TaskLoss

# Fewer examples than this are learned from by L-BFGS, if they can be. Objectives on fresh noise and CPU seconds of
# LBFGS() and of DoubleSGD() with 2,000 steps: 5 horses (weighted, l2 = 3e-3) -.1268 in 1.4 and -.1261 in 2.6, 14
# horses -.1484 in 2.7 and -.1476 in 11, 50 horses -.2002 in 16 and -.1999 in 11; 30 words (l2 = 1e-4) -.088 in 1.2
# and -.093 in 1.1, 100 words -.389 in 7.3 and -.395 in 1.5.
_FEW = 32
# Steps that a fit takes at least where nobody says how. With 1,000 and 3,000, 300 words end at -1.44 and -1.38, 147
# horses at -.2366 and -.2357.
_MIN_STEPS = 2000


def default_solver(objective: Objective, n_examples: float) -> Solver[Any]:
    """The solver of a fit that is given none.

    Frank-Wolfe for a hinge; L-BFGS for what is exact, and for a few examples under noise; else stochastic gradients.
    """
    if objective.is_hinge:
        return BCFW()
    is_small = objective.is_smooth_on_average and n_examples < _FEW
    if is_small or (objective.is_smooth and not objective.is_perturbed):
        return LBFGS()
    return DoubleSGD(min_steps=_MIN_STEPS)


@final
@dataclass(frozen=True, eq=False)
class Setting:
    """The parts of an estimator and its other parameters, with defaults filled in; see `StructuredPredictor`."""

    model: Model
    structure: Structure
    objective: Objective
    solver: Solver[Any] | None
    task_loss: TaskLoss
    decoding: Decoding
    l2: float
    unlabelled_weight: float
    hard_labels: bool
    calibration: int | None
    n_perturbations: int
    n_jobs: int | None

    @classmethod
    def resolve(cls, parameters: dict[str, Any]) -> Setting:
        """The setting of an estimator's parameters; None is the default of a part. TypeError names a wrong one."""
        objective = _part(parameters, "objective", Objective, MarginalLogLikelihood)
        loss_name, loss = "task_loss", parameters["task_loss"]
        if loss is None:
            loss_name, loss = "loss of the objective", objective.task_loss
        _check_kind(loss_name, loss, TaskLoss, "Hamming()")
        _check_kind("decoding", parameters["decoding"], Decoding, "Decoding.MAP")
        return cls(
            _part(parameters, "model", Model, SequenceModel),
            _part(parameters, "structure", Structure, Chain),
            objective,
            _part(parameters, "solver", Solver, lambda: None),
            loss,
            parameters["decoding"],
            parameters["l2"],
            parameters["unlabelled_weight"],
            parameters["hard_labels"],
            parameters["calibration"],
            parameters["n_perturbations"],
            parameters["n_jobs"],
        )

    def solver_for(self, n_examples: float) -> Solver[Any]:
        """The solver that was given, or the default for so many examples."""
        return default_solver(self.objective, n_examples) if self.solver is None else self.solver

    @property
    def loss_of_decoding(self) -> TaskLoss | None:
        """The loss whose least expected value is predicted; None where another labelling is."""
        is_aware = self.decoding is Decoding.LOSS_AWARE and self.task_loss.sums_over_sites
        return self.task_loss if is_aware else None

    def check(self) -> None:
        """Raises an error where a parameter makes no sense, or two parts do not go together; changes nothing."""
        check_number("l2", self.l2)
        check_number("unlabelled_weight", self.unlabelled_weight, or_equal=True)
        check_count("n_perturbations", self.n_perturbations)
        if self.calibration is not None and (
            not isinstance(self.calibration, (int, np.integer)) or isinstance(self.calibration, bool)
        ):
            raise ValueError(f"calibration must be a number of folds, or None, but is {self.calibration!r}.")
        if self.n_jobs is not None and (
            not isinstance(self.n_jobs, (int, np.integer)) or isinstance(self.n_jobs, bool) or self.n_jobs == 0
        ):
            raise ValueError(
                f"n_jobs must be a number of processes, -1 for one per core, or None, not {self.n_jobs!r}."
            )
        self.objective.check(self.structure)


_EXAMPLES = {
    "model": "SequenceModel()",
    "structure": "Chain()",
    "objective": "MarginalLogLikelihood(Hamming())",
    "solver": "DoubleSGD()",
}


def _part(parameters: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    part = default() if parameters[name] is None else parameters[name]
    if part is not None:
        _check_kind(name, part, kind, _EXAMPLES[name])
    return part


def _check_kind(name: str, part: Any, kind: type, example: str) -> None:
    if not isinstance(part, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, such as {example}, but is {part!r}.")
    if isinstance(part, Part):
        part.get_params(deep=False)  # says so where the constructor does not store its parameters
