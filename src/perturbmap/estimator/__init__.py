"""The estimator: scikit-learn's grammar over lists of ragged examples."""

from perturbmap.estimator.explanation import Explanation, FeatureWeight, TransitionWeight
from perturbmap.estimator.predictor import FitInterruptedWarning, StructuredPredictor
from perturbmap.estimator.regularisation_path import regularisation_path
from perturbmap.estimator.token_features import TokenFeatures

__all__ = [
    "Explanation",
    "FeatureWeight",
    "FitInterruptedWarning",
    "StructuredPredictor",
    "TokenFeatures",
    "TransitionWeight",
    "regularisation_path",
]
