"""Models: from features and weights to potentials, and the adjoint."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from sklearn.base import BaseEstimator

from perturbmap.examples import Dataset
from perturbmap.potentials import Floats, Moments, Potentials


class Model(BaseEstimator):
    """A linear map from weights to potentials, ``f(y) = w @ Psi(x, y)``.

    ``pullback`` is its adjoint, so that ``Psi(x, y) = pullback(x, indicators of y)`` need not be written twice.
    """

    @abstractmethod
    def n_weights(self, data: Dataset, n_labels: int) -> int:
        """The length of w; raises ValueError where the examples lack what the model needs."""

    @abstractmethod
    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """F for every example of the batch."""

    @abstractmethod
    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        """The gradient with respect to w of ``sum(moments * potentials)``."""

    def squared_length(self, data: Dataset) -> float:
        """How far a weight moves the scores of a site, squared, on average: of the features it is multiplied with.

        The first step of `DoubleSGD` is measured by it.
        """
        return data.features.mean_squared_norm() + 1.0

    def nonnegative(self, data: Dataset, n_labels: int) -> slice:
        """Which weights must not be negative, so that f can be maximised; none unless the model says otherwise."""
        return slice(0, 0)

    def project(self, w: Floats, data: Dataset, n_labels: int) -> Floats:
        """The nearest weights that obey `nonnegative`."""
        signed = self.nonnegative(data, n_labels)
        if signed.start == signed.stop:
            return w
        w = w.copy()
        w[signed] = np.maximum(0.0, w[signed])
        return w
