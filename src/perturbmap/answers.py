"""Questions to an estimator about many examples: part by part, and shard by shard in other processes or machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from perturbmap.blas import one_blas_thread
from perturbmap.examples import Dataset
from perturbmap.potentials import Labels

Answer = Callable[[Any, Dataset, Labels | None], list[Any]]


def answer_parts(estimator: Any, data: Dataset, answer: Answer, given: Labels | None) -> list[Any]:
    """``answer(estimator, part, given)`` for the parts of the data, joined."""
    answers: list[Any] = []
    first = 0
    with one_blas_thread():
        for part in data.parts():
            sites = slice(first, first + part.n_sites)
            answers += answer(estimator, part, None if given is None else given[sites])
            first = sites.stop
    return answers


def answer_shards(
    estimator: Any, data: Dataset, answer: Answer, given: Labels | None, n_jobs: int | None
) -> list[Any]:
    """The same, shard by shard through joblib: what travels is the estimator, a path, and the answers."""
    from joblib import Parallel, delayed

    assert data.store is not None
    assert data.shards is not None
    tasks = []
    for shard in np.unique(data.shards).tolist():
        is_here = data.shards == shard
        part = None if given is None else given[np.repeat(is_here, data.site_counts)]
        tasks.append(
            delayed(_answer_shard)(estimator, data.store.path, shard, data.store.firsts[shard], answer, part)
        )
    return [answer for answers in Parallel(n_jobs=n_jobs)(tasks) for answer in answers]


def _answer_shard(
    estimator: Any, store: Path, shard: int, first: int, answer: Answer, given: Labels | None
) -> list[Any]:
    from perturbmap.store import Store

    return answer_parts(estimator, Store.one_shard(store, shard, first).dataset, answer, given)
