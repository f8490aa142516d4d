"""Structured prediction by perturb-and-MAP.

Probabilities, and later learning, for labels that depend on each other, wherever a best labelling can be found.
"""

from importlib.metadata import version

from perturbmap.graphs import grid_edges, potts
from perturbmap.inference import (
    COUNTED,
    INTEGRATED,
    PINNED,
    Estimate,
    MarginalMethod,
    decode,
    log_partition_bound,
    marginals,
    sample,
)
from perturbmap.perturbation import gumbel_noise, perturb
from perturbmap.potentials import Moments, Potentials
from perturbmap.structures import (
    BinaryGraph,
    BruteForce,
    Chain,
    ExactStructure,
    FromSolver,
    InfeasibleError,
    Matching,
    Pinned,
    Structure,
    Tree,
)

__version__ = version("perturbmap")

__all__ = [
    "COUNTED",
    "INTEGRATED",
    "PINNED",
    "BinaryGraph",
    "BruteForce",
    "Chain",
    "Estimate",
    "ExactStructure",
    "FromSolver",
    "InfeasibleError",
    "MarginalMethod",
    "Matching",
    "Moments",
    "Pinned",
    "Potentials",
    "Structure",
    "Tree",
    "decode",
    "grid_edges",
    "gumbel_noise",
    "log_partition_bound",
    "marginals",
    "perturb",
    "potts",
    "sample",
]
