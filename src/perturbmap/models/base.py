"""Models: from features and weights to potentials, and the adjoint."""

from __future__ import annotations

from abc import abstractmethod

from sklearn.base import BaseEstimator

from perturbmap.examples import Dataset
from perturbmap.potentials import Floats, Moments, Potentials


class Model(BaseEstimator):
    """A linear map from weights to potentials, ``f(y) = w . Psi(x, y)``.

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

    def project(self, w: Floats, batch: Dataset, n_labels: int) -> Floats:
        """The nearest weights for which f can be maximised; w itself unless the model says otherwise."""
        return w
