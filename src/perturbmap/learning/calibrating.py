"""Calibration by cross-validation: slope and shift of the log-odds, from examples that were not learned from."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import KFold

from perturbmap.inference import Calibration, marginals
from perturbmap.learning.algorithm_3 import in_stage, labelled_examples
from perturbmap.learning.fit import Solve, Stage
from perturbmap.noise import Domain, Purpose
from perturbmap.potentials import SiteLabels
from perturbmap.solvers import Problem
from perturbmap.support.blas import one_blas_thread

CALIBRATION = Domain(Purpose.CALIBRATION)

#: Stages 0 and 1 are those of Algorithm 3; each fold after them has noise of its own.
_FIRST_STAGE = 2
_MOST_FOLDS = 1000


def check_folds(n_folds: int, known: SiteLabels) -> None:
    """Raises ValueError where there are not so many labelled examples, or too many folds."""
    n = len(labelled_examples(known))
    most = min(n, _MOST_FOLDS)
    if not 2 <= n_folds <= most:
        raise ValueError(
            f"calibration must be a number of folds from 2 to {most} (there are {n} labelled examples), but is "
            f"{n_folds!r}."
        )


def calibrate(
    problem: Problem, known: SiteLabels, solve: Solve, *, n_folds: int, n_perturbations: int
) -> Calibration:
    """Fits a calibration to the marginals of each fold under weights that were learned from the others."""
    labelled = labelled_examples(known)
    q, c = [], []
    folds = KFold(n_folds, shuffle=True, random_state=problem.seed % 2**32).split(labelled)
    for fold, (train, test) in enumerate(folds):
        stage = Stage(f"calibration, fold {fold}", _FIRST_STAGE + fold)
        w = solve(stage, in_stage(problem.part(labelled[train]), stage), None)
        held = problem.part(labelled[test])
        with one_blas_thread():
            f = problem.model.potentials(w, held.data, problem.n_labels)
        q.append(
            marginals(
                problem.structure,
                f,
                method=problem.objective.marginal_method,
                n_perturbations=n_perturbations,
                rng=problem.seed,
                domain=CALIBRATION,
            ).mean
        )
        c.append(held.targets.label_weights)
    return Calibration.fit(np.concatenate(q), np.concatenate(c))
