"""Structures: sets of labellings over which potentials can be maximised, each in a file of its own."""

from perturbmap.structures.base import InfeasibleError, Maximum, Pinned, Structure
from perturbmap.structures.binary_graph import BinaryGraph
from perturbmap.structures.brute_force import BruteForce
from perturbmap.structures.from_solver import FromSolver
from perturbmap.structures.graph import Graph
from perturbmap.structures.matching import Matching
from perturbmap.structures.spans import Span
from perturbmap.structures.summable import SummableStructure
from perturbmap.structures.transitions import Transitions, bio_transitions
from perturbmap.structures.tree import Chain, Tree

__all__ = [
    "BinaryGraph",
    "BruteForce",
    "Chain",
    "FromSolver",
    "Graph",
    "InfeasibleError",
    "Matching",
    "Maximum",
    "Pinned",
    "Span",
    "Structure",
    "SummableStructure",
    "Transitions",
    "Tree",
    "bio_transitions",
]
