"""Models: features to potentials, and the adjoint."""

from perturbmap.models.base import Model
from perturbmap.models.graph import GraphModel
from perturbmap.models.matching import MatchingModel
from perturbmap.models.sequence import SequenceModel

__all__ = ["GraphModel", "MatchingModel", "Model", "SequenceModel"]
