"""Arrays over the sites of a batch: one-hot labels, softmax over labels."""

from __future__ import annotations

import numpy as np

from perturbmap.potentials.types import Floats, Labels


def one_hot(y: Labels, n_labels: int) -> Floats:
    """``q`` of hard labels, ``(..., n_labels)``; zeros for -1."""
    return np.asarray(y[..., None] == np.arange(n_labels), dtype=np.float64)


def log_softmax(values: Floats) -> tuple[Floats, Floats]:
    """Log softmax over labels, the last axis, and softmax; a value of -inf has probability zero."""
    shifted = values - values.max(axis=-1, keepdims=True)
    p = np.exp(shifted)
    total = p.sum(axis=-1, keepdims=True)
    p /= total
    return shifted - np.log(total), p


def softmax(values: Floats) -> Floats:
    """Softmax over labels, the last axis; a value of -inf has probability zero."""
    p = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))
