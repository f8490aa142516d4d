"""Writing a store: examples as they come, a shard when there are enough of them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.data.dataset import Dataset
from perturbmap.data.examples import Example
from perturbmap.data.labels import encode_labels, find_classes
from perturbmap.data.rows import Rows
from perturbmap.data.sparse_rows import SparseMatrix, SparseRows
from perturbmap.data.store.creating import check_new, creating, holding
from perturbmap.data.store.manifest import DTYPES, FORMAT_VERSION, MANIFEST, SPARSE_DTYPES, About, json_text
from perturbmap.data.store.shards import checksum, find_shards, shard_name
from perturbmap.potentials import offsets_of
from perturbmap.support.checks import check_count
from perturbmap.support.files import clear_leftovers, flush, hidden_folder, naming, write_new
from perturbmap.support.npy import write_array

#: Bytes of features in a shard, about. Two or three shards are in memory at a time, and long reads begin here.
SHARD_BYTES = 64 * 2**20


def write_store(
    path: str | os.PathLike[str],
    examples: Iterable[Any],
    labels: Iterable[Any] | None = None,
    *,
    classes: Sequence[Hashable] | None = None,
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    append: bool = False,
) -> int:
    """Writes examples, and their labels if there are any, as shards of a folder; returns how many were written.

    A shard is a part of the examples that fits into memory. `Store` opens the folder, as X of a fit.

    path : the folder
    examples : `Example` objects or feature matrices, as in X of `StructuredPredictor.fit`; either all have dense
        features, or all have sparse ones. A generator is taken one by one, so that memory holds one shard at most
    labels : one entry for each example, as in y of `StructuredPredictor.fit`, but no probabilities (soft labels)
    classes : all values of the labels, since the first shard may not show them all
    dtype : type of features on disk, "float16", "float32" (the default) or "float64". Sparse features take one of the
        last two, for the entries that are stored; if all of these are 1, no values are written
    shard_bytes : about how many bytes the features of a shard take. Training shuffles the shards, and the examples
        inside each shard, so similar examples should not lie together: shuffle before you write.
    append : whether to add to an existing store; without it, an existing store is an error

    If an example is bad or the disk is full, an error is raised; the shards that were complete by then stay.
    """
    if dtype not in (None, *DTYPES):
        raise ValueError(f'dtype must be "float16", "float32" or "float64", but is {dtype!r}.')
    check_count("shard_bytes", shard_bytes)
    if classes is not None:
        classes = find_classes([], classes)
        if not all(isinstance(c, (str, bool, int, float)) for c in classes):
            raise ValueError("classes must be numbers, texts or booleans to be kept in a store.")
    folder = Path(path).absolute()
    clear_leftovers(folder)
    with ExitStack() as held:
        about = held.enter_context(holding(folder)) if append else None
        if about is None:
            dtype = dtype or "float32"
            check_new(folder)
        else:
            if classes is not None and classes != about.classes:
                raise ValueError(f"classes must be those of the store, {about.classes}, but are {classes}.")
            if dtype not in (None, about.dtype):
                raise ValueError(f"dtype must be that of the store, {about.dtype}, but is {dtype}.")
            classes, dtype = about.classes, about.dtype
        if labels is not None and classes is None:
            raise ValueError("classes must name all values of labels: the first shard may not show them all.")
        n_written = 0
        for shard in _batches(examples, labels, np.dtype(dtype).itemsize, shard_bytes):
            data = Dataset.from_examples([x for x, _ in shard])
            found = _about(data, dtype, classes)
            if about is not None and found != about:
                raise ValueError(
                    "examples must have the numbers of features of the store, and edge features of its type, "
                    f"{_columns(about)}, but examples {n_written} to {n_written + len(shard) - 1} have "
                    f"{_columns(found)}."
                )
            y: list[Any] = [entry for _, entry in shard]
            known = encode_labels(y, data, [] if classes is None else classes, "labels")
            if not known.is_hard:
                raise ValueError("labels must be labels or None, not soft ones: those are passed to fit as a list.")
            features = _Features.of(data.features, np.dtype(dtype))
            if about is None:  # nothing is there before a first shard is right
                check_new(folder)
                about = held.enter_context(creating(folder, found))
            with naming(folder):
                _write_shard(folder, data, features, known.labels)
            n_written += len(shard)
    if about is None:
        raise ValueError("examples must hold at least one example, but is empty.")
    return n_written


def _batches(
    examples: Iterable[Any], labels: Iterable[Any] | None, itemsize: int, shard_bytes: int
) -> Iterator[list[tuple[Any, Any]]]:
    """Examples and labels in batches, each enough for one shard."""
    batch: list[tuple[Any, Any]] = []
    n_bytes = 0
    others = None if labels is None else iter(labels)
    nothing = object()
    n, is_sparse = -1, False
    for n, x in enumerate(examples):
        y = None if others is None else next(others, nothing)
        if y is nothing:
            raise ValueError(f"labels must have one entry for each example, but end after {n}.")
        features = x.features if isinstance(x, Example) else x
        if n > 0 and sp.issparse(features) != is_sparse:
            raise ValueError(
                f"features must be sparse in all examples of a store or in none, but those of example {n} are "
                f"{'dense' if is_sparse else 'sparse'}, unlike those before: pass x.toarray(), or "
                "scipy.sparse.csr_array(x)."
            )
        is_sparse = sp.issparse(features)
        batch.append((x, y))
        n_bytes += features.nnz * (itemsize + 4) if is_sparse else int(np.size(features)) * itemsize
        if n_bytes >= shard_bytes:
            yield batch
            batch, n_bytes = [], 0
    if others is not None and next(others, nothing) is not nothing:
        raise ValueError(f"labels must have one entry for each example, {n + 1}, but have more.")
    if batch:
        yield batch


def _about(data: Dataset, dtype: str, classes: Sequence[Hashable] | None) -> About:
    """What all shards of a store have in common: a worker that sees one of them computes as one that sees all."""
    return About(
        dtype=dtype,
        is_sparse=isinstance(data.features, SparseRows),
        classes=None if classes is None else list(classes),
        n_features=data.n_features,
        n_edge_features=None if data.edge_features is None else data.edge_features.n_columns,
        edge_dtype=None if data.edge_features is None else str(data.edge_features.matrix.dtype),
        n_label_features=None if data.label_features is None else int(data.label_features[0].shape[1]),
    )


def _columns(about: About) -> dict[str, int | str | None]:
    """What examples have, as an error tells it."""
    return {name: value for name, value in about._asdict().items() if name not in ("dtype", "classes")}


class _Features(NamedTuple):
    """Features in the type of the store: arrays, and the rows that they make.

    numbers : the name of the array beside which the sums of the rows stand
    """

    arrays: dict[str, NDArray[Any]]
    numbers: str
    rows: Rows

    @classmethod
    def of(cls, rows: Rows, dtype: np.dtype[Any]) -> _Features:
        """Those of some examples; ValueError where the type cannot hold them."""
        if not isinstance(rows, SparseRows):
            features = _in_type(rows.matrix, dtype)
            return cls({"features": features}, "features", _all_rows(features))
        if dtype.name not in SPARSE_DTYPES:
            raise ValueError(
                f'dtype must be "float32" or "float64" where features are sparse, but is "{dtype.name}".'
            )
        starts, indices = rows.matrix.starts, rows.matrix.indices
        values = None if rows.matrix.values is None else _in_type(rows.matrix.values, dtype)
        kept = SparseRows(SparseMatrix(starts, indices, values, rows.n_columns), rows.starts, rows.stops)
        numbers = np.empty(0, dtype) if values is None else values
        arrays: dict[str, NDArray[Any]] = {
            "feature_starts": starts,
            "feature_indices": indices,
            "feature_values": numbers,
        }
        return cls(arrays, "feature_values", kept)


def _in_type(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        kept: NDArray[Any] = numbers.astype(dtype)
    if not np.isfinite(kept).all():
        raise ValueError(f"features are too large for {dtype.name}: choose a wider dtype for the store.")
    return kept


def _all_rows(matrix: NDArray[Any]) -> Rows:
    return Rows.of(matrix.astype(np.float32) if matrix.dtype == np.float16 else matrix, offsets_of([len(matrix)]))


def _write_shard(folder: Path, data: Dataset, features: _Features, labels: NDArray[np.int32]) -> None:
    """Writes a shard under another name, and renames it when all of it is on disk."""
    summed = {features.numbers: features.rows}
    arrays = {
        **features.arrays,
        "site_offsets": data.layout.site_offsets,
        "edges": data.edges,
        "edge_offsets": data.layout.edge_offsets,
        "sizes": data.sizes,
        "labels": labels,
    }
    if data.edge_features is not None:
        arrays["edge_features"] = data.edge_features.matrix
        summed["edge_features"] = _all_rows(data.edge_features.matrix)
    if data.label_features is not None:
        arrays["label_features"] = np.concatenate(data.label_features)
        arrays["label_offsets"] = offsets_of([len(z) for z in data.label_features])
    with hidden_folder(folder) as partial:
        files = {}
        for name, array in arrays.items():
            file = partial / f"{name}.npy"
            with open(file, "wb") as out:
                write_array(out, array)
                flush(out)
            files[name] = {
                "shape": list(array.shape),
                "dtype": array.dtype.str,
                "bytes": file.stat().st_size,
                "crc32": checksum(file),
            }
            if name in summed:
                numbers = summed[name]
                sums = {"squares": numbers.sum_of_squares(), "absolutes": numbers.sum_of_absolutes()}
                files[name] |= {**sums, "minimum": numbers.minimum()}
        about = {
            "format_version": FORMAT_VERSION,
            "n_examples": len(data),
            "n_sites": data.n_sites,
            "files": files,
        }
        write_new(partial / MANIFEST, json_text(about))
        _sync(partial)
        _rename(partial, folder)


def _rename(partial: Path, folder: Path) -> None:
    """Renames a shard to the next free number; another writer may take it first."""
    number = len(find_shards(folder))
    while True:
        try:
            os.rename(partial, folder / shard_name(number))
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            number += 1
    _sync(folder)


def _sync(folder: Path) -> None:
    """Makes the names in a folder durable, where the system has a way to."""
    with contextlib.suppress(PermissionError):  # Windows does not open folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
