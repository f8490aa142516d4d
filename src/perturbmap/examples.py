"""Structured examples: features of sites and edges, one by one and as a ragged data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.checks import as_floats
from perturbmap.graphs import check_edges, check_order
from perturbmap.potentials import Floats, Labels

# Rows that are looked at together where a matrix may be larger than memory.
_CHUNK = 4096


@final
class Rows:
    """Rows of a feature matrix, dense or sparse, that are multiplied without being copied.

    Example n has the rows ``starts[n]`` to ``stops[n]``; examples that lie one after another are multiplied as one.
    """

    def __init__(self, matrix: Any, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        self.matrix, self.starts, self.stops = matrix, starts, stops
        is_break = starts[1:] != stops[:-1]
        firsts = starts[np.concatenate([[True], is_break])].tolist()
        lasts = stops[np.concatenate([is_break, [True]])].tolist()
        self._blocks = list(zip(firsts, lasts, strict=True))

    @property
    def n_columns(self) -> int:
        """Of the matrix."""
        return int(self.matrix.shape[1])

    def __matmul__(self, weights: Floats) -> Floats:
        """Rows times weights, in the precision of the rows."""
        w = weights.astype(self.matrix.dtype, copy=False)
        products = [np.asarray(self.matrix[a:b] @ w, dtype=np.float64) for a, b in self._blocks]
        return products[0] if len(products) == 1 else np.concatenate(products)

    def pullback(self, values: Floats) -> Floats:
        """The transpose times values, which have one row a row."""
        total = np.zeros((self.n_columns, *values.shape[1:]))
        v, start = values.astype(self.matrix.dtype, copy=False), 0
        for a, b in self._blocks:
            # Transposed twice: BLAS takes the tall matrix by rows.
            total += (v[start : start + b - a].T @ self.matrix[a:b]).T
            start += b - a
        return total

    def mean_squared_norm(self) -> float:
        """Of a row."""
        parts = (self.matrix[c : min(b, c + _CHUNK)] for a, b in self._blocks for c in range(a, b, _CHUNK))
        squares = sum(float((part**2).sum(dtype=np.float64)) for part in parts)
        return squares / max(1, int((self.stops - self.starts).sum()))

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """The rows of some examples. Slices of a sparse matrix are dear: its rows are copied once instead."""
        starts, stops = self.starts[indices], self.stops[indices]
        if not sp.issparse(self.matrix):
            return Rows(self.matrix, starts, stops)
        rows = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
        ends = np.cumsum(stops - starts)
        return Rows(self.matrix[rows], ends - (stops - starts), ends)


@final
@dataclass(frozen=True, eq=False)
class Example:
    """The input x of one example.

    features : (n_sites, n_features), dense or ``scipy.sparse``; float32 is kept, for half the memory and time
    edges : (n_edges, 2), or a graph that `graph_edges` takes, optional; left out, consecutive sites are joined.
        Direction matters to `SequenceModel` (parent, child).
    edge_features : (n_edges, n_edge_features), optional
    label_features : (n_labels, n_label_features), optional; of the things that sites are matched to
    sizes : (n_sites,), optional; how much a site counts in a weighted loss, for instance its area

    >>> x = pm.Example(np.zeros((4, 3)), pm.grid_edges(2, 2), sizes=[5, 1, 1, 2])
    >>> x.edges.shape
    (4, 2)
    """

    features: Any
    edges: Any = None
    edge_features: Any = None
    label_features: Any = None
    sizes: Any = None


def _rows(name: str, n: int, array: Any, n_rows: int, rows_of: str) -> Any:
    if array.ndim != 2 or array.shape[0] != n_rows:
        raise ValueError(
            f"{name} of example {n} must have shape ({n_rows}, ...), one row {rows_of}, but has shape {array.shape}."
        )
    return array


def _one(name: str, n: int, values: Any) -> Any:
    """Features of one example, finite: sparse as CSR; float32 stays, anything else becomes float64."""
    if sp.issparse(values):
        matrix = sp.csr_array(values, dtype=np.float64)
        if not np.isfinite(matrix.data).all():
            raise ValueError(f"{name} of example {n} must be finite.")
        return matrix
    array = as_floats(f"{name} of example {n}", values)
    return np.ascontiguousarray(values) if getattr(values, "dtype", None) == np.float32 else array


def _dense(name: str, n: int, values: Any) -> Floats:
    array: Floats = _one(name, n, values.toarray() if sp.issparse(values) else values)
    if array.ndim != 2:
        raise ValueError(f"{name} of example {n} must have two axes, but has shape {array.shape}.")
    return array


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples one after another, as `Potentials` has them; ``take`` makes a mini-batch.

    ``streams`` are the examples' random streams: their positions in the data set they come from. ``is_root`` and
    ``is_leaf`` mark the sites that are no edge's second and no edge's first site.
    """

    features: Rows
    site_offsets: NDArray[np.int64]
    edges: Labels
    edge_offsets: NDArray[np.int64]
    edge_features: Rows | None
    label_features: list[Floats] | None
    sizes: Floats
    is_root: NDArray[np.bool_]
    is_leaf: NDArray[np.bool_]
    streams: NDArray[np.uint64]

    @classmethod
    def from_examples(cls, X: Sequence[Any]) -> Dataset:
        """Checks the examples; a bare feature matrix is an `Example` without edges."""
        if isinstance(X, (np.ndarray, str, dict, Example)) or sp.issparse(X) or not hasattr(X, "__len__"):
            raise ValueError(
                "X must be a list of examples, one feature matrix (n_sites, n_features) or Example each, "
                f"but is a {type(X).__name__}. A single example is a list of one."
            )
        if len(X) == 0:
            raise ValueError("X must hold at least one example, but is empty.")
        examples = [x if isinstance(x, Example) else Example(x) for x in X]
        features = []
        edges, sizes = [], []
        edge_features: list[Floats] = []
        label_features: list[Floats] = []
        for n, x in enumerate(examples):
            rows = _one("features", n, x.features)
            if rows.ndim != 2:
                raise ValueError(
                    f"features of example {n} must have shape (n_sites, n_features), but has shape {rows.shape}."
                )
            n_sites = rows.shape[0]
            features.append(rows)
            if x.edges is None:
                steps = np.arange(max(0, n_sites - 1), dtype=np.int32)
                edges.append(np.stack([steps, steps + np.int32(1)], axis=1))
            else:
                edges.append(check_edges(x.edges, n_sites, f"edges of example {n}"))
            if x.edge_features is not None:
                check_order(x.edges, "edge_features")
                rows = _dense("edge_features", n, x.edge_features)
                edge_features.append(_rows("edge_features", n, rows, len(edges[-1]), "an edge"))
            if x.label_features is not None:
                label_features.append(_dense("label_features", n, x.label_features))
            size = np.ones(n_sites) if x.sizes is None else as_floats(f"sizes of example {n}", x.sizes)
            if size.shape != (n_sites,) or (size < 0).any():
                raise ValueError(f"sizes of example {n} must be {n_sites} numbers, none negative.")
            sizes.append(size)
        for name, parts in (
            ("features", features),
            ("edge_features", edge_features),
            ("label_features", label_features),
        ):
            if parts and len(parts) != len(examples):
                raise ValueError(f"{name} must be given for all examples or for none.")
            if len({part.shape[1] for part in parts}) > 1:
                raise ValueError(
                    f"{name} must have the same number of columns in all examples, "
                    f"but they have {sorted({part.shape[1] for part in parts})}."
                )
        is_sparse = any(sp.issparse(part) for part in features)
        site_offsets = np.concatenate([[0], np.cumsum([part.shape[0] for part in features])]).astype(np.int64)
        matrix = sp.csr_array(sp.vstack(features)) if is_sparse else np.concatenate(features)
        edge_offsets = np.concatenate([[0], np.cumsum([len(e) for e in edges])]).astype(np.int64)
        joined = np.concatenate([e + np.int32(s) for e, s in zip(edges, site_offsets[:-1], strict=True)])
        is_root, is_leaf = np.ones(site_offsets[-1], dtype=bool), np.ones(site_offsets[-1], dtype=bool)
        is_root[joined[:, 1]] = False
        is_leaf[joined[:, 0]] = False
        return cls(
            Rows(matrix, site_offsets[:-1], site_offsets[1:]),
            site_offsets,
            joined,
            edge_offsets,
            Rows(np.concatenate(edge_features), edge_offsets[:-1], edge_offsets[1:]) if edge_features else None,
            label_features or None,
            np.concatenate(sizes),
            is_root,
            is_leaf,
            np.arange(len(examples), dtype=np.uint64),
        )

    def __len__(self) -> int:
        return len(self.streams)

    @property
    def n_sites(self) -> int:
        """Of all examples together."""
        return int(self.site_offsets[-1])

    @property
    def n_features(self) -> int:
        """Columns of ``features``."""
        return self.features.n_columns

    @property
    def site_counts(self) -> NDArray[np.int64]:
        """Of each example."""
        return np.diff(self.site_offsets)

    def sites_of(self, indices: NDArray[np.intp]) -> NDArray[np.intp]:
        """The sites of some examples, one after another."""
        return _ranges(self.site_offsets, indices)

    def take(self, indices: NDArray[np.intp]) -> Dataset:
        """A mini-batch of these examples; they keep their streams."""
        sites, edges = _ranges(self.site_offsets, indices), _ranges(self.edge_offsets, indices)
        site_offsets = np.concatenate([[0], np.cumsum(np.diff(self.site_offsets)[indices])])
        edge_counts = np.diff(self.edge_offsets)[indices]
        moved = np.repeat(site_offsets[:-1] - self.site_offsets[indices], edge_counts).astype(np.int32)
        return Dataset(
            self.features.take(indices),
            site_offsets,
            self.edges[edges] + moved[:, None],
            np.concatenate([[0], np.cumsum(edge_counts)]),
            None if self.edge_features is None else self.edge_features.take(indices),
            None if self.label_features is None else [self.label_features[i] for i in indices],
            self.sizes[sites],
            self.is_root[sites],
            self.is_leaf[sites],
            self.streams[indices],
        )


def _ranges(offsets: NDArray[np.int64], indices: NDArray[np.intp]) -> NDArray[np.intp]:
    counts = (offsets[1:] - offsets[:-1])[indices]
    ends = np.cumsum(counts)
    starts = offsets[indices] - (ends - counts)
    return np.repeat(starts, counts) + np.arange(ends[-1] if ends.size else 0)
