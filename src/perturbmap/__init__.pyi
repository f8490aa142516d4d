from . import datasets, models, objectives, solvers, structures, task_losses, uai
from . import images as images
from . import nn as nn
from .calibration import Calibration
from .decoding import Decoding
from .estimator import FitInterruptedWarning, StructuredPredictor
from .examples import Example
from .graphs import GraphEdges, graph_edges, grid_edges, potts
from .inference import (
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
from .models import GraphModel, MatchingModel, Model, SequenceModel
from .objectives import (
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    LogLikelihood,
    MarginalLogLikelihood,
    Objective,
    StructuredHinge,
)
from .penalty_path import regularisation_path
from .perturbation import gumbel_noise, perturb
from .potentials import Moments, Potentials
from .solvers import (
    BCFW,
    LBFGS,
    DoubleSGD,
    LocalSGD,
    NoAveraging,
    PolynomialAveraging,
    Solver,
    SuffixAveraging,
    UniformAveraging,
)
from .store import Store, write_store
from .structures import (
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
from .task_losses import BalancedHamming, Hamming, TaskLoss, WeightedHamming, ZeroOne

__version__: str

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
    "GraphEdges",
    "GraphModel",
    "Hamming",
    "InfeasibleError",
    "LocalSGD",
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
    "Store",
    "Structure",
    "StructuredHinge",
    "StructuredPredictor",
    "SuffixAveraging",
    "TaskLoss",
    "Tree",
    "UniformAveraging",
    "WeightedHamming",
    "ZeroOne",
    "datasets",
    "decode",
    "graph_edges",
    "grid_edges",
    "gumbel_noise",
    "log_partition_bound",
    "marginals",
    "models",
    "objectives",
    "perturb",
    "potts",
    "regularisation_path",
    "sample",
    "solvers",
    "structures",
    "task_losses",
    "uai",
    "write_store",
]
