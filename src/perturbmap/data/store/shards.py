"""One shard: its manifest, and its arrays, checked before they are used."""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 2
STORE, MANIFEST = "store.json", "manifest.json"
_NAME = re.compile(r"shard-(\d{6,})")
#: Arrays that every shard has.
NEEDED = ("features", "site_offsets", "edges", "edge_offsets", "sizes", "labels")


def shard_name(number: int) -> str:
    """The folder of a finished shard."""
    return f"shard-{number:06d}"


def find_shards(folder: Path) -> list[Path]:
    """The finished shards, in order; raises an error where one is missing between others."""
    numbers = sorted(int(match[1]) for entry in os.listdir(folder) if (match := _NAME.fullmatch(entry)))
    if numbers != list(range(len(numbers))):
        missing = next(n for n in range(len(numbers)) if n not in numbers)
        raise ValueError(f"{folder} lacks {shard_name(missing)}, although it has later shards: put it back.")
    return [folder / shard_name(n) for n in numbers]


def json_text(contents: dict[str, Any]) -> bytes:
    """A JSON file with its own checksum, which `read_json` looks at."""
    return json.dumps({**contents, "crc32": _json_checksum(contents)}).encode()


def _json_checksum(contents: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(contents).encode())


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The contents of a JSON file of this format version; ValueError where they are not those that were written."""
    try:
        contents = json.loads(path.read_bytes())
        version = contents["format_version"]
    except FileNotFoundError:
        raise ValueError(f"{path.parent} is no {what}: it has no {path.name}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}).") from None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version}, this perturbmap reads {FORMAT_VERSION}: install the version that "
            "wrote it."
        )
    stated = contents.pop("crc32", None)
    if stated != _json_checksum(contents):
        raise ValueError(f"{path} is damaged: its checksum is not that of its contents.")
    return dict(contents)


# Files whose bytes this process has found to be right.
_CHECKED: set[tuple[str, int, int]] = set()


def identity(file: Path) -> tuple[str, int, int]:
    """What tells a file as it is now from any other file of the same name."""
    about = file.stat()
    return str(file), about.st_mtime_ns, about.st_ino


def _is_checked(file: Path) -> bool:
    return identity(file) in _CHECKED


def checksum(path: Path) -> int:
    """The CRC-32 checksum of the bytes of a file."""
    value = 0
    with open(path, "rb") as file:
        while block := file.read(2**20):
            value = zlib.crc32(block, value)
    return value


def count_examples(path: Path) -> int:
    """The number of examples of a shard, from its manifest alone."""
    n = read_json(path / MANIFEST, "shard").get("n_examples")
    if not isinstance(n, int):
        raise ValueError(f"{path / MANIFEST} is damaged: it does not say how many examples there are.")
    return n


@final
@dataclass(frozen=True)
class Shard:
    """A finished shard; ``files`` has the shape, dtype, bytes and checksum of each array."""

    path: Path
    n_examples: int
    n_sites: int
    files: dict[str, dict[str, Any]]

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Reads the manifest and looks whether all files are there, in full; their bytes are read later."""
        about = read_json(path / MANIFEST, "shard")
        try:
            shard = cls(path, int(about["n_examples"]), int(about["n_sites"]), dict(about["files"]))
            missing = [name for name in NEEDED if name not in shard.files]
            sizes = {name: int(entry["bytes"]) for name, entry in shard.files.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path / MANIFEST} is damaged ({error!r}).") from None
        if missing:
            raise ValueError(f"{path / MANIFEST} is damaged: it lacks {', '.join(missing)}.")
        for name, size in sizes.items():
            file = path / f"{name}.npy"
            found = file.stat().st_size if file.is_file() else None
            if found != size:
                what = "it is missing" if found is None else f"it has {found} bytes where its manifest says {size}"
                raise ValueError(
                    f"{file} is damaged: {what}. Write {path.name} again, or open the store without it (shards=)."
                )
        return shard

    def array(self, name: str, *, mapped: bool = False) -> NDArray[Any]:
        """An array, read or mapped; ValueError where its bytes are not those that were written."""
        file, entry = self.path / f"{name}.npy", self.files[name]
        if not _is_checked(file) and checksum(file) != entry["crc32"]:
            raise ValueError(
                f"{file} is damaged: its checksum is not that of its manifest. Write {self.path.name} again, or open "
                "the store without it (shards=)."
            )
        _CHECKED.add(identity(file))
        array = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
        if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
            raise ValueError(f"{file} is damaged: it is not the array of its manifest.")
        return np.asarray(array) if not mapped else array
