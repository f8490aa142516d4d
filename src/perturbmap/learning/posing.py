"""From examples, labels and a setting to a problem: all that is checked before any work is done."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from perturbmap.data import Dataset
from perturbmap.data.labels import NO_LABELS, EncodedLabels, check_length, encode_labels, find_classes
from perturbmap.learning.setting import Setting
from perturbmap.models.base import check_streams
from perturbmap.potentials import SiteLabels
from perturbmap.solvers import Problem
from perturbmap.structures import InfeasibleError, Structure


class Posed(NamedTuple):
    """A problem, what is known of the labels of its examples, and the values of the labels."""

    problem: Problem
    known: SiteLabels
    classes: list[Hashable]


def pose(
    setting: Setting, X: Sequence[Any], y: Sequence[Any], classes: Sequence[Hashable] | None, seed: int
) -> Posed:
    """Checks everything, and changes nothing; ``classes`` are found in y where they are not named."""
    setting.check()
    data = Dataset.from_examples(X)
    check_length(y, data)
    named = find_classes(y, classes)
    known = encode_labels(y, data, named)
    if not known.is_known.any():
        raise ValueError(NO_LABELS)
    objective, k = setting.objective, len(named)
    if not objective.takes_soft_labels and not known.is_hard:
        raise ValueError(f"{type(objective).__name__} learns from labels, not from soft ones: give labels in y.")
    setting.model.check(data, k)
    setting.structure.check_classes(named)
    _check_labels(setting.structure, known)
    problem = Problem(
        data,
        objective.targets(known),
        k,
        setting.model,
        setting.structure,
        objective,
        float(setting.l2),
        seed,
        n_jobs=setting.n_jobs,
        has_stored_labels=isinstance(y, EncodedLabels)
        and y.are_those_of(data)
        and y.classes == named
        and bool(known.is_complete.all()),
    )
    setting.solver_for(len(data)).check(problem)
    _try_structure(problem)
    return Posed(problem, known, named)


def _check_labels(structure: Structure, known: SiteLabels) -> None:
    try:
        structure.check_labels(known.layout, known.labels, known.n_labels)
    except InfeasibleError as error:
        raise ValueError(f"y holds labels that {type(structure).__name__} does not allow: {error}") from None


def _try_structure(problem: Problem) -> None:
    """Model and structure have their say now, not after an hour.

    Of a solver of the user's only two examples are asked, and of a store only its beginning.
    """
    data, structure, model = problem.data, problem.structure, problem.model
    n_asked = len(next(data.parts())) if structure.is_thread_safe else min(2, len(data))
    batch, zeros = data.take(np.arange(n_asked)), np.zeros(problem.n_weights)
    f = model.potentials(zeros, batch, problem.n_labels)
    last = data.take(np.array([n_asked - 1]))  # whose stream is its own, unless it is the first
    check_streams(model, model.potentials(zeros, last, problem.n_labels), last)
    try:
        found = structure.maximise(f, problem.targets.labels[: f.n_sites])
    except InfeasibleError as error:
        raise ValueError(f"y holds labels that {type(structure).__name__} does not allow: {error}") from None
    if not isinstance(found, tuple) or [np.shape(part) for part in found] != [(f.n_sites,), (len(f),)]:
        raise TypeError(
            f"{type(structure).__name__}.maximise must return labels, ({f.n_sites},), and scores, ({len(f)},), as "
            f"arrays, but returned {found!r}."
        )
