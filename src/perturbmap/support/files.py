"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises an error now, where writing would fail later."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} cannot be written: it is a folder.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target} cannot be written: the folder {target.parent} does not exist.")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"{target} cannot be written: the folder {target.parent} does not allow it.")


def write_atomically(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object]) -> None:
    """Writes next to the target and moves it into place: a reader finds the old file or the new one, whole."""
    check_writable(path)
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
