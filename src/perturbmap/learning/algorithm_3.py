"""Algorithm 3 of the paper: learning from examples of which some are labelled, some in part, some not at all.

    1.  w <- learn from the fully labelled examples                      (phase 1: Algorithm 1, 2 or 4)
    2.  q <- marginals of the others under w, given what is known of them
    3.  w <- learn from all examples, the others with soft labels q and weight kappa, beginning at w      (phase 2)

Where no example is fully labelled, phase 1 learns from the sites that are known. An objective that learns from labels
alone is given the best labelling in step 2 in place of marginals (docs/decisions.md, 22). The marginals are
calibrated, if a calibration is given, and freed of what a weighted loss has added to them (13); the weights are
those of ``mean over labelled + kappa * mean over the others`` (10).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perturbmap.inference import Calibration, corrected_marginals
from perturbmap.learning.fit import Solve, Stage
from perturbmap.noise import Domain, Purpose
from perturbmap.potentials import Floats, SiteLabels
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.solvers import Problem
from perturbmap.support.blas import one_blas_thread

LABELLED, EVERYTHING = Stage("labelled", 0, phase=1), Stage("everything", 1, phase=2)
COMPLETION = Domain(Purpose.COMPLETION)


def algorithm_3(
    problem: Problem,
    known: SiteLabels,
    solve: Solve,
    *,
    unlabelled_weight: float = 1.0,
    hard_labels: bool = False,
    calibration: Calibration | None = None,
    n_perturbations: int = 100,
) -> Floats:
    """The weights w, by ``solve`` of one problem or of two; ``unlabelled_weight`` is kappa."""
    w = learn_from_labelled(problem, known, solve)
    if known.is_complete.all() or unlabelled_weight == 0:
        return w
    q = complete(problem, known, w, hard_labels=hard_labels, calibration=calibration, n_perturbations=n_perturbations)
    return learn_from_all(problem, known, solve, w, q, unlabelled_weight)


def learn_from_labelled(problem: Problem, known: SiteLabels, solve: Solve) -> Floats:
    """Phase 1: the fully labelled examples, or all where none is."""
    some = problem if known.is_complete.all() else problem.part(labelled_examples(known))
    return solve(LABELLED, in_stage(some, LABELLED), None)


def labelled_examples(known: SiteLabels) -> NDArray[np.intp]:
    """The fully labelled examples; all where none is, but for those that have no sites."""
    labelled = np.flatnonzero(known.is_complete & known.has_some)
    return labelled if labelled.size else np.arange(len(known.layout))


def complete(
    problem: Problem,
    known: SiteLabels,
    w: Floats,
    *,
    hard_labels: bool = False,
    calibration: Calibration | None = None,
    n_perturbations: int = 100,
) -> Floats:
    """Step 2: q of every site under w, given what is known; the best labelling, one-hot, with ``hard_labels``."""
    with one_blas_thread():
        f = problem.model.potentials(w, problem.data, problem.n_labels)
    if hard_labels or not problem.objective.takes_soft_labels:
        return one_hot(problem.structure.argmax(f, known.labels), problem.n_labels)
    return corrected_marginals(
        problem.structure,
        f,
        calibration,
        problem.objective.label_prior(known),
        method=problem.objective.marginal_method,
        given=known.labels,
        n_perturbations=n_perturbations,
        rng=problem.seed,
        domain=COMPLETION,
    )


def learn_from_all(
    problem: Problem, known: SiteLabels, solve: Solve, w: Floats, q: Floats, unlabelled_weight: float
) -> Floats:
    """Phase 2: all examples, those that are not fully labelled with q where nothing is known, beginning at w."""
    n, n_labelled = len(known.layout), int(known.is_complete.sum())
    weights = np.where(known.is_complete, n / max(1, n_labelled), unlabelled_weight * n / max(1, n - n_labelled))
    targets = problem.objective.targets(known, guess=q, weights=weights)
    whole = replace(problem, targets=targets, has_stored_labels=False)
    return solve(EVERYTHING, in_stage(whole, EVERYTHING), w)


def in_stage(problem: Problem, stage: Stage) -> Problem:
    """The problem with the noise of this stage."""
    return replace(problem, domain=Domain(Purpose.TRAINING, stage.number))
