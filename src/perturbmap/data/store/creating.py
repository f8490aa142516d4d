"""The file that makes a folder a store: made once, by one writer, and the same as long as anybody writes.

All writers of a store hold its ``store.json`` by a lock that they share; who replaces it needs the lock alone. So of
two that begin a store at once, one finds that the other is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perturbmap.data.store.manifest import FORMAT_VERSION, STORE, About, json_text
from perturbmap.data.store.shards import find_shards
from perturbmap.support.files import flush, hidden_file, lock, naming, write_new

# Seconds between two looks whether whoever replaces the file is done, and looks at most.
_PAUSE, _MOST_LOOKS = 0.01, 1000


def check_new(folder: Path) -> None:
    """A store whose writer was killed before its first shard holds nothing, and is written anew."""
    if folder.is_dir() and find_shards(folder):
        raise FileExistsError(f"{folder} is a store already: pass append=True to add to it, or name another folder.")


@contextmanager
def creating(folder: Path, about: About) -> Iterator[About]:
    """Makes the folder a store, and holds it; FileExistsError where it is one, or another writer makes it one."""
    target, text = folder / STORE, _text(about)
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    while not _put(target, text):
        check_new(folder)
    with holding(folder) as there:
        if _text(there) != text:
            raise _is_begun(folder)
        yield there


@contextmanager
def holding(folder: Path) -> Iterator[About]:
    """What the store in a folder is, which nobody changes meanwhile; ValueError where there is none."""
    handle = _hold(folder / STORE)
    try:
        yield About.read(folder)
    finally:
        if handle is not None:
            os.close(handle)


def _hold(path: Path) -> int | None:
    """The file, open and held by a lock that all writers share; None where there is none."""
    for _ in range(_MOST_LOOKS):
        try:
            with naming(path):
                handle = os.open(path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if lock(handle, shared=True) is not False and _is_there(handle, path):
            return handle
        os.close(handle)
        time.sleep(_PAUSE)
    raise _is_begun(path.parent)


def _put(target: Path, text: bytes) -> bool:
    """Makes the file, or takes the place of one that nobody holds; False where it has just become another's."""
    with ExitStack() as stack:
        with naming(target):
            file, temporary = stack.enter_context(hidden_file(target.parent))
            file.write(text)
            flush(file)
        try:
            os.link(temporary, target)  # which fails where there is a file already
            return True
        except FileExistsError:
            return _take_over(temporary, target, text)
        except OSError:  # a disk that has no links
            return write_new(target, text) or _take_over(temporary, target, text)


def _take_over(temporary: Path, target: Path, text: bytes) -> bool:
    """Replaces what a killed writer left, before it had a shard."""
    try:
        with naming(target):
            handle = os.open(target, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        is_free = lock(handle)
        if is_free is False:
            raise _is_begun(target.parent)
        if not _is_there(handle, target):
            return False
        check_new(target.parent)
        if is_free is None:  # no locks, and no telling whether it is held: it may stay as it is
            if target.read_bytes() != text:
                raise _is_begun(target.parent)
            return True
        with naming(target):
            os.replace(temporary, target)
        return True
    finally:
        os.close(handle)


def _is_there(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _text(about: About) -> bytes:
    return json_text({"format_version": FORMAT_VERSION, **about._asdict()})


def _is_begun(folder: Path) -> FileExistsError:
    return FileExistsError(
        f"{folder} is being written by another process: wait until it has a shard, and pass append=True, or name "
        f"another folder. (If there is no such process, remove {folder / STORE}.)"
    )
