"""Arrays of which most numbers are zero, without the zeros: one bit for each number, and those that are not zero.

The weights of rare features, and what a solver remembers of them, are such arrays. Bits take less room than positions
where more than one number in thirty-two is not zero. And they bound what a forged file can ask for: an array has no
more numbers than the file has bits for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.support.damage import shown

# Arrays of fewer numbers stay as they are.
_FEW = 1024
_BITS = ".is_there"


def leave_out_zeros(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, list[int]]]:
    """The arrays, those of which most numbers are zero as bits and numbers, and the shapes of these.

    Negative zeros are kept: `put_back_zeros` gives every bit back.
    """
    found: dict[str, NDArray[Any]] = {}
    shapes = {}
    for name, array in arrays.items():
        found[name] = array
        if array.dtype not in (np.float32, np.float64) or array.size < _FEW:
            continue
        numbers = np.ascontiguousarray(array).reshape(-1)
        is_there = numbers.view(f"u{numbers.itemsize}") != 0
        if 2 * np.count_nonzero(is_there) < numbers.size:
            found[name], found[name + _BITS] = numbers[is_there], np.packbits(is_there)
            shapes[name] = list(array.shape)
    return found, shapes


def put_back_zeros(arrays: Mapping[str, NDArray[Any]], shapes: Any) -> dict[str, NDArray[Any]]:
    """The arrays that `leave_out_zeros` was given; ValueError where these cannot be what it made of them."""
    if not isinstance(shapes, dict):
        raise ValueError(f"its arrays without zeros are {shown(shapes)}")
    found = dict(arrays)
    for name, shape in shapes.items():
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"the shape of its {shown(name)} is {shown(shape)}")
        numbers, bits, size = found[name], found.pop(name + _BITS), math.prod(shape)
        if bits.dtype != np.uint8 or bits.shape != ((size + 7) // 8,):
            raise ValueError(f"it has no {shown(size)} bits for its {shown(name)}")
        is_there = np.unpackbits(bits, count=size).view(np.bool_)
        if numbers.dtype.kind != "f" or numbers.shape != (np.count_nonzero(is_there),):
            raise ValueError(f"it has other numbers of its {shown(name)} than the bits say")
        whole = np.zeros(size, numbers.dtype)
        whole[is_there] = numbers
        found[name] = whole.reshape(shape)
    return found
