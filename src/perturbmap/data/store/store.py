"""A store as X: examples by number, and all of them as a data set whose features stay on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data.dataset import Dataset, ShardContents, Shards, StoredExamples
from perturbmap.data.examples import Example
from perturbmap.data.labels import EncodedLabels, encode_labels
from perturbmap.data.rows import Rows
from perturbmap.data.store.manifest import MANIFEST, About, count_examples
from perturbmap.data.store.mapped import MappedMatrix, MappedRows
from perturbmap.data.store.mapped_sparse import MappedSparseMatrix, MappedSparseRows
from perturbmap.data.store.shards import Identity, Shard, find_shards, identity, shard_name
from perturbmap.potentials import Layout, offsets_of

# The two sites of an edge are 32-bit numbers.
_MOST_SITES = 2**31 - 1


@final
@dataclass(frozen=True)
class StoreShards(Shards):
    """Shards of a store: its folder, and the number in the whole store of each shard's first example."""

    path: Path
    firsts: tuple[tuple[int, int], ...]

    @property
    def identity(self) -> object:
        return self.path, self.firsts

    def open(self, shard: int) -> ShardContents:
        """See `Shards.open`; kept as long as the shard is that of its manifest: a hundredth of it is in memory."""
        manifest = identity(self.path / shard_name(shard) / MANIFEST)
        return _open_shard(self.path, shard, dict(self.firsts)[shard], manifest)


# Workers of a fit come back to their shards round after round. What is kept of one, labels and edges, is about a
# hundredth of it: of 256 shards of 64 MB, some 160 MB.
@lru_cache(maxsize=256)
def _open_shard(path: Path, shard: int, first: int, manifest: Identity) -> ShardContents:
    store = Store.one_shard(path, shard, first)
    labels = None if store.classes is None else store.y
    known = None if labels is None else encode_labels(labels, store.dataset, labels.classes)
    return ShardContents(store.dataset, known)


