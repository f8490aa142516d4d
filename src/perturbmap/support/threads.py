"""How many threads may be used."""

from __future__ import annotations

import os

import numpy as np

# What the kernels can count; they start no more than there is work for.
_MOST = 2**31 - 1


def threads(n_threads: int | None) -> int:
    """The number of threads that ``n_threads`` stands for; None is one for each core the process may run on."""
    if n_threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(n_threads) is int and 1 <= n_threads <= _MOST:
        return n_threads
    if not isinstance(n_threads, (int, np.integer)) or isinstance(n_threads, bool) or n_threads < 1:
        raise ValueError(f"n_threads must be an integer of at least 1, or None for all cores, but is {n_threads!r}.")
    return min(int(n_threads), _MOST)
