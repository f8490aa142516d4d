"""Models: features to potentials, and the adjoint."""

from perturbmap.models.base import LinearModel, Model
from perturbmap.models.graph import GraphModel
from perturbmap.models.matching import MatchingModel
from perturbmap.models.sequence import SequenceModel

__all__ = ["GraphModel", "LinearModel", "MatchingModel", "Model", "SequenceModel"]
