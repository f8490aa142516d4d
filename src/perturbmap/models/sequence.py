"""Sequences and trees: a score for each label of a site, a score for each pair of labels along an edge."""

from __future__ import annotations

from typing import final

import numpy as np

from perturbmap.data import Dataset
from perturbmap.models.base import LinearModel
from perturbmap.potentials import Floats, Moments, Potentials


@final
class SequenceModel(LinearModel):
    """``f(y) = sum_d (U[:, y_d] @ x_d + b[y_d]) + sum_e T[y_i, y_j] + first[y of roots] + last[y of leaves]``.

    Edges run from parent to child; on a chain, left out of the examples, the root is the first site and the leaf
    the last. Features may be dense or sparse.

    >>> from perturbmap.data import Dataset
    >>> data = Dataset.from_examples([np.zeros((5, 3))])
    >>> pm.SequenceModel().n_weights(data, n_labels=4)  # U, b, T, first, last: 12 + 4 + 16 + 4 + 4
    40
    """

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        """See `Model.shapes`: the blocks are U, b, T, first and last."""
        k = n_labels
        return {"features": (data.n_features, k), "bias": (k,), "transition": (k, k), "first": (k,), "last": (k,)}

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """See `Model.potentials`; all edges share the table T."""
        weights = self.unpack(w, batch, n_labels)
        unary = batch.features @ weights["features"] + weights["bias"]
        unary[batch.is_root] += weights["first"]
        unary[batch.is_leaf] += weights["last"]
        return Potentials.trusted(batch.layout, unary, weights["transition"])

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
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
