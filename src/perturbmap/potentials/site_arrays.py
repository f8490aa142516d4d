"""Arrays over the sites of a batch: one-hot labels, softmax over labels."""

from __future__ import annotations

import numpy as np

from perturbmap.potentials.types import Floats, Labels


def one_hot(y: Labels, n_labels: int) -> Floats:
    """``q`` of hard labels, ``(..., n_labels)``; zeros for -1."""
    return np.asarray(y[..., None] == np.arange(n_labels), dtype=np.float64)


def log_softmax(values: Floats) -> tuple[Floats, Floats]:
    """Log softmax over labels, the last axis, and softmax; a value of -inf has probability zero."""
    shifted = values - max_of_labels(values)
    p = np.exp(shifted)
    total = sum_of_labels(p)
    p /= total
    return shifted - np.log(total), p


def softmax(values: Floats) -> Floats:
    """Softmax over labels, the last axis; a value of -inf has probability zero."""
    p = np.exp(values - max_of_labels(values))
    return np.asarray(p / sum_of_labels(p))


def max_of_labels(values: Floats) -> Floats:
    """The greatest number of each site, ``(..., 1)``."""
    if values.shape[-1] == 2:  # where numpy would take ten times as long
        return np.maximum(values[..., :1], values[..., 1:])
    return np.asarray(values.max(axis=-1, keepdims=True))


def sum_of_labels(values: Floats) -> Floats:
    """The sum of the numbers of each site, ``(..., 1)``."""
    if values.shape[-1] == 2:
        return values[..., :1] + values[..., 1:]
    return np.asarray(values.sum(axis=-1, keepdims=True))
