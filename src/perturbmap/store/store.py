"""A store as X: examples by number, and all of them as a data set whose features stay on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.annotations import EncodedLabels
from perturbmap.examples import Dataset, Example, StoredExamples, StoreRef
from perturbmap.rows import Rows
from perturbmap.store.mapped import MappedMatrix, MappedRows
from perturbmap.store.shards import STORE, Shard, count_examples, find_shards, read_json, shard_name


@final
class Store(StoredExamples):
    """Examples in a folder that `write_store` wrote, as X of a `StructuredPredictor`.

    path : the folder
    shards : numbers of the shards to look at; all by default

    Opening it reads the manifests. Features and edge features stay on disk, mapped a few shards at a time; the rest,
    about 40 bytes a site and in a fit as many again, is read when it is first needed. An array is checked against its
    checksum when it is first used. Shards that are written later are seen by whoever opens the store later.
    """

    def __init__(self, path: str | os.PathLike[str], shards: Sequence[int] | None = None) -> None:
        self.path = Path(path).absolute()  # workers may be in another folder
        self._about = read_json(self.path / STORE, "store")
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
        parts = {n: Shard.open(folders[n]) for n in self.shards}
        counts = [parts[n].n_examples if n in chosen else count_examples(folder) for n, folder in enumerate(folders)]
        firsts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._set([parts[n] for n in self.shards], firsts[self.shards].tolist())

    def _set(self, parts: list[Shard], firsts: list[int]) -> None:
        self._parts, self._firsts = parts, firsts
        self._offsets = np.concatenate([[0], np.cumsum([s.n_examples for s in parts], dtype=np.int64)])

    @classmethod
    def one_shard(cls, path: str | os.PathLike[str], number: int, first: int) -> Store:
        """A shard whose first example has the number ``first`` in the whole store: no other is looked at."""
        store = object.__new__(cls)
        store.path, store.shards = Path(path).absolute(), [number]
        store._about = read_json(store.path / STORE, "store")
        store._set([Shard.open(store.path / shard_name(number))], [first])
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
        """The values of its labels."""
        classes: list[Any] | None = self._about["classes"]
        return classes

    def __getitem__(self, index: Any) -> Any:
        """An example, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        data, n = self.dataset, range(len(self))[index]
        edges = slice(int(data.edge_offsets[n]), int(data.edge_offsets[n + 1]))
        sites = slice(int(data.site_offsets[n]), int(data.site_offsets[n + 1]))
        return Example(
            np.array(data.features.matrix[sites]),
            data.edges[edges] - np.int32(sites.start),
            None if data.edge_features is None else np.array(data.edge_features.matrix[edges]),
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
        return EncodedLabels(self._joined("labels"), self.dataset.site_offsets, self.classes, self.dataset.store)

    def verify(self) -> None:
        """Reads every byte; raises ValueError that names the first damaged file."""
        for shard in self._parts:
            for name in shard.files:
                shard.array(name, mapped=True)

    def _joined(self, name: str) -> NDArray[Any]:
        return np.concatenate([shard.array(name) for shard in self._parts])

    @cached_property
    def dataset(self) -> Dataset:
        """All examples, features on disk."""
        site_offsets = _join_offsets([shard.array("site_offsets") for shard in self._parts])
        edge_offsets = _join_offsets([shard.array("edge_offsets") for shard in self._parts])
        starts = np.concatenate([[0], np.cumsum([shard.n_sites for shard in self._parts])])
        edges = [shard.array("edges") + np.int32(start) for shard, start in zip(self._parts, starts, strict=False)]
        sizes = [shard.n_examples for shard in self._parts]
        streams = [np.arange(a, a + n) for a, n in zip(self._firsts, sizes, strict=True)]
        label_features = None
        if self._about["n_label_features"] is not None:
            label_features = [
                rows
                for shard in self._parts
                for rows in np.split(shard.array("label_features"), shard.array("label_offsets")[1:-1])
            ]
        return Dataset.joined(
            self._rows("features", "n_features", site_offsets),
            site_offsets,
            np.concatenate(edges),
            edge_offsets,
            None
            if self._about["n_edge_features"] is None
            else self._rows("edge_features", "n_edge_features", edge_offsets),
            label_features,
            self._joined("sizes"),
            np.concatenate(streams).astype(np.uint64),
            shards=np.repeat(np.array(self.shards, dtype=np.int32), sizes),
            store=StoreRef(self.path, dict(zip(self.shards, self._firsts, strict=True))),
        )

    def _rows(self, name: str, columns: str, offsets: NDArray[np.int64]) -> Rows:
        matrix = MappedMatrix(self._parts, name, int(self._about[columns]))
        return MappedRows(matrix, offsets[:-1], offsets[1:])


def _join_offsets(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))]).astype(np.int64)