@final
class Store(StoredExamples):
    """Examples in a folder that `write_store` wrote, as X of a `StructuredPredictor`.

    The folder consists of shards, each with some of the examples.

    path : the folder
    shards : numbers of the shards to look at; all by default

    Opening a store reads the manifest of each shard, a small file that describes it. Features and edge features stay
    on disk, mapped a few shards at a time; the rest, about 40 bytes per site and in a fit as many again, is read when
    it is first needed. An array is checked against its checksum when it is first used. Shards that are written later
    are seen by whoever opens the store later.
    """

    def __init__(self, path: str | os.PathLike[str], shards: Sequence[int] | None = None) -> None:
        self.path = Path(path).absolute()  # workers may be in another folder
        self._about = About.read(self.path)
        folders = find_shards(self.path)
        if not folders:
            raise ValueError(
                f"{self.path} has no finished shard: write_store did not come to the end of one. Write it again."
            )
        self.shards = list(range(len(folders))) if shards is None else [int(n) for n in shards]
        if not self.shards or not all(0 <= n < len(folders) for n in self.shards):
            raise ValueError(f"shards must be numbers from 0 to {len(folders) - 1}, but are {self.shards}.")
        if sorted(set(self.shards)) != self.shards:
            raise ValueError(f"shards must be sorted, and none may repeat, but are {self.shards}.")
        # The number of an example in the whole store is that of its random stream: all shards are counted.
        chosen = set(self.shards)
        parts = {n: Shard.open(folders[n], self._about) for n in self.shards}
        counts = [parts[n].n_examples if n in chosen else count_examples(folder) for n, folder in enumerate(folders)]
        firsts = offsets_of(counts)
        self._set([parts[n] for n in self.shards], firsts[self.shards].tolist())

    def _set(self, parts: list[Shard], firsts: list[int]) -> None:
        if sum(shard.n_sites for shard in parts) > _MOST_SITES:
            raise ValueError(
                f"{self.path} has more than {_MOST_SITES} sites in these shards: open fewer at once (shards=)."
            )
        self._parts, self._firsts = parts, firsts
        self._offsets = offsets_of([s.n_examples for s in parts])

    @classmethod
    def one_shard(cls, path: str | os.PathLike[str], number: int, first: int) -> Store:
        """Opens one shard alone; ``first`` is the number of its first example in the whole store."""
        store = object.__new__(cls)
        store.path, store.shards = Path(path).absolute(), [number]
        store._about = About.read(store.path)
        store._set([Shard.open(store.path / shard_name(number), store._about)], [first])
        return store

    def __reduce__(self) -> Any:
        # What travels to another process is where it is, not what is in it.
        if len(self.shards) == 1:
            return Store.one_shard, (self.path, self.shards[0], self._firsts[0])
        return Store, (self.path, self.shards)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}: {len(self)} examples in {len(self.shards)} shards)"

    def __len__(self) -> int:
        return int(self._offsets[-1])

    @property
    def classes(self) -> list[Any] | None:
        """The values of the stored labels, or None if the store was written without labels."""
        return self._about.classes

    def __getitem__(self, index: Any) -> Any:
        """An example, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        data, n = self.dataset, range(len(self))[index]
        sites, edges = data.layout.sites(n), data.layout.edges_between(n)
        return Example(
            data.features.matrix[sites].copy(),
            data.edges[edges] - np.int32(sites.start),
            None if data.edge_features is None else data.edge_features.matrix[edges].copy(),
            None if data.label_features is None else data.label_features[n],
            data.sizes[sites],
        )

    def __iter__(self) -> Iterator[Example]:
        return (self[n] for n in range(len(self)))

    @property
    def y(self) -> EncodedLabels:
        """The labels that were written with the examples, as y of ``fit``."""
        if self.classes is None:
            raise ValueError(f"{self.path} was written without labels: pass them to fit as a list.")
        return EncodedLabels(
            self._joined("labels"), self.dataset.layout.site_offsets, self.classes, self.dataset.store
        )

    def verify(self) -> None:
        """Reads every byte of the shards and raises a ValueError that names the first damaged file."""
        for shard in self._parts:
            for name in shard.files:
                shard.array(name, mapped=True)

    def _joined(self, name: str) -> NDArray[Any]:
        return np.concatenate([shard.array(name) for shard in self._parts])

    @cached_property
    def dataset(self) -> Dataset:
        """All examples as one data set, whose features stay on disk."""
        starts = offsets_of([shard.n_sites for shard in self._parts])
        edges = [shard.array("edges") + np.int32(start) for shard, start in zip(self._parts, starts, strict=False)]
        sizes = [shard.n_examples for shard in self._parts]
        streams = [np.arange(a, a + n) for a, n in zip(self._firsts, sizes, strict=True)]
        layout = Layout(
            _join_offsets([shard.array("site_offsets") for shard in self._parts]),
            np.concatenate(edges),
            _join_offsets([shard.array("edge_offsets") for shard in self._parts]),
            np.concatenate(streams).astype(np.uint64),
        )
        label_features = edge_features = None
        if self._about.n_label_features is not None:
            label_features = [
                rows
                for shard in self._parts
                for rows in np.split(shard.array("label_features"), shard.array("label_offsets")[1:-1])
            ]
        if self._about.n_edge_features is not None:
            edge_features = self._rows("edge_features", self._about.n_edge_features, layout.edge_offsets)
        return Dataset(
            layout,
            self._features(layout.site_offsets),
            edge_features,
            label_features,
            self._joined("sizes"),
            shards=np.repeat(np.array(self.shards, dtype=np.int32), sizes),
            store=StoreShards(self.path, tuple(zip(self.shards, self._firsts, strict=True))),
        )

    def _features(self, offsets: NDArray[np.int64]) -> Rows:
        n_columns = self._about.n_features
        if self._about.is_sparse:
            return MappedSparseRows.of(MappedSparseMatrix(self._parts, n_columns), offsets)
        return self._rows("features", n_columns, offsets)

    def _rows(self, name: str, n_columns: int, offsets: NDArray[np.int64]) -> Rows:
        return MappedRows.of(MappedMatrix(self._parts, name, n_columns), offsets)


def _join_offsets(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return offsets_of(np.concatenate([np.diff(part) for part in parts]))
