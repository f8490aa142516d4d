"""One thread for BLAS, whose sums depend on how many it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    # Looking for the libraries takes milliseconds; NumPy's and SciPy's are loaded when anything is computed.
    return ThreadpoolController()


_LOCK = threading.Lock()
_inside: list[Any] = []  # the limit, once for each context that is open


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which BLAS has one thread. The number is the process's: the last to leave restores it."""
    with _LOCK:
        _inside.append(_inside[0] if _inside else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _LOCK:
            limit = _inside.pop()
            if not _inside:
                limit.restore_original_limits()
