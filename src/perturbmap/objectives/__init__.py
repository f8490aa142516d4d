"""Objectives: what learning maximises, in potential space."""

from perturbmap.objectives.base import ExactObjective, LabellingObjective, Objective, SiteObjective
from perturbmap.objectives.exact_log_likelihood import ExactLogLikelihood
from perturbmap.objectives.exact_marginal_log_likelihood import ExactMarginalLogLikelihood
from perturbmap.objectives.log_likelihood import LogLikelihood
from perturbmap.objectives.marginal_log_likelihood import MarginalLogLikelihood
from perturbmap.objectives.structured_hinge import StructuredHinge
from perturbmap.objectives.targets import Targets

__all__ = [
    "ExactLogLikelihood",
    "ExactMarginalLogLikelihood",
    "ExactObjective",
    "LabellingObjective",
    "LogLikelihood",
    "MarginalLogLikelihood",
    "Objective",
    "SiteObjective",
    "StructuredHinge",
    "Targets",
]
