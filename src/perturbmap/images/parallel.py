"""The same work for many images: in parallel processes, with progress, without the broken ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed

from perturbmap.images.reading import ImageError, SkippedImageWarning

T = TypeVar("T")


def for_each(function: Callable[..., T], jobs: Sequence[tuple[Any, ...]], n_jobs: int) -> Iterator[tuple[int, T]]:
    """(position, result) of each job as it ends, in any order; a broken image is skipped with a warning.

    ``n_jobs`` as in joblib: -1 is one process per core, 1 stays in this one.
    """
    if not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs == 0:
        raise ValueError(f"n_jobs must be a number of processes, or -1 for one per core, but is {n_jobs!r}.")
    if n_jobs == 1 or len(jobs) < 2:
        done: Any = (_one(function, n, job) for n, job in enumerate(jobs))
    else:
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        done = pool(delayed(_one)(function, n, job) for n, job in enumerate(jobs))
    for n, result, complaint in done:
        if complaint is None:
            yield n, result
        else:
            warnings.warn(f"left out: {complaint}", SkippedImageWarning, stacklevel=3)


def _one(function: Callable[..., T], n: int, job: tuple[Any, ...]) -> tuple[int, T | None, str | None]:
    try:
        return n, function(*job), None
    except ImageError as error:
        return n, None, str(error)
