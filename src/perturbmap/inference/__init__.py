"""Inference by perturb-and-MAP (sections 2.1 and 2.3): the log-partition bound, marginals, samples, decoding."""

from perturbmap.inference.bound import log_partition_bound
from perturbmap.inference.calibration import Calibration, corrected_marginals
from perturbmap.inference.converging import CONVERGING, Converging, NotConvergedWarning
from perturbmap.inference.decoding import Decoding, decode, decode_for
from perturbmap.inference.estimate import Estimate
from perturbmap.inference.label_prior import LabelPrior
from perturbmap.inference.log_partition import LogPartition, log_partition
from perturbmap.inference.marginal_methods import COUNTED, EXACT, INTEGRATED, PINNED, MarginalMethod, PerturbedMethod
from perturbmap.inference.marginals import marginals
from perturbmap.inference.samples import sample

__all__ = [
    "CONVERGING",
    "COUNTED",
    "EXACT",
    "INTEGRATED",
    "PINNED",
    "Calibration",
    "Converging",
    "Decoding",
    "Estimate",
    "LabelPrior",
    "LogPartition",
    "MarginalMethod",
    "NotConvergedWarning",
    "PerturbedMethod",
    "corrected_marginals",
    "decode",
    "decode_for",
    "log_partition",
    "log_partition_bound",
    "marginals",
    "sample",
]
