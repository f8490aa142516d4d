"""Binary labels on a graph: foreground and background, with edges that attract."""

from __future__ import annotations

from typing import final

import numpy as np

from perturbmap.data import Dataset
from perturbmap.data.rows import Rows
from perturbmap.models.base import LinearModel
from perturbmap.potentials import Floats, Moments, Potentials

# A score moves both labels, one up and one down: log P = log sigmoid(2 score), whose curvature is four times that of
# log sigmoid(score). The other four is a margin, not derived: two labels vary more than many do, and without it a fit
# could be thrown off by its first steps (docs/decisions.md, 29).
_BOTH_LABELS, _TWO_LABELS_VARY_MORE = 4.0, 4.0


@final
class GraphModel(LinearModel):
    """``f(y) = sum_d (2 y_d - 1) (w_U @ x_d + b) - sum_e w_P @ x_e [y_i != y_j]``, ``w_P >= 0``, ``x_e >= 0``.

    The signs keep f supermodular; solvers keep the weights to them (`nonnegative`).
    Without edge features, every edge has the single feature 1.

    >>> from perturbmap.data import Dataset
    >>> data = Dataset.from_examples([pm.Example(np.ones((4, 3)), pm.grid_edges(2, 2))])
    >>> f = pm.GraphModel().potentials(np.array([1.0, 0.0, 0.0, 0.5, 2.0]), data, n_labels=2)
    >>> f.unary[0], f.pairwise[0]
    (array([-1.5,  1.5]), array([[ 0., -2.],
           [-2.,  0.]]))
    """

    nonnegative = ("edges",)

    def check(self, data: Dataset, n_labels: int) -> None:
        """See `Model.check`: two labels, edge features that are not negative."""
        if n_labels != 2:
            raise ValueError(
                f"GraphModel needs two labels, but y has {n_labels}. Use SequenceModel for chains and trees."
            )
        if data.edge_features is not None and data.edge_features.minimum() < 0:
            raise ValueError(
                "edge_features must not be negative: with non-negative weights they keep every edge attractive. "
                "Use similarities, such as exp(-distance)."
            )

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        """See `Model.shapes`: the blocks are w_U, b and w_P."""
        return {"features": (data.n_features,), "bias": (1,), "edges": (_edge_features(data).n_columns,)}

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        n = batch.n_features
        score = batch.features @ w[:n] + w[n]
        penalty = _edge_features(batch) @ w[n + 1 :]
        tables = np.zeros((len(penalty), 2, 2))
        tables[:, 0, 1] = tables[:, 1, 0] = -penalty
        return Potentials.trusted(batch.layout, np.stack([-score, score], axis=1), tables)

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        assert moments.pairwise is not None
        unary = moments.unary[:, 1] - moments.unary[:, 0]
        disagreement = moments.pairwise[:, 0, 1] + moments.pairwise[:, 1, 0]
        edges = -_edge_features(batch).pullback(disagreement)
        return np.concatenate([batch.features.pullback(unary), [unary.sum()], edges])

    def squared_length(self, data: Dataset) -> float:
        """See `Model.squared_length`; the features of edges count too."""
        edges = data.layout.n_edges / max(1, data.n_sites) * _edge_features(data).mean_squared_norm()
        return _BOTH_LABELS * _TWO_LABELS_VARY_MORE * super().squared_length(data) + edges


def _edge_features(batch: Dataset) -> Rows:
    if batch.edge_features is not None:
        return batch.edge_features
    return Rows.of(np.ones((batch.layout.n_edges, 1)), batch.layout.edge_offsets)
