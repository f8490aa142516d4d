"""The JSON files of a store: what they say is checked, also where somebody has forged it with the right checksums."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perturbmap.data.labels import find_classes
from perturbmap.data.sparse_rows import MOST_COLUMNS
from perturbmap.support.damage import DAMAGE, parse_json, reason, shown

FORMAT_VERSION = 3
STORE, MANIFEST = "store.json", "manifest.json"
#: Types of the features of a store.
DTYPES = ("float16", "float32", "float64")
#: Of sparse ones: the kernels take their values as they are.
SPARSE_DTYPES = DTYPES[1:]
#: The arrays of whose numbers a manifest has sums, and the least.
SUMMED = ("features", "feature_values", "edge_features")
# Label features are kept in either of two types.
_EITHER = "float"
# Bytes of a JSON file at most, and examples of a shard: far more than there will ever be.
_LONGEST, _MOST_EXAMPLES = 2**26, 2**40


def json_text(contents: dict[str, Any]) -> bytes:
    """A JSON file with its own checksum, which `read_json` looks at."""
    return json.dumps({**contents, "crc32": _checksum(contents)}).encode()


def _checksum(contents: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(contents).encode())


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The contents of a JSON file of this format version; ValueError where they are not those that were written."""
    try:
        if path.stat().st_size > _LONGEST or not path.is_file():
            raise ValueError("it is not a JSON file")
        contents = parse_json(path.read_bytes())
        version = contents["format_version"]
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path.parent} is not a {what}: it has no {path.name}.") from None
    except DAMAGE as error:
        raise _damaged(path, reason(error)) from None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {shown(version)}, this perturbmap reads {FORMAT_VERSION}: install the "
            "version that wrote it."
        )
    stated = contents.pop("crc32", None)
    if stated != _checksum(contents):
        raise _damaged(path, "its checksum is not that of its contents")
    return dict(contents)


class About(NamedTuple):
    """What all shards of a store have in common, from its ``store.json``; None is what its examples do not have."""

    dtype: str
    is_sparse: bool
    classes: list[Hashable] | None
    n_features: int
    n_edge_features: int | None
    edge_dtype: str | None
    n_label_features: int | None

    @classmethod
    def read(cls, folder: Path) -> About:
        """Of the store in a folder; ValueError where there is none, or it says what none would."""
        path = folder / STORE
        contents = read_json(path, "store")
        try:
            about = cls(**{name: contents[name] for name in cls._fields})
            about._check()
        except DAMAGE as error:
            raise _damaged(path, reason(error)) from None
        return about

    def _check(self) -> None:
        if type(self.is_sparse) is not bool:
            raise ValueError(f"is_sparse is {shown(self.is_sparse)}")
        dtypes = SPARSE_DTYPES if self.is_sparse else DTYPES
        if self.dtype not in dtypes or self.edge_dtype not in (None, "float32", "float64"):
            raise ValueError(f"its types are {shown(self.dtype)} and {shown(self.edge_dtype)}")
        for n in (self.n_features, self.n_edge_features, self.n_label_features):
            if n is not None:
                _count(n)
        if (self.n_edge_features is None) != (self.edge_dtype is None) or self.n_features is None:
            raise ValueError("its numbers of features do not go together")
        if self.is_sparse and self.n_features > MOST_COLUMNS:
            raise ValueError(f"it has {self.n_features} columns, more than sparse features can have")
        if self.classes is not None:
            if not isinstance(self.classes, list) or not all(
                isinstance(c, (str, bool, int, float)) for c in self.classes
            ):
                raise ValueError(f"its classes are {shown(self.classes)}")
            find_classes([], self.classes)

    def arrays(self, n_examples: int, n_sites: int, length: Callable[[str], int]) -> dict[str, tuple[str, list[int]]]:
        """Type and shape of each array of a shard; ``length`` tells that of those which may have any."""
        offsets, n_edges = ("int64", [n_examples + 1]), length("edges")
        found = {
            **self._features(n_sites, length),
            "site_offsets": offsets,
            "edges": ("int32", [n_edges, 2]),
            "edge_offsets": offsets,
            "sizes": ("float64", [n_sites]),
            "labels": ("int32", [n_sites]),
        }
        if self.n_edge_features is not None and self.edge_dtype is not None:
            found["edge_features"] = (self.edge_dtype, [n_edges, self.n_edge_features])
        if self.n_label_features is not None:
            found["label_features"] = (_EITHER, [length("label_features"), self.n_label_features])
            found["label_offsets"] = offsets
        return found

    def _features(self, n_sites: int, length: Callable[[str], int]) -> dict[str, tuple[str, list[int]]]:
        if not self.is_sparse:
            return {"features": (self.dtype, [n_sites, self.n_features])}
        n_entries = length("feature_indices")
        return {
            "feature_starts": ("int64", [n_sites + 1]),
            "feature_indices": ("int32", [n_entries]),
            "feature_values": (self.dtype, [n_entries if length("feature_values") else 0]),  # none: all are 1
        }


class Manifest(NamedTuple):
    """What a shard has: ``files`` has the shape, dtype, bytes and checksum of each array."""

    n_examples: int
    n_sites: int
    files: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, shard: Path, about: About) -> Manifest:
        """Of the shard in a folder; ValueError where there is none, or it is not one of this store."""
        path = shard / MANIFEST
        contents = read_json(path, "shard")
        try:
            manifest = cls(*(contents[name] for name in cls._fields))
            manifest._check(about)
        except DAMAGE as error:
            raise _damaged(path, reason(error)) from None
        return manifest

    def _check(self, about: About) -> None:
        _examples(self.n_examples)
        _count(self.n_sites)
        if not isinstance(self.files, dict):
            raise ValueError(f"its files are {shown(self.files)}")
        expected = about.arrays(self.n_examples, self.n_sites, self._length)
        if self.files.keys() != expected.keys():
            raise ValueError(f"it has the arrays {shown(sorted(self.files))}, and not {sorted(expected)}")
        for name, (dtype, shape) in expected.items():
            entry = self.files[name]
            types = [np.dtype(one).str for one in (("float32", "float64") if dtype == _EITHER else (dtype,))]
            if entry["shape"] != shape or entry["dtype"] not in types:
                raise ValueError(f"{name} is {shown(entry['dtype'])} of shape {shown(entry['shape'])}")
            if _count(entry["bytes"]) < math.prod(shape) * np.dtype(entry["dtype"]).itemsize:
                raise ValueError(f"{name} has {entry['bytes']} bytes")
            _count(entry["crc32"])
            for key in ("squares", "absolutes", "minimum") if name in SUMMED else ():
                if type(entry[key]) not in (int, float) or math.isnan(entry[key]):
                    raise ValueError(f"{name} has {key} of {shown(entry[key])}")

    def _length(self, name: str) -> int:
        return _count(self.files[name]["shape"][0]) if name in self.files else 0


def count_examples(shard: Path) -> int:
    """The number of examples of a shard, from its manifest alone."""
    n = read_json(shard / MANIFEST, "shard").get("n_examples")
    try:
        return _examples(n)
    except ValueError as error:
        raise _damaged(shard / MANIFEST, str(error)) from None


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged ({why}): put back a copy of it, or write the store again.")


def _examples(n: Any) -> int:
    if not 1 <= _count(n) < _MOST_EXAMPLES:
        raise ValueError(f"it has {n} examples, which no shard has")
    return int(n)


def _count(n: Any) -> int:
    if type(n) is not int or not 0 <= n < 2**62:
        raise ValueError(f"it has {shown(n)} where a number of things should be")
    return n
