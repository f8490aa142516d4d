"""What a weighted loss does to the probabilities that are learned with it, and how that is undone.

A model that is learned with weights theta makes ``P(k) theta(k)`` likely, up to a factor: its marginals favour the
labels that are expensive to miss, as if those had been more frequent. To be probabilities, they are divided by the
mean theta of each label in the data. Then the theta of another example may be put on top: of one to be labelled
(`Decoding.LOSS_AWARE`), or of one whose labels are guessed (Algorithm 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from perturbmap.potentials import Floats


@final
@dataclass(frozen=True, eq=False)
class LabelPrior:
    """How much there is of each label in the data, and how much weight the loss gives to it.

    A model that is learned with a weighted loss finds the labels that are expensive to miss more probable than they
    are. `remove` undoes this.

    sizes : (n_labels,), the sizes of the sites that have the label, summed. The size of a site weighs all its labels
        alike, and favours none.
    weights : (n_labels,), the weights of the loss at these sites, summed

    >>> from perturbmap.inference import LabelPrior
    >>> prior = LabelPrior(np.array([80.0, 20.0]), np.array([80.0, 180.0]))  # missing a 1 costs nine times as much
    >>> prior.remove(np.array([[0.5, 0.5]])).round(2)
    array([[0.9, 0.1]])
    """

    sizes: Floats
    weights: Floats

    def remove(self, q: Floats) -> Floats:
        """Marginals divided by the mean weight of each label; by that of all labels where one was not seen."""
        seen = (self.sizes > 0) & (self.weights > 0)
        if not seen.any():
            return q
        overall = self.weights[seen].sum() / self.sizes[seen].sum()
        mean = np.divide(self.weights, self.sizes, out=np.full_like(self.sizes, overall), where=seen)
        if np.ptp(mean) == 0:
            return q
        plain = q / mean
        return np.asarray(plain / plain.sum(axis=1, keepdims=True))

    def plus(self, other: LabelPrior) -> LabelPrior:
        """The label prior of both parts of the data together."""
        return LabelPrior(self.sizes + other.sizes, self.weights + other.weights)

    def to_array(self) -> Floats:
        """Sizes and weights as rows of one array, ``(2, n_labels)``, for a file."""
        return np.stack([self.sizes, self.weights])
