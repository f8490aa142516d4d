"""One shard: its manifest, and its arrays, checked before they are used."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data.store.manifest import About, Manifest
from perturbmap.support.damage import DAMAGE, reason
from perturbmap.support.npy import load_array, read_header

_NAME = re.compile(r"shard-([0-9]{6,})")
# The arrays that offsets point into, and those that an array is held to.
_ENDS = {
    "site_offsets": "labels",
    "edge_offsets": "edges",
    "label_offsets": "label_features",
    "feature_starts": "feature_indices",
}
_CHECKED_FIRST = {"edges": ("site_offsets", "edge_offsets")}
# Bytes that are read at a time, a multiple of the size of any number.
_BLOCK = 2**20


def shard_name(number: int) -> str:
    """The folder of a finished shard."""
    return f"shard-{number:06d}"


def find_shards(folder: Path) -> list[Path]:
    """The finished shards, in order; raises an error where one is missing between others."""
    numbers = sorted(int(match[1]) for entry in os.listdir(folder) if (match := _NAME.fullmatch(entry)))
    if numbers != list(range(len(numbers))):
        missing = next(n for n in range(len(numbers) + 1) if n not in numbers)
        raise ValueError(f"{folder} lacks {shard_name(missing)}, although it has later shards: put it back.")
    return [folder / shard_name(n) for n in numbers]


#: What tells a file as it is now from any other file of the same name.
Identity = tuple[str, int, int, int]

# Files whose bytes this process has found to be right, and what they were held to.
_CHECKED: set[tuple[Identity, object]] = set()
# With more of them, all are forgotten, and looked at again.
_MOST_CHECKED = 10_000


def identity(file: Path) -> Identity:
    """What tells a file as it is now from any other file of the same name."""
    about = file.stat()
    return str(file), about.st_mtime_ns, about.st_ctime_ns, about.st_ino


@final
@dataclass(frozen=True)
class Shard:
    """A finished shard; ``files`` has the shape, dtype, bytes and checksum of each array."""

    path: Path
    n_examples: int
    n_sites: int
    files: dict[str, dict[str, Any]]
    n_labels: int
    n_features: int

    @classmethod
    def open(cls, path: Path, about: About) -> Shard:
        """Reads the manifest and looks whether all files are there, in full; their bytes are read later."""
        manifest = Manifest.read(path, about)
        for name, entry in manifest.files.items():
            file, size = path / f"{name}.npy", entry["bytes"]
            found = file.stat().st_size if file.is_file() else None
            if found != size:
                what = "it is missing" if found is None else f"it has {found} bytes where its manifest says {size}"
                raise _damaged(file, what)
        return cls(path, *manifest, len(about.classes or ()), about.n_features)

    def array(self, name: str, *, mapped: bool = False) -> NDArray[Any]:
        """An array, read or mapped; ValueError where its bytes are not those that were written, or make no sense."""
        file, entry = self.path / f"{name}.npy", self.files[name]
        others = _CHECKED_FIRST.get(name, ())
        with _named(file):
            checksums = tuple(self.files[one]["crc32"] for one in (name, *others))
            held_to = identity(file), (checksums, self._end(name), self.n_labels, self.n_features)
        if is_new := held_to not in _CHECKED:
            first = {other: self.array(other) for other in others}
        with _named(file):
            if is_new:
                _read_through(file, entry["crc32"])
            array = load_array(file, mapped=mapped)
            if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
                raise ValueError("it is not the array of its manifest")
            if is_new:
                self._check_values(name, array, **first)
        if len(_CHECKED) >= _MOST_CHECKED:
            _CHECKED.clear()
        _CHECKED.add(held_to)
        return array

    def _end(self, name: str) -> Any:
        """The length of what an array of offsets points into, or nothing for other arrays."""
        return self.files[_ENDS[name]]["shape"][0] if name in _ENDS else None

    def _check_values(self, name: str, array: NDArray[Any], **first: NDArray[Any]) -> None:
        """Raises ValueError where offsets, edges, columns or labels point at nothing: kernels index by them."""
        if name in _ENDS:
            last = self._end(name)
            if array[0] != 0 or array[-1] != last or not (array[1:] >= array[:-1]).all():
                raise ValueError(f"it must rise from 0 to {last}")
        elif name == "edges":
            sites, counts = first["site_offsets"], np.diff(first["edge_offsets"])
            low, high = np.repeat(sites[:-1], counts)[:, None], np.repeat(sites[1:], counts)[:, None]
            if not ((array >= low) & (array < high)).all() or (array[:, 0] == array[:, 1]).any():
                raise ValueError("its edges must join two different sites of their example")
        elif name == "feature_indices" and array.size and not (array.min() >= 0 and array.max() < self.n_features):
            raise ValueError(f"its columns must be from 0 to {self.n_features - 1}")
        elif name == "labels" and array.size and not (array.min() >= -1 and array.max() < self.n_labels):
            raise ValueError(f"its labels must be from -1 to {self.n_labels - 1}")
        elif name == "sizes" and (array < 0).any():
            raise ValueError("its sizes must not be negative")


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Where reading an array fails, a ValueError names its file."""
    try:
        yield
    except DAMAGE as error:
        raise _damaged(file, reason(error)) from None


def _read_through(file: Path, crc32: int) -> None:
    """Raises ValueError where the checksum of a file is another, or a number is not finite."""
    with open(file, "rb") as opened:
        header = read_header(opened, os.fstat(opened.fileno()).st_size)
        opened.seek(0)
        value = zlib.crc32(opened.read(header.offset))
        is_finite = True
        while block := opened.read(_BLOCK):
            value = zlib.crc32(block, value)
            is_finite = is_finite and _is_finite(block, header.dtype)
    if value != crc32:
        raise ValueError("its checksum is not that of its manifest")
    if not is_finite:
        raise ValueError("it holds numbers that are not finite")


def checksum(path: Path) -> int:
    """The CRC-32 checksum of the bytes of a file."""
    value = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


def _is_finite(block: bytes, dtype: np.dtype[Any]) -> bool:
    if dtype.kind != "f" or len(block) % dtype.itemsize:
        return dtype.kind != "f"
    if dtype.itemsize == 2:  # NumPy is slow at these; the exponent of what is not finite is all ones
        return int((np.frombuffer(block, dtype=np.uint16) & 0x7FFF).max()) < 0x7C00
    return bool(np.isfinite(np.frombuffer(block, dtype=dtype)).all())


def _damaged(file: Path, why: str) -> ValueError:
    return ValueError(
        f"{file} is damaged: {why}. Write {file.parent.name} again, or open the store without it (shards=)."
    )
