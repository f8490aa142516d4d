"""What a weighted loss does to the probabilities that are learned with it, and how that is undone.

A model that is learned with weights theta makes ``P(k) theta(k)`` likely, up to a factor: its marginals are tilted
towards the labels that are dear to miss. To be probabilities, they are divided by the mean theta of each label in the
data. Then the theta of another example may be put on top: of one to be labelled (`Decoding.LOSS_AWARE`), or of one
whose labels are guessed (Algorithm 3).
"""

from __future__ import annotations

import numpy as np

from perturbmap.potentials import Floats


def label_mass(q: Floats, label_weights: Floats) -> Floats:
    """How much of each label there is, and how much it weighs: (2, n_labels); sums over parts of the data add up."""
    return np.stack([q.sum(axis=0), label_weights.sum(axis=0)])


def untilt(q: Floats, mass: Floats) -> Floats:
    """The marginals divided by the mean weight of each label, which is that of all where a label was not seen."""
    count, weight = mass
    mean = np.divide(weight, count, out=np.full_like(count, weight.sum() / count.sum()), where=count > 0)
    plain = q / np.where(mean > 0, mean, 1.0)
    return np.asarray(plain / plain.sum(axis=1, keepdims=True))
