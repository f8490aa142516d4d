"""Sequences and trees: a score for each label of a site, a score for each pair of labels along an edge."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from perturbmap.examples import Dataset
from perturbmap.models.base import Model
from perturbmap.potentials import Floats, Moments, Potentials


class _Weights(NamedTuple):
    unary: Floats  # (n_features, K)
    bias: Floats  # (K,)
    transition: Floats  # (K, K)
    first: Floats  # (K,)
    last: Floats  # (K,)


@final
class SequenceModel(Model):
    """``f(y) = sum_d (U[:, y_d] @ x_d + b[y_d]) + sum_e T[y_i, y_j] + first[y of roots] + last[y of leaves]``.

    Edges run from parent to child; on a chain, left out of the examples, the root is the first site and the leaf
    the last. Features may be dense or sparse.

    >>> from perturbmap.examples import Dataset
    >>> data = Dataset.from_examples([np.zeros((5, 3))])
    >>> pm.SequenceModel().n_weights(data, n_labels=4)  # U, b, T, first, last: 12 + 4 + 16 + 4 + 4
    40
    """

    def _unpack(self, w: Floats, n_features: int, k: int) -> _Weights:
        bias, pairs = n_features * k, n_features * k + k
        first, last = pairs + k * k, pairs + k * k + k
        return _Weights(
            w[:bias].reshape(n_features, k), w[bias:pairs], w[pairs:first].reshape(k, k), w[first:last], w[last:]
        )

    def n_weights(self, data: Dataset, n_labels: int) -> int:
        """U, b, T, first and last."""
        return (data.n_features + n_labels + 3) * n_labels

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """See `Model.potentials`; all edges share the table T."""
        weights = self._unpack(w, batch.n_features, n_labels)
        unary = batch.features @ weights.unary + weights.bias
        unary[batch.is_root] += weights.first
        unary[batch.is_leaf] += weights.last
        return Potentials._trusted(
            unary, weights.transition, batch.edges, batch.site_offsets, batch.edge_offsets, batch.streams
        )

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        """See `Model.pullback`."""
        assert moments.pairwise is not None
        return np.concatenate(
            [
                batch.features.pullback(moments.unary).ravel(),
                moments.unary.sum(axis=0),
                moments.pairwise.ravel(),
                moments.unary[batch.is_root].sum(axis=0),
                moments.unary[batch.is_leaf].sum(axis=0),
            ]
        )
