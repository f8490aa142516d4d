"""Structured prediction by perturb-and-MAP.

Probabilities and likelihood learning for labels that depend on each other, wherever a best labelling can be found.
"""

from importlib.metadata import version

from perturbmap.calibration import Calibration
from perturbmap.decoding import Decoding
from perturbmap.estimator import FitInterruptedWarning, StructuredPredictor
from perturbmap.examples import Example
from perturbmap.graphs import grid_edges, potts
from perturbmap.inference import (
    COUNTED,
    EXACT,
    INTEGRATED,
    PINNED,
    Estimate,
    MarginalMethod,
    decode,
    log_partition_bound,
    marginals,
    sample,
)
from perturbmap.models import GraphModel, MatchingModel, Model, SequenceModel
from perturbmap.objectives import (
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    LogLikelihood,
    MarginalLogLikelihood,
    Objective,
    StructuredHinge,
)
from perturbmap.perturbation import gumbel_noise, perturb
from perturbmap.potentials import Moments, Potentials
from perturbmap.regularisation_path import regularisation_path
from perturbmap.solvers import (
    BCFW,
    LBFGS,
    DoubleSGD,
    NoAveraging,
    PolynomialAveraging,
    Solver,
    SuffixAveraging,
    UniformAveraging,
)
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
from perturbmap.task_losses import BalancedHamming, Hamming, TaskLoss, WeightedHamming, ZeroOne

__version__ = version("perturbmap")

__all__ = [
    "BCFW",
    "COUNTED",
    "EXACT",
    "INTEGRATED",
    "LBFGS",
    "PINNED",
    "BalancedHamming",
    "BinaryGraph",
    "BruteForce",
    "Calibration",
    "Chain",
    "Decoding",
    "DoubleSGD",
    "Estimate",
    "ExactLogLikelihood",
    "ExactMarginalLogLikelihood",
    "ExactStructure",
    "Example",
    "FitInterruptedWarning",
    "FromSolver",
    "GraphModel",
    "Hamming",
    "InfeasibleError",
    "LogLikelihood",
    "MarginalLogLikelihood",
    "MarginalMethod",
    "Matching",
    "MatchingModel",
    "Model",
    "Moments",
    "NoAveraging",
    "Objective",
    "Pinned",
    "PolynomialAveraging",
    "Potentials",
    "SequenceModel",
    "Solver",
    "Structure",
    "StructuredHinge",
    "StructuredPredictor",
    "SuffixAveraging",
    "TaskLoss",
    "Tree",
    "UniformAveraging",
    "WeightedHamming",
    "ZeroOne",
    "decode",
    "grid_edges",
    "gumbel_noise",
    "log_partition_bound",
    "marginals",
    "perturb",
    "potts",
    "regularisation_path",
    "sample",
]
