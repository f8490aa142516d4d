"""Matchings: a bilinear score of a site's and a label's features."""

from __future__ import annotations

from typing import final

import numpy as np

from perturbmap.data import Dataset
from perturbmap.models.base import LinearModel
from perturbmap.potentials import Floats, Moments, Potentials

# What a label that an example does not have scores, beside the largest score of the example.
_OUT_OF_REACH = -1e6


@final
class MatchingModel(LinearModel):
    """``f(y) = sum_d x_d' W z_{y_d}``: x are the sites' features, z the ``label_features`` of the same example.

    The weights W say how well the features of a site and of a label go together. Label k, the k-th of ``classes_``,
    is row k of ``label_features`` (see `Example`). Examples may have fewer rows than there are labels; labels that an
    example does not have get a score so low that they are out of reach.

    >>> from perturbmap.data import Dataset
    >>> data = Dataset.from_examples([pm.Example(np.eye(2), label_features=np.eye(2))])
    >>> pm.MatchingModel().potentials(np.arange(4.0), data, n_labels=2).unary
    array([[0., 1.],
           [2., 3.]])
    """

    is_by_feature = True

    def check(self, data: Dataset, n_labels: int) -> None:
        """See `Model.check`: label features of every example, enough of them and not too many."""
        if data.label_features is None:
            raise ValueError("MatchingModel needs label_features: use Example(features, label_features=...).")
        for n, (sites, z) in enumerate(zip(data.layout.site_counts, data.label_features, strict=True)):
            if not sites <= len(z) <= n_labels:
                raise ValueError(
                    f"label_features of example {n} must have at least one row for each site, {sites}, and at most "
                    f"one for each label, {n_labels}, but has {len(z)}. Label k is row k: where y does not show them "
                    "all, pass classes=range(K)."
                )

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        """See `Model.shapes`: the only block is W."""
        return {"features": (data.n_features, int(_label_features(data)[0].shape[1]))}

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        labels, offsets = _label_features(batch), batch.layout.site_offsets
        projected = batch.features @ w.reshape(batch.n_features, -1)
        scores = [
            projected[first:last] @ z.T for first, last, z in zip(offsets[:-1], offsets[1:], labels, strict=True)
        ]
        unary = np.empty((batch.n_sites, n_labels))
        for first, s in zip(offsets[:-1], scores, strict=True):
            sites = unary[first : first + s.shape[0]]
            sites[:, s.shape[1] :] = _OUT_OF_REACH * (1 + np.abs(s).max(initial=0.0))
            sites[:, : s.shape[1]] = s
        return Potentials.on(batch.layout, unary)

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        parts = zip(batch.layout.split(moments.unary), _label_features(batch), strict=True)
        expected = [part[:, : len(z)] @ z for part, z in parts]
        return batch.features.pullback(np.concatenate(expected)).ravel()

    def absolute_length(self, data: Dataset, n_labels: int) -> float:
        """See `Model.absolute_length`: a weight multiplies both features, less what the labels have in common."""
        each = [np.abs(z - z.mean(axis=0)).sum(axis=1).mean() for z in _label_features(data) if len(z)]
        return super().absolute_length(data, n_labels) * float(np.mean(each))

    def squared_length(self, data: Dataset, n_labels: int) -> float:
        """See `Model.squared_length`: a weight multiplies both features, less what the labels have in common."""
        spread = [z.var(axis=0).sum() for z in _label_features(data)]
        return super().squared_length(data, n_labels) * float(np.mean(spread))


def _label_features(batch: Dataset) -> list[Floats]:
    assert batch.label_features is not None
    return batch.label_features
