"""Arrays as NumPy's ``.npy`` files, of which nothing is believed: what a header claims is held against what is there.

Only plain numbers and texts are read or written. The header that NumPy writes for them is known to the letter, so
that none is evaluated.
"""

from __future__ import annotations

import io
import math
import os
import re
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Bytes that are read at a time: what a zip hands on is copied, and better while it is in the cache.
_CHUNK = 2**18
_MAGIC = b"\x93NUMPY\x01\x00"
_KINDS = "biufcSU"
_HEADER = re.compile(
    rb"\{'descr': '([<>|=]["
    + _KINDS.encode()
    + rb"][1-9][0-9]{0,8})', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \} *\n"
)


class Header(NamedTuple):
    """What the header of an array says, and where the numbers begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    offset: int


def write_array(file: IO[bytes], array: NDArray[Any]) -> None:
    """As ``np.save`` does, but by a write that says why it failed; ValueError for what would need pickle."""
    values = np.asarray(array, order="C")
    if values.dtype.kind not in _KINDS:
        raise ValueError(f"an array of {values.dtype} cannot be saved without pickle: numbers and texts can.")
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
    file.write(_bytes_of(values.reshape(-1)))


def read_header(file: IO[bytes], n_bytes: int) -> Header:
    """The header of an array of so many bytes in all; ValueError where they are not those of what it claims."""
    start = file.read(len(_MAGIC) + 2)
    length = int.from_bytes(start[len(_MAGIC) :], "little")
    match = _HEADER.fullmatch(file.read(length)) if start.startswith(_MAGIC) else None
    if match is None:
        raise ValueError("it does not begin as an array of numbers does")
    descr, is_fortran, numbers = (part.decode() for part in match.groups())
    try:
        dtype, shape = np.dtype(descr), tuple(int(n) for n in numbers.split(",") if n.strip())
    except (TypeError, ValueError):
        raise ValueError(f"its header claims the type {descr} and the shape ({numbers[:60]})") from None
    found, claimed = n_bytes - len(start) - length, math.prod(shape) * dtype.itemsize
    if claimed != found:
        much = claimed if claimed < 2**63 else "over 2**63"
        raise ValueError(f"its header claims {much} bytes of numbers, but it has {found}")
    return Header(dtype, shape, is_fortran == "True", n_bytes - found)


def read_array(file: IO[bytes], n_bytes: int) -> NDArray[Any]:
    """The array of the next ``n_bytes`` bytes of a file; memory is taken once they are known to be there."""
    header = read_header(file, n_bytes)
    values = np.empty(math.prod(header.shape), header.dtype)
    left = _bytes_of(values)
    while len(left):
        n = file.readinto(left[:_CHUNK])  # type: ignore[attr-defined]  # every binary file that is read has it
        if not n:
            raise ValueError(f"it ends {len(left)} bytes too early")
        left = left[n:]
    return values.reshape(header.shape, order="F" if header.is_fortran else "C")


def load_array(path: str | os.PathLike[str], *, mapped: bool = False) -> NDArray[Any]:
    """The array of a ``.npy`` file, read, or mapped into memory."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not mapped:
            return read_array(file, size)
        header = read_header(file, size)
        return np.memmap(
            path, header.dtype, "r", header.offset, header.shape, order="F" if header.is_fortran else "C"
        )


def parse_array(data: bytes) -> NDArray[Any]:
    """The array of the bytes of a ``.npy`` file."""
    return read_array(io.BytesIO(data), len(data))


def _bytes_of(values: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array, byte by byte."""
    return values.view(np.uint8).data
