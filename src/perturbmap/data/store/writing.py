"""Writing a store: examples as they come, a shard when there are enough of them."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import socket
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.data.dataset import Dataset
from perturbmap.data.examples import Example
from perturbmap.data.labels import encode_labels, find_classes
from perturbmap.data.rows import Rows
from perturbmap.data.store.shards import (
    FORMAT_VERSION,
    MANIFEST,
    STORE,
    checksum,
    find_shards,
    json_text,
    read_json,
    shard_name,
)
from perturbmap.potentials import offsets_of
from perturbmap.support.checks import check_count
from perturbmap.support.files import write_atomically

_PARTIAL = "partial-"
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

    Examples are `Example` or feature matrices, as in X of `StructuredPredictor.fit`; a generator is taken one by one,
    so that memory holds one shard at most. Labels are as in y, but for soft ones, and ``classes`` names all their
    values. Where an example is bad, or the disk is full, the shards before it are there when the error comes.

    dtype : of features on disk, "float16", "float32" (the default) or "float64"
    shard_bytes : of features in a shard, about. Training shuffles shards, and examples inside a shard: examples that
        are alike should not lie together, so shuffle before you write.
    append : to a store that is there; without it, such a store is an error
    """
    if dtype not in (None, "float16", "float32", "float64"):
        raise ValueError(f'dtype must be "float16", "float32" or "float64", but is {dtype!r}.')
    check_count("shard_bytes", shard_bytes)
    if classes is not None:
        classes = find_classes([], classes)
        if not all(isinstance(c, (str, bool, int, float)) for c in classes):
            raise ValueError("classes must be numbers, texts or booleans to be kept in a store.")
    folder = Path(path).absolute()
    if append:
        about = read_json(folder / STORE, "store")
        if classes is not None and classes != about["classes"]:
            raise ValueError(f"classes must be those of the store, {about['classes']}, but are {classes}.")
        if dtype not in (None, about["dtype"]):
            raise ValueError(f"dtype must be that of the store, {about['dtype']}, but is {dtype}.")
        classes, dtype = about["classes"], about["dtype"]
    else:
        about, dtype = None, dtype or "float32"
        _check_new(folder)
    if labels is not None and classes is None:
        raise ValueError("classes must name all values of labels: the first shard may not show them all.")
    n_written = 0
    for shard in _batches(examples, labels, np.dtype(dtype).itemsize, shard_bytes):
        data = Dataset.from_examples([x for x, _ in shard])
        columns = _columns(data)
        if about is not None and columns != {key: about[key] for key in columns}:
            raise ValueError(
                "examples must have the numbers of features of the store, and edge features of its type, "
                f"{ {k: about[k] for k in columns} }, but examples {n_written} to {n_written + len(shard) - 1} have "
                f"{columns}."
            )
        y: list[Any] = [entry for _, entry in shard]
        known = encode_labels(y, data, [] if classes is None else classes, "labels")
        if not known.is_hard:
            raise ValueError("labels must be labels or None, not soft ones: those are passed to fit as a list.")
        if about is None:  # nothing is there before a first shard is right
            about = {"format_version": FORMAT_VERSION, "dtype": dtype, "classes": classes, **columns}
            _check_new(folder)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / STORE, functools.partial(_fill, json_text(about)))
        _write_shard(folder, data, known.labels, np.dtype(dtype))
        n_written += len(shard)
    if about is None:
        raise ValueError("examples must hold at least one example, but is empty.")
    return n_written


def _check_new(folder: Path) -> None:
    """A store whose writer was killed before its first shard holds nothing, and is written anew."""
    if folder.is_dir() and find_shards(folder):
        raise FileExistsError(f"{folder} is a store already: pass append=True to add to it, or name another folder.")


