"""Files that are written whole or not at all; what a killed writer leaves behind, the next one clears away.

A writer works under a hidden name beside its target, and holds a lock on that file as long as it lives: the system
takes the lock back however the writer ends. So a hidden file whose lock is free is of nobody. Locks are asked, not
process numbers, which other containers and other machines give out again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and nothing cleared away
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"\.perturbmap-([0-9a-f]{8})-[0-9a-f]{16}\.tmp")
_FOLDER = ".parts"
# Seconds between two looks for what killed writers have left in a folder.
_LOOK_AGAIN = 60.0
# Seconds without a change after which the file of another machine, or from before a restart, is of nobody if its
# lock is free: some file systems keep locks to one machine.
_OLD = 86_400.0
# Files that are made until one is not taken away again at once.
_ATTEMPTS = 10
_looked: dict[str, float] = {}


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises an error now, where writing would fail later."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} cannot be written: it is a folder.")
    if target.exists() and not target.is_file():
        raise OSError(f"{target} cannot be written: it is a device or a pipe, which would be replaced by a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target} cannot be written: the folder {target.parent} does not exist.")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"{target} cannot be written: the folder {target.parent} does not allow it.")


def write_atomically(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object]) -> None:
    """Writes next to the target and moves it into place: a reader finds the old file or the new one, whole.

    Of a link, the target is what it leads to.
    """
    target = Path(os.path.realpath(path))
    check_writable(target)
    with naming(target), hidden_file(target.parent) as (file, temporary):
        fill(file)
        flush(file)
        if fcntl is None:  # Windows moves no file that is open
            file.close()
        os.replace(temporary, target)


def write_new(path: str | os.PathLike[str], text: bytes) -> bool:
    """Writes a file that is not there yet; False where it is. Killed meanwhile, it leaves a part of it."""
    with naming(path):
        try:
            with open(path, "xb") as file:
                file.write(text)
                flush(file)
        except FileExistsError:
            return False
    return True


def flush(file: IO[bytes]) -> None:
    """Brings what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the system name this file, whatever hidden one they are of."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise type(error)(f"{path} cannot be written: {error}") from error
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def hidden_file(folder: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A new file in a folder, open and locked, and its name; at the end it is removed, unless it was moved."""
    if time.monotonic() - _looked.get(str(folder), -_LOOK_AGAIN) >= _LOOK_AGAIN:
        clear_leftovers(folder)
    for n_left in reversed(range(_ATTEMPTS)):
        path = folder / f".perturbmap-{_machine()}-{os.urandom(8).hex()}.tmp"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        # Before the lock is taken, another may think that the file is of nobody, and remove it.
        if n_left == 0 or (lock(handle) is not False and path.exists()):
            break
        os.close(handle)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, path
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def hidden_folder(folder: Path) -> Iterator[Path]:
    """A new folder in a folder, which goes with a file that is locked; removed at the end, unless it was moved."""
    with hidden_file(folder) as (_, path):
        inside = path.with_suffix(_FOLDER)
        try:
            inside.mkdir()
            yield inside
        finally:
            shutil.rmtree(inside, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """Removes hidden files and folders of writers that have been killed, as far as it is sure that they have."""
    _looked[str(folder)] = time.monotonic()
    if fcntl is None:
        return
    try:
        matches = [match for name in os.listdir(folder) if (match := _NAME.fullmatch(name))]
    except OSError:
        return
    for match in matches:
        path = folder / match[0]
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                is_old = time.time() - os.fstat(handle).st_mtime > _OLD
                if (match[1] == _machine() or is_old) and lock(handle):
                    shutil.rmtree(path.with_suffix(_FOLDER), ignore_errors=True)
                    path.unlink()
            finally:
                os.close(handle)


def lock(handle: int, *, shared: bool = False) -> bool | None:
    """Whether a lock on an open file was free and is now held; None where the system, or the disk, has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@functools.cache
def _machine() -> str:
    """Eight letters for this machine since it was started: the same in all its containers."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        text = socket.gethostname()
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
