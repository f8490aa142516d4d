"""Binary labels on a graph: foreground and background, with edges that attract."""

from __future__ import annotations

from typing import final

import numpy as np

from perturbmap.examples import Dataset
from perturbmap.models.base import Model
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.rows import Rows


@final
class GraphModel(Model):
    """``f(y) = sum_d (2 y_d - 1) (w_U @ x_d + b) - sum_e w_P @ x_e [y_i != y_j]``, ``w_P >= 0``, ``x_e >= 0``.

    The signs keep f supermodular; solvers obey them in plain sight (`nonnegative`).
    Without edge features, every edge has the single feature 1.

    >>> from perturbmap.examples import Dataset
    >>> data = Dataset.from_examples([pm.Example(np.ones((4, 3)), pm.grid_edges(2, 2))])
    >>> f = pm.GraphModel().potentials(np.array([1.0, 0.0, 0.0, 0.5, 2.0]), data, n_labels=2)
    >>> f.unary[0], f.pairwise[0]
    (array([-1.5,  1.5]), array([[ 0., -2.],
           [-2.,  0.]]))
    """

    def n_weights(self, data: Dataset, n_labels: int) -> int:
        """w_U, b and w_P."""
        if n_labels != 2:
            raise ValueError(
                f"GraphModel needs two labels, but y has {n_labels}. Use SequenceModel for chains and trees."
            )
        if data.edge_features is not None and data.edge_features.minimum() < 0:
            raise ValueError(
                "edge_features must not be negative: with non-negative weights they keep every edge attractive. "
                "Use similarities, such as exp(-distance)."
            )
        return data.n_features + 1 + _edge_features(data).n_columns

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """See `Model.potentials`."""
        n = batch.n_features
        score = batch.features @ w[:n] + w[n]
        penalty = _edge_features(batch) @ w[n + 1 :]
        tables = np.zeros((len(penalty), 2, 2))
        tables[:, 0, 1] = tables[:, 1, 0] = -penalty
        return Potentials._trusted(
            np.stack([-score, score], axis=1),
            tables,
            batch.edges,
            batch.site_offsets,
            batch.edge_offsets,
            batch.streams,
        )

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        """See `Model.pullback`."""
        assert moments.pairwise is not None
        unary = moments.unary[:, 1] - moments.unary[:, 0]
        disagreement = moments.pairwise[:, 0, 1] + moments.pairwise[:, 1, 0]
        edges = -_edge_features(batch).pullback(disagreement)
        return np.concatenate([batch.features.pullback(unary), [unary.sum()], edges])

    def squared_length(self, data: Dataset) -> float:
        """Both labels' scores move, one up and one down, and two labels vary more than many; edges count besides."""
        edges = len(data.edges) / max(1, data.n_sites) * _edge_features(data).mean_squared_norm()
        return 16.0 * super().squared_length(data) + edges

    def nonnegative(self, data: Dataset, n_labels: int) -> slice:
        """w_P."""
        first = data.n_features + 1
        return slice(first, first + _edge_features(data).n_columns)


def _edge_features(batch: Dataset) -> Rows:
    if batch.edge_features is not None:
        return batch.edge_features
    return Rows(np.ones((len(batch.edges), 1)), batch.edge_offsets[:-1], batch.edge_offsets[1:])
