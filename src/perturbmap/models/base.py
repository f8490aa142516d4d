"""Models: from features and weights to potentials, and back from their gradient to that of the weights."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.potentials import Floats, Mask, Moments, Potentials
from perturbmap.support.parts import Part

#: From the gradient with respect to potentials to that with respect to weights.
Pullback = Callable[[Moments], Floats]


class Model(Part):
    """A map from weights w and the features of examples to potentials, the scores of labellings (`Potentials`).

    The weights are one vector, made of named blocks (`shapes`). A model of your own that is linear in them derives
    from `LinearModel`; one that is not has `apply`.
    """

    #: Whether the potentials are linear in the weights.
    is_linear: ClassVar[bool] = False
    #: Whether a feature is used only in products with weights of its own, so that examples which do not have it can
    #: be computed without it and them. Then a step on sparse features costs what its examples have.
    is_by_feature: ClassVar[bool] = False

    @property
    def nonnegative(self) -> tuple[str, ...]:
        """The names of the blocks of weights that must not be negative; none, unless a model says so."""
        return ()

    def check(self, data: Dataset, n_labels: int) -> None:
        """Raises ValueError where the examples lack what the model needs; called once, before any work."""

    @abstractmethod
    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the blocks of w by name, in their order."""

    @abstractmethod
    def apply(self, w: Floats, batch: Dataset, n_labels: int) -> tuple[Potentials, Pullback]:
        """The potentials f of every example of the batch, and the pullback at w.

        The potentials are made by ``Potentials.on(batch.layout, ...)``.

        The pullback is a function from `Moments` to the gradient with respect to w of ``sum(moments * potentials)``.
        """

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """The potentials f of every example of the batch."""
        return self.apply(w, batch, n_labels)[0]

    def n_weights(self, data: Dataset, n_labels: int) -> int:
        """The length of the weight vector w."""
        return sum(math.prod(shape) for shape in self.shapes(data, n_labels).values())

    def unpack(self, w: Floats, data: Dataset, n_labels: int) -> dict[str, Floats]:
        """The blocks of w by name, as views in their shapes."""
        blocks, first = {}, 0
        for name, shape in self.shapes(data, n_labels).items():
            size = math.prod(shape)
            blocks[name] = w[first : first + size].reshape(shape)
            first += size
        return blocks

    def squared_length(self, data: Dataset, n_labels: int) -> float:
        """How strongly weights move the scores of a site: ``||x||^2 + 1`` on average, x being what they multiply.

        The first step of `PlainStep` is measured by it.
        """
        return data.features.mean_squared_norm() + 1.0

    def absolute_length(self, data: Dataset, n_labels: int) -> float:
        """How far the score of a site moves at most if every weight moves by one, on average over the sites.

        The first steps of `AdaptiveStep` are measured by it.
        """
        return data.features.mean_absolute_sum() + 1.0

    def site_weights(self, data: Dataset, n_labels: int) -> NDArray[np.intp] | None:
        """(n_features + 1, m), the positions in w of the weights of each feature of a site, and of its bias last.

        A column has all weights of one score. With them, `AdaptiveStep` learns what all sites share separately from
        what tells sites apart. By default None: there is no such bias, or the model does not say.
        """
        return None

    def learned(self, data: Dataset, label_weights: Floats, n_labels: int) -> Mask | None:
        """(n_weights,), whether each weight is learned; the others stay zero. None: all are learned.

        ``label_weights``, ``(n_sites, n_labels)``, say how much each label of each site counts.
        """
        return None

    def nonnegative_weights(self, data: Dataset, n_labels: int) -> NDArray[np.intp]:
        """The positions in w of the weights that must not be negative."""
        if not self.nonnegative:
            return np.empty(0, dtype=np.intp)
        blocks = self.unpack(np.arange(self.n_weights(data, n_labels), dtype=np.float64), data, n_labels)
        return np.concatenate([blocks[name].ravel() for name in self.nonnegative]).astype(np.intp)

    def project(self, w: Floats, data: Dataset, n_labels: int) -> Floats:
        """The weights nearest to w of which those in the blocks `nonnegative` are not negative."""
        return project(w, self.nonnegative_weights(data, n_labels))


def project(w: Floats, nonnegative: NDArray[np.intp]) -> Floats:
    """The nearest weights of which those at these positions are not negative."""
    if nonnegative.size == 0:
        return w
    w = w.copy()
    w[nonnegative] = np.maximum(0.0, w[nonnegative])
    return w


def check_streams(model: Model, f: Potentials, batch: Dataset) -> Potentials:
    """The potentials that a model has made; ValueError where they are not those of the batch, with its streams."""
    streams = batch.layout.streams
    if f.layout.streams is not streams and not np.array_equal(f.layout.streams, streams):
        raise ValueError(
            f"{type(model).__name__} must make potentials by Potentials.on(batch.layout, ...), which keeps the "
            "random streams of the examples: else their noise depends on what else is in the batch."
        )
    return f


class LinearModel(Model):
    """A linear map from weights to potentials, ``f(y) = w @ Psi(x, y)``, Psi being the features of x and y together.

    A model of your own has `shapes`, `potentials` and `pullback`. The pullback is the adjoint (the transpose) of the
    map, so that ``Psi(x, y) = pullback(x, indicators of y)`` need not be written twice.
    """

    is_linear = True

    @abstractmethod
    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """The potentials f of every example of the batch, a linear function of w."""

    @abstractmethod
    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        """The gradient with respect to w of ``sum(moments * potentials)``, the same at every w."""

    def apply(self, w: Floats, batch: Dataset, n_labels: int) -> tuple[Potentials, Pullback]:
        return self.potentials(w, batch, n_labels), partial(self.pullback, batch, n_labels)
