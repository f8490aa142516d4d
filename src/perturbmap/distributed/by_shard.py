"""Questions about many examples: part by part, and shard by shard in other processes or machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.data.dataset import Shards
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.workers import delayed

#: ``question(data, given)``: an array over the sites of the data; ``given`` is what is known of the same sites.
Question = Callable[[Dataset, Any], NDArray[Any]]


def ask(
    question: Question, data: Dataset, given: NDArray[Any] | None = None, n_jobs: int | None = None
) -> list[NDArray[Any]]:
    """The answers for all examples, one array for each: of a store part by part, and with jobs shard by shard.

    What travels to a worker is the question, the place of its shard and what is given of it; answers come back.
    """
    if data.store is None or data.shards is None or n_jobs in (None, 1):
        return _ask_parts(question, data, given)
    from joblib import Parallel

    tasks = []
    for shard in np.unique(data.shards).tolist():
        part = None if given is None else given[data.layout.repeat(data.shards == shard)]
        tasks.append(delayed(_ask_shard)(question, data.store, shard, part))
    return [answer for answers in Parallel(n_jobs=n_jobs)(tasks) for answer in answers]


def _ask_parts(question: Question, data: Dataset, given: NDArray[Any] | None) -> list[NDArray[Any]]:
    answers: list[NDArray[Any]] = []
    first = 0
    with one_blas_thread():
        for part in data.parts():
            sites = slice(first, first + part.n_sites)
            answers += part.layout.split(question(part, None if given is None else given[sites]))
            first = sites.stop
    return answers


def _ask_shard(question: Question, store: Shards, shard: int, given: NDArray[Any] | None) -> list[NDArray[Any]]:
    data = store.open(shard).data
    answers = _ask_parts(question, data, given)
    data.release()  # mapped pages count as memory, and joblib replaces a worker whose memory grows
    return answers
