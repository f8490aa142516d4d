"""Examples as a ragged data set: what models are applied to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.data.examples import Example
from perturbmap.data.rows import CHUNK, Rows, digest
from perturbmap.data.sparse_rows import CompressedRows, SparseMatrix, SparseRows
from perturbmap.potentials import Floats, Labels, Layout, Mask, SiteLabels, chain_edges, offsets_of
from perturbmap.potentials.graphs import check_edges, check_order
from perturbmap.support.checks import as_floats, check_finite


class Shards(ABC):
    """Where the examples of a data set lie on disk, and how another process opens a part of them."""

    @property
    @abstractmethod
    def identity(self) -> object:
        """A value that is equal for two objects that stand for the same shards of the same folder."""

    @abstractmethod
    def open(self, shard: int) -> ShardContents:
        """The contents of one shard, read in the process that calls this."""


class StoredExamples(Sequence[Example]):
    """Examples that were checked when they were stored, and need not be in memory: a `Store`."""

    @property
    @abstractmethod
    def dataset(self) -> Dataset:
        """All of the examples, as one data set."""


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples one after another; ``take`` makes a mini-batch.

    layout : which sites and edges are whose, and the examples' random streams
    features : (n_sites, n_features), rows of a matrix that need not be in memory
    edge_features : (n_edges, n_edge_features), or None
    label_features : (n_labels, n_label_features) of each example, or None
    sizes : (n_sites,), how much each site counts in a weighted loss
    shards : (n_examples,), the shard of each example of a `Store`, or None
    store : where these shards are, or None
    """

    layout: Layout
    features: Rows
    edge_features: Rows | None
    label_features: list[Floats] | None
    sizes: Floats
    shards: NDArray[np.int32] | None = None
    store: Shards | None = None

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
        checked = [_Checked.of(n, x if isinstance(x, Example) else Example(x)) for n, x in enumerate(X)]
        features = [x.features for x in checked]
        edge_features = [x.edge_features for x in checked if x.edge_features is not None]
        label_features = [x.label_features for x in checked if x.label_features is not None]
        named = {"features": features, "edge_features": edge_features, "label_features": label_features}
        for name, parts in named.items():
            if parts and len(parts) != len(checked):
                raise ValueError(f"{name} must be given for all examples or for none.")
            if len({part.shape[1] for part in parts}) > 1:
                raise ValueError(
                    f"{name} must have the same number of columns in all examples, "
                    f"but they have {sorted({part.shape[1] for part in parts})}."
                )
        layout = _layout(checked)
        return cls(
            layout,
            _rows(features, layout.site_offsets),
            Rows.of(np.concatenate(edge_features), layout.edge_offsets) if edge_features else None,
            label_features or None,
            np.concatenate([x.sizes for x in checked]),
        )

    def __len__(self) -> int:
        return len(self.layout)

    @property
    def n_sites(self) -> int:
        """The number of sites of all examples together."""
        return self.layout.n_sites

    @property
    def edges(self) -> Labels:
        """The sites of each edge, ``(n_edges, 2)``, counted through the whole data set."""
        return self.layout.edges

    @property
    def n_features(self) -> int:
        """The number of columns of ``features``."""
        return self.features.n_columns

    @cached_property
    def is_root(self) -> Mask:
        """(n_sites,), whether the site is not an edge's second site: on a chain, the first."""
        return self._is_not_in(self.layout.edges[:, 1])

    @cached_property
    def is_leaf(self) -> Mask:
        """(n_sites,), whether the site is not an edge's first site: on a chain, the last."""
        return self._is_not_in(self.layout.edges[:, 0])

    def _is_not_in(self, sites: Labels) -> Mask:
        marks = np.ones(self.n_sites, dtype=bool)
        marks[sites] = False
        return marks

    def take(self, indices: NDArray[np.intp], sites: NDArray[np.intp] | None = None) -> Dataset:
        """A mini-batch of these examples, which keep their streams; ``sites`` are their sites, if known already."""
        return Dataset(
            self.layout.take(indices),
            self.features.take(indices),
            None if self.edge_features is None else self.edge_features.take(indices),
            None if self.label_features is None else [self.label_features[i] for i in indices],
            self.sizes[self.layout.sites_of(indices) if sites is None else sites],
            None if self.shards is None else self.shards[indices],
            self.store,
        )

    def compact(self) -> tuple[Dataset, Labels] | None:
        """The same examples with only the sparse features that they have, and which these are; None of dense ones."""
        if not isinstance(self.features, CompressedRows):
            return None
        features, columns = self.features.compact()
        return replace(self, features=features), columns

    def parts(self) -> Iterator[Dataset]:
        """The examples in order, as few at a time as keeps memory small, where they are on disk.

        Products are those of single examples: their bits do not depend on the parts.
        """
        if self.store is None:
            yield self._by_example()
            return
        first, offsets = 0, self.layout.site_offsets
        while first < len(self):
            last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + CHUNK, side="right")) - 1)
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
        return digest(*arrays, self.layout.site_offsets, self.edges, self.sizes, *(self.label_features or []))


