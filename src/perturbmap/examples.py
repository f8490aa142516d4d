"""Structured examples: features of sites and edges, one by one and as a ragged data set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.checks import as_floats
from perturbmap.graphs import check_edges, check_order
from perturbmap.potentials import Floats, Labels
from perturbmap.rows import CHUNK, Rows, digest


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


class StoreRef(NamedTuple):
    """A store's folder, and the number in the whole store of each shard's first example."""

    path: Path
    firsts: dict[int, int]


class StoredExamples(Sequence[Example]):
    """Examples that were checked when they were stored, and need not be in memory: a `Store`."""

    @property
    @abstractmethod
    def dataset(self) -> Dataset:
        """All of them."""


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
    ``is_leaf`` mark the sites that are no edge's second and no edge's first site. Of a `Store`, ``shards`` are the
    shards of the examples and ``store`` says where it is.
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
    shards: NDArray[np.int32] | None = None
    store: StoreRef | None = None

    @classmethod
    def from_examples(cls, X: Sequence[Any]) -> Dataset:
        """Checks the examples; a bare feature matrix is an `Example` without edges; a `Store` was checked before."""
        if isinstance(X, StoredExamples):
            return X.dataset
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
        return cls.joined(
            Rows(matrix, site_offsets[:-1], site_offsets[1:]),
            site_offsets,
            joined,
            edge_offsets,
            Rows(np.concatenate(edge_features), edge_offsets[:-1], edge_offsets[1:]) if edge_features else None,
            label_features or None,
            np.concatenate(sizes),
            np.arange(len(examples), dtype=np.uint64),
        )

    @classmethod
    def joined(
        cls,
        features: Rows,
        site_offsets: NDArray[np.int64],
        edges: Labels,
        edge_offsets: NDArray[np.int64],
        edge_features: Rows | None,
        label_features: list[Floats] | None,
        sizes: Floats,
        streams: NDArray[np.uint64],
        shards: NDArray[np.int32] | None = None,
        store: StoreRef | None = None,
    ) -> Dataset:
        """From arrays that lie one after another already."""
        is_root, is_leaf = np.ones(site_offsets[-1], dtype=bool), np.ones(site_offsets[-1], dtype=bool)
        is_root[edges[:, 1]] = False
        is_leaf[edges[:, 0]] = False
        return cls(
            features,
            site_offsets,
            edges,
            edge_offsets,
            edge_features,
            label_features,
            sizes,
            is_root,
            is_leaf,
            streams,
            shards,
            store,
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
            None if self.shards is None else self.shards[indices],
            self.store,
        )

    def parts(self) -> Iterator[Dataset]:
        """The examples in order, as few at a time as keeps memory small, where they are on disk.

        Products are those of single examples: their bits do not depend on the parts.
        """
        if self.store is None:
            yield self._by_example()
            return
        first = 0
        while first < len(self):
            limit = self.site_offsets[first] + CHUNK
            last = max(first + 1, int(np.searchsorted(self.site_offsets, limit, side="right")) - 1)
            yield self.take(np.arange(first, last))._by_example()
            first = last

    def _by_example(self) -> Dataset:
        edge_features = None if self.edge_features is None else self.edge_features.by_example()
        return replace(self, features=self.features.by_example(), edge_features=edge_features)

    def release(self) -> None:
        """Gives back the memory of what is on disk; it is mapped again when it is needed."""
        for rows in (self.features, self.edge_features):
            if rows is not None:
                rows.release()

    def fingerprint(self) -> bytes:
        """A digest of all that is learned from."""
        rows = [part.fingerprint() for part in (self.features, self.edge_features) if part is not None]
        arrays: list[NDArray[Any]] = [np.frombuffer(row, dtype=np.uint8) for row in rows]
        return digest(*arrays, self.site_offsets, self.edges, self.sizes, *(self.label_features or []))


def _ranges(offsets: NDArray[np.int64], indices: NDArray[np.intp]) -> NDArray[np.intp]:
    counts = (offsets[1:] - offsets[:-1])[indices]
    ends = np.cumsum(counts)
    starts = offsets[indices] - (ends - counts)
    return np.repeat(starts, counts) + np.arange(ends[-1] if ends.size else 0)