def _batches(
    examples: Iterable[Any], labels: Iterable[Any] | None, itemsize: int, shard_bytes: int
) -> Iterator[list[tuple[Any, Any]]]:
    """Examples and labels in batches, each enough for one shard."""
    batch: list[tuple[Any, Any]] = []
    n_bytes = 0
    others = None if labels is None else iter(labels)
    nothing = object()
    n = -1
    for n, x in enumerate(examples):
        y = None if others is None else next(others, nothing)
        if y is nothing:
            raise ValueError(f"labels must have one entry for each example, but end after {n}.")
        features = x.features if isinstance(x, Example) else x
        if sp.issparse(features):
            raise ValueError(f"features of example {n} are sparse, which a store does not hold: pass x.toarray().")
        batch.append((x, y))
        n_bytes += int(np.size(features)) * itemsize
        if n_bytes >= shard_bytes:
            yield batch
            batch, n_bytes = [], 0
    if others is not None and next(others, nothing) is not nothing:
        raise ValueError(f"labels must have one entry for each example, {n + 1}, but have more.")
    if batch:
        yield batch


def _columns(data: Dataset) -> dict[str, int | str | None]:
    """What all shards of a store have in common: a worker that sees one of them computes as one that sees all."""
    return {
        "n_features": data.n_features,
        "n_edge_features": None if data.edge_features is None else data.edge_features.n_columns,
        "edge_dtype": None if data.edge_features is None else str(data.edge_features.matrix.dtype),
        "n_label_features": None if data.label_features is None else int(data.label_features[0].shape[1]),
    }


def _write_shard(folder: Path, data: Dataset, labels: NDArray[np.int32], dtype: np.dtype[Any]) -> None:
    """Writes a shard under another name, and renames it when all of it is on disk."""
    with np.errstate(over="ignore"):
        features = data.features.matrix.astype(dtype)
    if not np.isfinite(features).all():
        raise ValueError(f"features are too large for {dtype.name}: choose a wider dtype for the store.")
    arrays = {
        "features": features,
        "site_offsets": data.layout.site_offsets,
        "edges": data.edges,
        "edge_offsets": data.layout.edge_offsets,
        "sizes": data.sizes,
        "labels": labels,
    }
    if data.edge_features is not None:
        arrays["edge_features"] = data.edge_features.matrix
    if data.label_features is not None:
        arrays["label_features"] = np.concatenate(data.label_features)
        arrays["label_offsets"] = offsets_of([len(z) for z in data.label_features])
    _remove_leftovers(folder)
    partial = folder / f"{_PARTIAL}{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        partial.mkdir()
        files = {}
        for name, array in arrays.items():
            file = partial / f"{name}.npy"
            with open(file, "wb") as out:
                # As np.save does, but by a write that says why it failed.
                np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(array))
                out.write(np.ascontiguousarray(array).data if array.size else b"")
                out.flush()
                os.fsync(out.fileno())
            files[name] = {
                "shape": list(array.shape),
                "dtype": array.dtype.str,
                "bytes": file.stat().st_size,
                "crc32": checksum(file),
            }
            if name in ("features", "edge_features"):
                kept = array.astype(np.float32) if array.dtype == np.float16 else array
                rows = Rows.of(kept, offsets_of([len(kept)]))
                sums = {"squares": rows.sum_of_squares(), "absolutes": rows.sum_of_absolutes()}
                files[name] |= {**sums, "minimum": rows.minimum()}
        about = {
            "format_version": FORMAT_VERSION,
            "n_examples": len(data),
            "n_sites": data.n_sites,
            "files": files,
        }
        write_atomically(partial / MANIFEST, functools.partial(_fill, json_text(about)))
        _sync(partial)
        _rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _fill(text: bytes, file: IO[bytes]) -> None:
    file.write(text)


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


def _remove_leftovers(folder: Path) -> None:
    """Removes what writers of this machine left that were killed."""
    if os.name != "posix":  # elsewhere one cannot ask whether a process is alive without ending it
        return
    prefix = f"{_PARTIAL}{socket.gethostname()}-"
    for entry in folder.glob(f"{_PARTIAL}*"):
        process = entry.name.removeprefix(prefix).split("-")[0]
        if entry.name.startswith(prefix) and process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(entry, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
