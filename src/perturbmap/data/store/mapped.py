"""A matrix whose rows lie in many files, of which a few are mapped at a time."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data.rows import CHUNK, Rows
from perturbmap.data.store.shards import Shard
from perturbmap.potentials import offsets_of

#: Shards that stay mapped: a step that runs from one shard into the next needs two. A map's pages count as memory.
N_MAPPED = 3


@final
class Maps:
    """The arrays of these names of some shards, which are mapped when they are needed."""

    def __init__(self, shards: Sequence[Shard], names: Sequence[str]) -> None:
        self.shards, self.names = list(shards), tuple(names)
        self._kept: OrderedDict[int, list[NDArray[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> list[NDArray[Any]]:
        """Those of one shard, in the order of the names."""
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
            else:
                # As plain arrays, which are sliced faster, and keep the map open as long as they are used.
                arrays = [self.shards[number].array(name, mapped=True) for name in self.names]
                self._kept[number] = [np.asarray(array) for array in arrays]
                while len(self._kept) > N_MAPPED:
                    self._kept.popitem(last=False)
            return self._kept[number]

    def entries(self, name: str) -> list[dict[str, Any]]:
        """What the manifests say of an array of each shard."""
        return [shard.files[name] for shard in self.shards]

    def release(self) -> None:
        """Forgets the maps; those that nobody else holds are closed."""
        with self._lock:
            self._kept.clear()

    def __reduce__(self) -> Any:
        return Maps, (self.shards, self.names)


class MatrixOfShards:
    """Rows of some shards, one after another.

    summed : the name of the array of which the manifests have sums
    starts : the first row of each shard, and the number of all
    """

    def __init__(self, maps: Maps, summed: str, counts: Sequence[int], n_columns: int) -> None:
        self.maps, self.summed = maps, summed
        self.starts = offsets_of(counts)
        self.shape = (int(self.starts[-1]), n_columns)

    def __len__(self) -> int:
        return self.shape[0]


@final
class MappedMatrix(MatrixOfShards):
    """Rows of the array ``name`` of some shards, by slices; float16 comes out as float32."""

    def __init__(self, shards: Sequence[Shard], name: str, n_columns: int) -> None:
        maps = Maps(shards, [name])
        super().__init__(maps, name, [int(entry["shape"][0]) for entry in maps.entries(name)], n_columns)
        kept = np.dtype(shards[0].files[name]["dtype"])  # the same in all shards of a store
        self.dtype = np.dtype(np.float32) if kept == np.float16 else kept

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        first, last, step = rows.indices(self.shape[0])
        if step != 1:
            raise ValueError("rows of a store are taken by slices with step 1.")
        parts = []
        shard = int(np.searchsorted(self.starts, first, side="right")) - 1
        while first < last:
            stop = min(last, int(self.starts[shard + 1]))
            start = int(self.starts[shard])
            if stop > first:
                (mapped,) = self.maps[shard]
                parts.append(mapped[first - start : stop - start])
            first, shard = max(first, stop), shard + 1
        if not parts:
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        block = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return np.asarray(block, dtype=self.dtype)

    def __reduce__(self) -> Any:
        return MappedMatrix, (self.maps.shards, self.summed, self.shape[1])


class RowsOfShards(Rows):
    """Rows of a `MatrixOfShards`; what is asked of all of them stands in the manifests."""

    matrix: MatrixOfShards

    def _breaks(self) -> NDArray[np.bool_]:
        """A block ends with its shard too, and after so many rows of it: no product reads all of a store at once.

        A worker that has opened this shard alone has the same blocks, and the same bits.
        """
        shard = np.searchsorted(self.matrix.starts, self.starts, side="right")
        group = (self.starts - np.asarray(self.matrix.starts)[shard - 1]) // CHUNK
        return np.asarray(super()._breaks() | (group[1:] != group[:-1]) | (shard[1:] != shard[:-1]))

    def release(self) -> None:
        self.matrix.maps.release()

    def minimum(self) -> float:
        return min(self._stated("minimum"))

    def mean_squared_norm(self) -> float:
        """See `Rows.mean_squared_norm`: over all rows of the store, whichever of them these are."""
        return sum(self._stated("squares")) / max(1, len(self.matrix))

    def mean_absolute_sum(self) -> float:
        """See `Rows.mean_absolute_sum`: of all rows of the store, whichever these are."""
        return sum(self._stated("absolutes")) / max(1, len(self.matrix))

    def _stated(self, key: str) -> list[float]:
        """What the manifests say of the numbers of each shard."""
        return [float(entry[key]) for entry in self.matrix.maps.entries(self.matrix.summed)]

    def fingerprint(self) -> bytes:
        """See `Rows.fingerprint`: made from the checksums, so that no row is read."""
        entries = [entry for name in self.matrix.maps.names for entry in self.matrix.maps.entries(name)]
        return json.dumps([(entry["crc32"], entry["shape"]) for entry in entries]).encode()


@final
class MappedRows(RowsOfShards):
    """Rows of a `MappedMatrix`, multiplied where they are."""

    matrix: MappedMatrix
