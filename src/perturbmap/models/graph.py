"""Labels on a graph: a score for each label of a site, and for pairs of labels along an edge."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.data.rows import Rows
from perturbmap.models.base import LinearModel
from perturbmap.potentials import Floats, Moments, Potentials

_KINDS = ("potts", "symmetric", "directed")

# A score moves both labels, one up and one down: log P = log sigmoid(2 score), whose curvature is four times that of
# log sigmoid(score). The other four is a margin, not derived: two labels vary more than many do, and without it a fit
# could be thrown off by its first steps (docs/decisions.md, 29).
_BOTH_LABELS, _TWO_LABELS_VARY_MORE = 4.0, 4.0


@final
class GraphModel(LinearModel):
    """``f(y) = sum_d (U[y_d] @ x_d + b[y_d]) + sum_e sum_m x_e[m] T_m[y_i, y_j]``, ``(i, j) = edges[e]``.

    Here x_d are the features of site d and x_e those of edge e, which joins the sites i and j. There is one table T_m
    of all pairs of labels for each edge feature m. ``pairwise`` says which tables are learned:

    - ``"potts"``: ``T_m[a, b] = -w_P[m] [a != b]``, ``w_P >= 0``, a penalty where labels differ. Edge features must
      not be negative, so that edges attract; solvers keep the weights to their sign (`nonnegative`).
    - ``"symmetric"``: any symmetric table, for labels that go together or avoid each other, in either order.
    - ``"directed"``: any table, for edges that have a direction; rows are the labels of ``edges[:, 0]``.

    Without edge features, every edge has the single feature 1. The blocks of weights are ``features``, U, of shape
    ``(n_labels, n_features)``; ``bias``, b; and ``edges``: w_P, or T, ``(n_edge_features, n_labels, n_labels)``.

    Two labels with ``"potts"`` have one score for both, ``U = [-w_U, w_U] and b = [-b, b]``: there, ``features`` and
    ``bias`` are w_U and a single number, and f is supermodular (edges attract), as `BinaryGraph` needs it.

    >>> from perturbmap.data import Dataset
    >>> data = Dataset.from_examples([pm.Example(np.ones((4, 3)), pm.grid_edges(2, 2))])
    >>> f = pm.GraphModel().potentials(np.array([1.0, 0.0, 0.0, 0.5, 2.0]), data, n_labels=2)
    >>> f.unary[0], f.pairwise[0]
    (array([-1.5,  1.5]), array([[ 0., -2.],
           [-2.,  0.]]))
    >>> pm.GraphModel("directed").shapes(data, n_labels=5)
    {'features': (5, 3), 'bias': (5,), 'edges': (1, 5, 5)}
    """

    is_by_feature = True

    def __init__(self, pairwise: str = "potts") -> None:
        self.pairwise = pairwise

    @property
    def nonnegative(self) -> tuple[str, ...]:
        """See `Model.nonnegative`: the weights of the edges with ``"potts"``, otherwise none."""
        return ("edges",) if self.pairwise == "potts" else ()

    def check(self, data: Dataset, n_labels: int) -> None:
        """See `Model.check`: for ``"potts"``, edge features that are not negative."""
        if self.pairwise not in _KINDS:
            raise ValueError(f"pairwise must be one of {', '.join(map(repr, _KINDS))}, but is {self.pairwise!r}.")
        if self.pairwise == "potts" and data.edge_features is not None and data.edge_features.minimum() < 0:
            raise ValueError(
                "edge_features must not be negative: with non-negative weights they keep every edge attractive. "
                "Use similarities, such as exp(-distance), or GraphModel('symmetric') or GraphModel('directed'), "
                "which take any sign."
            )

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        """See `Model.shapes`: the blocks are those of sites, ``features`` and ``bias``, and ``edges``."""
        k = n_labels
        n_edge_features = 1 if data.edge_features is None else data.edge_features.n_columns
        if self._has_one_score(k):
            return {"features": (data.n_features,), "bias": (1,), "edges": (n_edge_features,)}
        tables = (n_edge_features,) if self.pairwise == "potts" else (n_edge_features, k, k)
        return {"features": (k, data.n_features), "bias": (k,), "edges": tables}

    def site_weights(self, data: Dataset, n_labels: int) -> NDArray[np.intp]:
        """See `Model.site_weights`: one column for each row of U, or the only one."""
        n, m = data.n_features, 1 if self._has_one_score(n_labels) else n_labels
        features = np.arange(n * m, dtype=np.intp).reshape(m, n).T
        return np.vstack([features, n * m + np.arange(m, dtype=np.intp)])

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        """See `Model.potentials`; without edge features, more than two labels share one table between all edges."""
        if self._has_one_score(n_labels):
            return _two_labels(w, batch)
        weights = self.unpack(w, batch, n_labels)
        unary = batch.features @ weights["features"].T + weights["bias"]
        return Potentials.trusted(batch.layout, unary, self._tables(weights["edges"], batch.edge_features, n_labels))

    def _tables(self, weights: Floats, features: Rows | None, n_labels: int) -> Floats:
        """``sum_m x_e[m] T_m`` for each edge, or T itself where all edges have the feature 1."""
        if self.pairwise == "potts":
            # One number for all pairs that differ: products with tables might round them differently.
            penalty = weights[0] if features is None else (features @ weights)[:, None, None]
            return np.asarray(penalty * (np.eye(n_labels) - 1.0))
        tables = self._symmetrised(weights)
        if features is None:
            return np.ascontiguousarray(tables[0])
        return (features @ tables.reshape(len(tables), -1)).reshape(-1, n_labels, n_labels)

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        """See `LinearModel.pullback`: sums of features, weighted by the moments of labels and of pairs of labels."""
        assert moments.pairwise is not None
        if self._has_one_score(n_labels):
            return _two_labels_pullback(batch, moments)
        unary = batch.features.pullback(moments.unary).T
        pairs, features = moments.pairwise, batch.edge_features
        if self.pairwise == "potts":
            disagreement = np.trace(pairs, axis1=-2, axis2=-1) - pairs.sum(axis=(-2, -1))
            edges = disagreement[None] if features is None else features.pullback(disagreement)
        else:
            flat = pairs.reshape(-1, n_labels * n_labels)
            summed = flat if features is None else features.pullback(flat)
            edges = self._symmetrised(summed.reshape(-1, n_labels, n_labels))
        return np.concatenate([unary.ravel(), moments.unary.sum(axis=0), edges.ravel()])

    def _symmetrised(self, tables: Floats) -> Floats:
        """The nearest symmetric tables for ``"symmetric"``; the map is its own adjoint."""
        return 0.5 * (tables + tables.swapaxes(1, 2)) if self.pairwise == "symmetric" else tables

    def _has_one_score(self, n_labels: int) -> bool:
        return n_labels == 2 and self.pairwise == "potts"

    def squared_length(self, data: Dataset, n_labels: int) -> float:
        """See `Model.squared_length`; the features of edges count too."""
        each = 1.0 if data.edge_features is None else data.edge_features.mean_squared_norm()
        edges = data.layout.n_edges / max(1, data.n_sites) * each
        sites = super().squared_length(data, n_labels)
        return (_BOTH_LABELS * _TWO_LABELS_VARY_MORE if self._has_one_score(n_labels) else 1.0) * sites + edges


def _two_labels(w: Floats, batch: Dataset) -> Potentials:
    """``sum_d (2 y_d - 1) (w_U @ x_d + b) - sum_e w_P @ x_e [y_i != y_j]``."""
    n = batch.n_features
    score = batch.features @ w[:n] + w[n]
    penalty = _edge_features(batch) @ w[n + 1 :]
    tables = np.zeros((len(penalty), 2, 2))
    tables[:, 0, 1] = tables[:, 1, 0] = -penalty
    return Potentials.trusted(batch.layout, np.stack([-score, score], axis=1), tables)


def _two_labels_pullback(batch: Dataset, moments: Moments) -> Floats:
    assert moments.pairwise is not None
    unary = moments.unary[:, 1] - moments.unary[:, 0]
    disagreement = moments.pairwise[:, 0, 1] + moments.pairwise[:, 1, 0]
    edges = -_edge_features(batch).pullback(disagreement)
    return np.concatenate([batch.features.pullback(unary), [unary.sum()], edges])


def _edge_features(batch: Dataset) -> Rows:
    if batch.edge_features is not None:
        return batch.edge_features
    return Rows.of(np.ones((batch.layout.n_edges, 1)), batch.layout.edge_offsets)
