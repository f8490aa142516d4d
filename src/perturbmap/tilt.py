"""What a weighted loss does to the probabilities that are learned with it, and how that is undone.

A model that is learned with weights theta makes ``P(k) theta(k)`` likely, up to a factor: its marginals are tilted
towards the labels that are dear to miss. To be probabilities, they are divided by the mean theta of each label in the
data. Then the theta of another example may be put on top: of one to be labelled (`Decoding.LOSS_AWARE`), or of one
whose labels are guessed (Algorithm 3).
"""

from __future__ import annotations

import numpy as np

from perturbmap.potentials import Floats


def label_mass(sized: Floats, label_weights: Floats) -> Floats:
    """How much there is of each label, by the sizes of its sites, and what it weighs: (2, n_labels).

    The size of a site weighs all its labels alike and is no tilt. Sums over parts of the data add up.
    """
    return np.stack([sized.sum(axis=0), label_weights.sum(axis=0)])


def untilt(q: Floats, mass: Floats) -> Floats:
    """The marginals divided by the mean weight of each label; by that of all where a label was not seen."""
    size, weight = mass
    seen = (size > 0) & (weight > 0)
    if not seen.any():
        return q
    mean = np.divide(weight, size, out=np.full_like(size, weight[seen].sum() / size[seen].sum()), where=seen)
    if np.ptp(mean) == 0:
        return q
    plain = q / mean
    return np.asarray(plain / plain.sum(axis=1, keepdims=True))
