"""The same work for many images: in parallel processes, with progress, without the broken ones."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from joblib import Parallel
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from perturbmap.images.reading import ImageError, SkippedImageWarning
from perturbmap.support.workers import delayed

T = TypeVar("T")


def for_each(function: Callable[..., T], jobs: Sequence[tuple[Any, ...]], n_jobs: int) -> Iterator[tuple[int, T]]:
    """(position, result) of each job as it ends, in any order; a broken image is skipped with a warning.

    ``n_jobs`` as in joblib: -1 is one process per core, 1 stays in this one.
    """
    if not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs == 0:
        raise ValueError(f"n_jobs must be a number of processes, or -1 for one per core, but is {n_jobs!r}.")
    with ExitStack() as ends:
        if n_jobs == 1 or len(jobs) < 2:
            done: Generator[Any] = (_one(function, n, job) for n, job in enumerate(jobs))
        else:
            pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
            with _deaf_processes():  # at the end of which a Ctrl-C that has waited is heard
                done = pool(delayed(_one)(function, n, job) for n, job in enumerate(jobs))
                ends.callback(_end, done)
        for n, result, complaint in done:
            if complaint is None:
                yield n, result
            else:
                warnings.warn(f"left out: {complaint}", SkippedImageWarning, stacklevel=3)


def _end(done: Generator[Any]) -> None:
    """Ends the processes where not all was asked for: the caller's wish, of which joblib need not warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*tasks which")
        done.close()


@contextmanager
def _deaf_processes() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, which a terminal sends to all: this one ends them.

    They inherit the signals that are blocked; Ctrl-C waits as long. Trackers of resources are started before: where
    that is left to the pool, signals are no longer blocked afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()
    loky_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _one(function: Callable[..., T], n: int, job: tuple[Any, ...]) -> tuple[int, T | None, str | None]:
    try:
        return n, function(*job), None
    except ImageError as error:
        return n, None, str(error)
