"""What files that are damaged or forged may do to whoever reads them, and how it is told."""

from __future__ import annotations

import json
import reprlib
import struct
import zipfile
import zlib
from typing import Any

#: All that reading may raise where a file is not what it should be. (RecursionError is a RuntimeError.)
DAMAGE: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)

# A text that a message quotes is cut off after so many letters.
_LONGEST = 300


def reason(error: BaseException) -> str:
    """Why something could not be read, in a few words."""
    if isinstance(error, MemoryError):
        return "it does not fit into memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, (LookupError, AttributeError, TypeError)):
        return f"{type(error).__name__}: {str(error)[:_LONGEST]}"
    return str(error)[:_LONGEST].rstrip(".") or type(error).__name__


def shown(value: Any) -> str:
    """A value of a file, as a message quotes it: short, however long it is."""
    return reprlib.repr(value)


def parse_json(data: bytes) -> Any:
    """What a JSON text says; ValueError whatever is wrong with it."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is not JSON text: {reason(error)}") from None
