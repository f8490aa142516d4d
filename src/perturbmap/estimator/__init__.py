"""The estimator: scikit-learn's grammar over lists of ragged examples."""

from perturbmap.estimator.predictor import FitInterruptedWarning, StructuredPredictor
from perturbmap.estimator.regularisation_path import regularisation_path

__all__ = ["FitInterruptedWarning", "StructuredPredictor", "regularisation_path"]
