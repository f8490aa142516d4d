"""Matchings: a bilinear score of a site's and a label's features."""

from __future__ import annotations

from typing import final

import numpy as np

from perturbmap.examples import Dataset
from perturbmap.models.base import Model
from perturbmap.potentials import Floats, Moments, Potentials


@final
class MatchingModel(Model):
    """``f(y) = sum_d x_d' W z_{y_d}``: x are the sites' features, z the ``label_features`` of the same example.

    Label k, the k-th of ``classes_``, is row k of ``label_features``. Examples may have fewer rows than there are
    labels; those that an example does not have are scored out of reach.

    >>> from perturbmap.examples import Dataset
    >>> data = Dataset.from_examples([pm.Example(np.eye(2), label_features=np.eye(2))])
    >>> pm.MatchingModel().potentials(np.arange(4.0), data, n_labels=2).unary
    array([[0., 1.],
           [2., 3.]])
    """

    def n_weights(self, data: Dataset, n_labels: int) -> int:
        """W, row by row."""
        if data.label_features is None:
            raise ValueError("MatchingModel needs label_features: use Example(features, label_features=...).")
        for n, (sites, z) in enumerate(zip(data.site_counts, data.label_features, strict=True)):
            if not sites <= len(z) <= n_labels:
                raise ValueError(
                    f"label_features of example {n} must have at least one row a site, {sites}, and at most one "
                    f"a label, {n_labels}, but has {len(z)}. Label k is row k: where y does not show them all, pass "
                    "classes=range(K)."
                )
        return data.n_features * int(data.label_features[0].shape[1])

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """See `Model.potentials`."""
        labels = _label_features(batch)
        projected = batch.features @ w.reshape(batch.n_features, -1)
        scores = [
            projected[first:last] @ z.T
            for first, last, z in zip(batch.site_offsets[:-1], batch.site_offsets[1:], labels, strict=True)
        ]
        out_of_reach = -1e6 * (1 + max((np.abs(s).max() for s in scores if s.size), default=0.0))
        unary = np.full((batch.n_sites, n_labels), out_of_reach)
        for first, s in zip(batch.site_offsets[:-1], scores, strict=True):
            unary[first : first + s.shape[0], : s.shape[1]] = s
        no_edges = np.empty((0, 2), dtype=np.int32), np.zeros(len(batch) + 1, dtype=np.int64)
        return Potentials._trusted(unary, None, no_edges[0], batch.site_offsets, no_edges[1], batch.streams)

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        """See `Model.pullback`."""
        expected = [
            moments.unary[first:last, : len(z)] @ z
            for first, last, z in zip(
                batch.site_offsets[:-1], batch.site_offsets[1:], _label_features(batch), strict=True
            )
        ]
        return batch.features.pullback(np.concatenate(expected)).ravel()

    def squared_length(self, data: Dataset) -> float:
        """A weight is multiplied by both features; what all labels of an example share tells none apart."""
        spread = [z.var(axis=0).sum() for z in _label_features(data)]
        return super().squared_length(data) * float(np.mean(spread))


def _label_features(batch: Dataset) -> list[Floats]:
    assert batch.label_features is not None
    return batch.label_features
