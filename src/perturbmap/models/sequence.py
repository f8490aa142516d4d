"""Sequences and trees: a score for each label of a site, a score for each pair of labels along an edge."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.data.sparse_rows import CompressedRows
from perturbmap.models.base import LinearModel
from perturbmap.potentials import Floats, Mask, Moments, Potentials
from perturbmap.support.checks import check_number


@final
class SequenceModel(LinearModel):
    """``f(y) = sum_d (U[:, y_d] @ x_d + b[y_d]) + sum_e T[y_i, y_j] + first[y of roots] + last[y of leaves]``.

    The weights U score the features x_d of a site with each label, b is a bias of each label, and T scores pairs of
    labels along an edge; ``first`` and ``last`` score the labels at the ends. Edges run from parent to child. Where
    examples have no edges they are chains, whose root is the first site and whose leaf is the last. Features may be
    dense or sparse.

    min_count : how often a sparse feature must be seen with a label, in the examples that are learned from, for the
        two to have a weight; the other weights stay zero. More makes the model smaller. 0 learns all weights, as is
        always done where features are dense.

    >>> from perturbmap.data import Dataset
    >>> data = Dataset.from_examples([np.zeros((5, 3))])
    >>> pm.SequenceModel().n_weights(data, n_labels=4)  # U, b, T, first, last: 12 + 4 + 16 + 4 + 4
    40
    """

    is_by_feature = True

    def __init__(self, min_count: float = 1) -> None:
        self.min_count = min_count

    def check(self, data: Dataset, n_labels: int) -> None:
        """Raises ValueError where ``min_count`` is not a number of sites."""
        check_number("min_count", self.min_count, or_equal=True)

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        """See `Model.shapes`: the blocks are U, b, T, first and last."""
        k = n_labels
        return {"features": (data.n_features, k), "bias": (k,), "transition": (k, k), "first": (k,), "last": (k,)}

    def site_weights(self, data: Dataset, n_labels: int) -> NDArray[np.intp]:
        """See `Model.site_weights`: U, and b below it."""
        return np.arange((data.n_features + 1) * n_labels, dtype=np.intp).reshape(-1, n_labels)

    def learned(self, data: Dataset, label_weights: Floats, n_labels: int) -> Mask | None:
        """See `Model.learned`: a label that is guessed counts by its probability."""
        if self.min_count == 0 or not isinstance(data.features, CompressedRows):
            return None
        total = label_weights.sum(axis=1, keepdims=True)
        q = label_weights / np.where(total > 0, total, 1.0)
        learned = np.ones(self.n_weights(data, n_labels), dtype=bool)
        blocks = self.unpack(learned, data, n_labels)
        # Sums of probabilities that make a whole number are not always one.
        blocks["features"][...] = data.features.present().pullback(q) > self.min_count - 1e-9
        return learned

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """See `Model.potentials`; all edges share the table T."""
        weights = self.unpack(w, batch, n_labels)
        unary = batch.features @ weights["features"] + weights["bias"]
        unary[batch.is_root] += weights["first"]
        unary[batch.is_leaf] += weights["last"]
        return Potentials.trusted(batch.layout, unary, weights["transition"])

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        assert moments.pairwise is not None
        gradient = np.zeros(self.n_weights(batch, n_labels))
        blocks = self.unpack(gradient, batch, n_labels)
        batch.features.add_pullback(moments.unary, blocks["features"])
        blocks["bias"][...] = moments.unary.sum(axis=0)
        blocks["transition"][...] = moments.pairwise
        blocks["first"][...] = moments.unary[batch.is_root].sum(axis=0)
        blocks["last"][...] = moments.unary[batch.is_leaf].sum(axis=0)
        return gradient
