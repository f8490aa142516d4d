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
class MappedMatrix:
    """Rows of the array ``name`` of some shards, one after another, by slices; float16 comes out as float32."""

    def __init__(self, shards: Sequence[Shard], name: str, n_columns: int) -> None:
        self._shards, self._name = list(shards), name
        counts = [int(shard.files[name]["shape"][0]) for shard in shards]
        self.starts = offsets_of(counts)
        kept = np.dtype(shards[0].files[name]["dtype"])  # the same in all shards of a store
        self.dtype = np.dtype(np.float32) if kept == np.float16 else kept
        self.shape = (int(self.starts[-1]), n_columns)
        self._maps: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What the manifests say of each shard's array."""
        return [shard.files[self._name] for shard in self._shards]

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
                parts.append(self._map(shard)[first - start : stop - start])
            first, shard = max(first, stop), shard + 1
        if not parts:
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        block = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return np.asarray(block, dtype=self.dtype)

    def _map(self, number: int) -> NDArray[Any]:
        """The rows of one shard, mapped into memory."""
        with self._lock:
            if number in self._maps:
                self._maps.move_to_end(number)
            else:
                # As a plain array, which is sliced faster, and keeps the map open as long as it is used.
                self._maps[number] = np.asarray(self._shards[number].array(self._name, mapped=True))
                while len(self._maps) > N_MAPPED:
                    self._maps.popitem(last=False)
            return self._maps[number]

    def release(self) -> None:
        """Forgets the maps; those that nobody else holds are closed."""
        with self._lock:
            self._maps.clear()

    def __reduce__(self) -> Any:
        return MappedMatrix, (self._shards, self._name, self.shape[1])


class MappedRows(Rows):
    """Rows of a `MappedMatrix`; what is asked of all of them stands in the manifests."""

    matrix: MappedMatrix

    def _breaks(self) -> NDArray[np.bool_]:
        """A block ends with its shard too, and after so many rows of it: no product reads all of a store at once.

        A worker that has opened this shard alone has the same blocks, and the same bits.
        """
        shard = np.searchsorted(self.matrix.starts, self.starts, side="right")
        group = (self.starts - np.asarray(self.matrix.starts)[shard - 1]) // CHUNK
        return np.asarray(super()._breaks() | (group[1:] != group[:-1]) | (shard[1:] != shard[:-1]))

    def release(self) -> None:
        self.matrix.release()

    def minimum(self) -> float:
        return min(float(entry["minimum"]) for entry in self.matrix.entries)

    def mean_squared_norm(self) -> float:
        """See `Rows.mean_squared_norm`: over all rows of the store, whichever of them these are."""
        return sum(float(entry["squares"]) for entry in self.matrix.entries) / max(1, len(self.matrix))

    def mean_absolute_sum(self) -> float:
        """See `Rows.mean_absolute_sum`: of all rows of the store, whichever these are."""
        return sum(float(entry["absolutes"]) for entry in self.matrix.entries) / max(1, len(self.matrix))

    def fingerprint(self) -> bytes:
        """See `Rows.fingerprint`: made from the checksums, so that no row is read."""
        return json.dumps([(entry["crc32"], entry["shape"]) for entry in self.matrix.entries]).encode()
