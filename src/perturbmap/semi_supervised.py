"""Algorithm 3: what to learn from examples whose labels are not, or only partly, known."""

from __future__ import annotations

import numpy as np

from perturbmap.annotations import Annotations
from perturbmap.calibration import Calibration
from perturbmap.inference import marginals
from perturbmap.objectives.base import Targets
from perturbmap.potentials import Floats
from perturbmap.solvers.base import Problem
from perturbmap.task_losses.base import one_hot, sums_by_example


def complete(
    problem: Problem,
    annotations: Annotations,
    w: Floats,
    *,
    hard: bool,
    calibration: Calibration | None,
    n_perturbations: int,
) -> Floats:
    """Q for all sites: as annotated where something is known, else from the model with weights w.

    Soft: marginals conditional on what is known; hard: the best labelling under it.
    """
    f = problem.model.potentials(w, problem.data, problem.n_labels)
    given = annotations.labels
    if hard:
        guess = one_hot(problem.structure.argmax(f, given), problem.n_labels)
    else:
        guess = marginals(
            problem.structure,
            f,
            method=problem.objective.marginal_method,
            given=given,
            n_perturbations=n_perturbations,
            rng=problem.seed,
        ).mean
        if calibration is not None:
            guess = calibration(guess)
        guess = _without_tilt(guess, problem, annotations)
    known = annotations.q.sum(axis=1, keepdims=True) > 0
    return np.where(known, annotations.q, guess)


def _without_tilt(q: Floats, problem: Problem, annotations: Annotations) -> Floats:
    """Takes theta out of the marginals of examples of which nothing is known.

    A model learned with weights theta says ``P(k) theta(k)`` up to a factor; with theta on top of its marginals, it
    would count twice. theta(k) is the mean weight of label k where it is known. Given labels outweigh it: they stay.
    """
    known = annotations.q.sum(axis=0)
    tilt = np.divide(problem.targets.label_weights.sum(axis=0), known, out=np.ones_like(known), where=known > 0)
    has_labels = sums_by_example(annotations.q.sum(axis=1), problem.data.site_offsets) > 0
    plain = q / np.where(tilt > 0, tilt, 1.0)
    plain /= plain.sum(axis=1, keepdims=True)
    return np.where(np.repeat(has_labels, problem.data.site_counts)[:, None], q, plain)


def mixture(problem: Problem, annotations: Annotations, q: Floats, unlabelled_weight: float) -> Targets:
    """Targets of ``mean over labelled + unlabelled_weight * mean over the others`` (see docs/decisions.md)."""
    data = problem.data
    labelled = annotations.is_complete
    n, n_labelled = len(data), int(labelled.sum())
    weights = np.where(labelled, n / max(1, n_labelled), unlabelled_weight * n / max(1, n - n_labelled))
    c = problem.objective.label_weights(q, data.sizes, data.site_offsets)
    # Guessed labels count as labels only where nothing else is understood; what is given stays what is given.
    labels = annotations.labels if problem.objective.takes_soft_labels else q.argmax(axis=1).astype(np.int32)
    return Targets(labels, c, labelled, weights)
