"""Arrays over the sites of a batch: one-hot labels, softmax over labels, sums over examples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Labels


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
    """Over labels, the last axis."""
    p = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def sums_by_example(values: Floats, offsets: NDArray[np.int64]) -> Floats:
    """Sums over the sites of each example, ``(n_examples, ...)``."""
    padded = np.concatenate([values, np.zeros((1, *values.shape[1:]))])
    sums = np.add.reduceat(padded, offsets[:-1], axis=0)
    return np.asarray(sums * (np.diff(offsets) > 0).reshape(-1, *([1] * (values.ndim - 1))))
