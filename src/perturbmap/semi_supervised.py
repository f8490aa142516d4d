"""Algorithm 3: what to learn from examples whose labels are not, or only partly, known."""

from __future__ import annotations

import numpy as np

from perturbmap.annotations import Annotations
from perturbmap.blas import one_blas_thread
from perturbmap.calibration import Calibration
from perturbmap.inference import marginals
from perturbmap.objectives.base import Targets
from perturbmap.potentials import Floats
from perturbmap.site_arrays import one_hot
from perturbmap.solvers.base import Problem
from perturbmap.tilt import label_mass, untilt


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
    with one_blas_thread():
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
        guess = untilt(guess, known_mass(problem, annotations))
    known = annotations.q.sum(axis=1, keepdims=True) > 0
    return np.where(known, annotations.q, guess)


def known_mass(problem: Problem, annotations: Annotations) -> Floats:
    """How much of each label is known and what it weighs, in fully labelled examples, if there are any.

    Of others, the areas on which a balanced loss depends are not known.
    """
    full = np.repeat(annotations.is_complete, problem.data.site_counts)
    sites = full if full.any() else np.ones_like(full)
    sizes = problem.objective.site_sizes(problem.data.sizes)
    return label_mass((sizes[:, None] * annotations.q)[sites], problem.targets.label_weights[sites])


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
