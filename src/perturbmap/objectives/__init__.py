"""Objectives: what learning maximises, in potential space."""

from perturbmap.objectives.base import Objective, Targets
from perturbmap.objectives.log_likelihood import LogLikelihood
from perturbmap.objectives.marginal_log_likelihood import MarginalLogLikelihood

__all__ = ["LogLikelihood", "MarginalLogLikelihood", "Objective", "Targets"]
