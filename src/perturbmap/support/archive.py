"""Files without pickle: arrays and one JSON text in a zip, written atomically, checked before they are read."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perturbmap.support.damage import DAMAGE, parse_json, reason, shown
from perturbmap.support.files import write_atomically
from perturbmap.support.npy import read_array, write_array
from perturbmap.support.zeros import leave_out_zeros, put_back_zeros

FORMAT_VERSION = 5
_SUFFIX = ".npy"

T = TypeVar("T")


def write(
    path: str | os.PathLike[str], kind: str, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Writes arrays and one JSON text as one file; zeros are left out where most numbers are zero."""
    kept, shapes = leave_out_zeros(arrays)
    text = json.dumps({"kind": kind, "format_version": FORMAT_VERSION, "without_zeros": shapes, **about})
    contents = {"about": np.frombuffer(text.encode(), dtype=np.uint8), **kept}
    write_atomically(path, partial(_fill, contents))


def _fill(contents: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """As ``np.savez`` does; the same arrays make the same bytes."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in contents.items():
            with archive.open(zipfile.ZipInfo(name + _SUFFIX), "w", force_zip64=True) as member:
                write_array(member, array)


def load(
    path: str | os.PathLike[str],
    kind: str,
    about_keys: Sequence[str],
    array_keys: Sequence[str],
    make: Callable[[dict[str, Any], dict[str, NDArray[Any]]], T],
) -> T:
    """What ``make`` makes of the contents of a file; where it fails, a ValueError names the file."""
    contents = read(path, kind, about_keys, array_keys)
    try:
        return make(*contents)
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from None
    except DAMAGE as error:
        raise ValueError(
            f"{path} cannot be loaded: it is damaged, was changed, or is of another version ({reason(error)})."
        ) from error


def read(
    path: str | os.PathLike[str], kind: str, about_keys: Sequence[str], array_keys: Sequence[str]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What `write` wrote, with all of these keys; ValueError for a damaged, truncated or foreign file.

    Memory is taken for what the file has, never for what it claims: a byte of bits that tell zeros from other numbers
    stands for eight numbers, any other byte for itself. What the arrays and the text mean is for the
    caller to check: a file may have been forged.
    """
    try:
        with open(path, "rb") as raw, zipfile.ZipFile(raw) as archive:
            arrays = _read_arrays(archive, os.fstat(raw.fileno()).st_size)
        text = arrays.pop("about")
        about = parse_json(text.astype(np.uint8, casting="equiv").tobytes())
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise ValueError(
            f"{path} is damaged, or is not a perturbmap file ({reason(error)}): take another copy, or make it anew."
        ) from None
    if not isinstance(about, dict) or about.get("kind") != kind:
        raise ValueError(f"{path} is not a perturbmap {kind}.")
    if about.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {shown(about.get('format_version'))}, this perturbmap reads "
            f"{FORMAT_VERSION}: install the version that wrote it."
        )
    try:
        arrays = put_back_zeros(arrays, about.pop("without_zeros", None))
    except DAMAGE as error:
        raise ValueError(f"{path} is damaged ({reason(error)}): take another copy, or make it anew.") from None
    missing = [key for key in about_keys if key not in about] + [key for key in array_keys if key not in arrays]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}. Take another copy of it.")
    return about, arrays


def _read_arrays(archive: zipfile.ZipFile, n_bytes: int) -> dict[str, NDArray[Any]]:
    """All arrays of a file of so many bytes, once their names and sizes are known to be possible."""
    members = archive.infolist()
    names = [member.filename for member in members]
    strange = next((name for name in names if not name.endswith(_SUFFIX)), None)
    if strange is not None or len(set(names)) < len(names):
        raise ValueError(f"it holds {shown(strange)}" if strange is not None else "it holds two arrays of one name")
    # What is packed may unpack to anything; `write` packs nothing.
    if any(m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size for m in members):
        raise ValueError("it is packed, which perturbmap's files are not")
    if sum(member.file_size for member in members) > n_bytes:
        raise ValueError(f"its directory claims more than the {n_bytes} bytes that it has")
    arrays = {}
    for member in members:
        with archive.open(member) as file:
            arrays[member.filename.removesuffix(_SUFFIX)] = read_array(file, member.file_size)
    return arrays