@final
@dataclass(frozen=True, eq=False)
class ShardContents:
    """The examples of a shard, and what the store itself knows of their labels."""

    data: Dataset
    known: SiteLabels | None


@final
@dataclass(frozen=True, eq=False)
class _Checked:
    """The arrays of one example, each of which fits the others; edges of None join consecutive sites."""

    features: Any
    edges: Labels | None
    edge_features: Floats | None
    label_features: Floats | None
    sizes: Floats

    @classmethod
    def of(cls, n: int, x: Example) -> _Checked:
        """Example number n; ValueError names what does not fit."""
        features = _one("features", n, x.features)
        if features.ndim != 2:
            raise ValueError(
                f"features of example {n} must have shape (n_sites, n_features), but has shape {features.shape}."
            )
        n_sites = features.shape[0]
        edges = None if x.edges is None else check_edges(x.edges, n_sites, f"edges of example {n}")
        edge_features = None
        if x.edge_features is not None:
            check_order(x.edges, "edge_features")
            edge_features = _dense("edge_features", n, x.edge_features)
            n_edges = max(0, n_sites - 1) if edges is None else len(edges)
            if edge_features.shape[0] != n_edges:
                raise ValueError(
                    f"edge_features of example {n} must have shape ({n_edges}, ...), one row for each edge, but has "
                    f"shape {edge_features.shape}."
                )
        label_features = None if x.label_features is None else _dense("label_features", n, x.label_features)
        sizes = np.ones(n_sites) if x.sizes is None else as_floats(f"sizes of example {n}", x.sizes)
        if sizes.shape != (n_sites,) or (sizes < 0).any():
            raise ValueError(f"sizes of example {n} must be {n_sites} numbers, none negative.")
        return cls(features, edges, edge_features, label_features, sizes)


def _layout(examples: Sequence[_Checked]) -> Layout:
    counts = [len(x.sizes) for x in examples]
    if all(x.edges is None for x in examples):
        return Layout.of_counts(counts)  # all chains at once
    chains = (
        chain_edges(offsets_of([n])) if x.edges is None else x.edges for n, x in zip(counts, examples, strict=True)
    )
    return Layout.of_counts(counts, list(chains))


def _rows(features: Sequence[Any], offsets: NDArray[np.int64]) -> Rows:
    """The features of all examples; sparse, if those of one are."""
    if not any(sp.issparse(part) for part in features):
        return Rows.of(np.concatenate(features), offsets)
    matrix = SparseMatrix.joined([part if sp.issparse(part) else sp.csr_array(part) for part in features])
    return SparseRows(matrix, offsets[:-1], offsets[1:])


def _one(name: str, n: int, values: Any) -> Any:
    """Features of one example, finite: sparse as CSR; float32 stays, anything else becomes float64."""
    if sp.issparse(values):
        if values.dtype.kind not in "fbiu":
            raise ValueError(f"{name} of example {n} must be numbers, but its dtype is {values.dtype}.")
        matrix = values
        if values.format != "csr" or values.dtype not in (np.float32, np.float64):
            matrix = sp.csr_array(values, dtype=np.float32 if values.dtype == np.bool_ else np.float64)
        check_finite(f"{name} of example {n}", matrix.data)
        return matrix
    array = as_floats(f"{name} of example {n}", values)
    return np.ascontiguousarray(values) if getattr(values, "dtype", None) == np.float32 else array


def _dense(name: str, n: int, values: Any) -> Floats:
    array: Floats = _one(name, n, values.toarray() if sp.issparse(values) else values)
    if array.ndim != 2:
        raise ValueError(f"{name} of example {n} must have two axes, but has shape {array.shape}.")
    return array
