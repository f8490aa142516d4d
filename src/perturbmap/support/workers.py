"""Work in other processes, which end when the process that gave it to them has been killed."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from typing import Any, final

# Seconds between two looks whether the parent is there.
_PAUSE = 1.0
_lock = threading.Lock()
_is_watched = False


def delayed(function: Callable[..., Any]) -> Any:
    """As joblib's ``delayed``; a worker that has begun ends within a second or two of whoever called this.

    A process that is killed cannot end its workers; joblib's would finish what they were given, and wait for five
    minutes more.
    """
    import joblib

    return joblib.delayed(_Task(function, os.getpid()))


@final
class _Task:
    """A function, and the process that asks for its value."""

    def __init__(self, function: Callable[..., Any], driver: int) -> None:
        self._function, self._driver = function, driver

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        _end_with(self._driver)
        return self._function(*arguments, **options)


def _end_with(driver: int) -> None:
    """In a process that the driver has started: from now on it is watched whether the driver is there."""
    global _is_watched
    parent = os.getppid()
    if os.name != "posix" or os.getpid() == driver:
        return
    if parent != driver:
        # Another machine's worker has another parent; one of joblib's own has none but the driver.
        if multiprocessing.current_process().name.startswith("LokyProcess"):
            os._exit(1)
        return
    with _lock:
        if not _is_watched:
            threading.Thread(target=_watch, args=(parent,), name="perturbmap-parent", daemon=True).start()
            _is_watched = True


def _watch(parent: int) -> None:
    # A signal at the parent's death, which Linux has, comes at the end of the thread that made this process, too.
    while os.getppid() == parent:
        time.sleep(_PAUSE)
    os._exit(1)
