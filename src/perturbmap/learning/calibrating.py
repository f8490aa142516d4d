"""Calibration by cross-validation: scale and shift, from examples that were not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from perturbmap.inference import Calibration, LabelPrior, MarginalMethod, decode_for, marginals
from perturbmap.learning.algorithm_3 import in_stage, labelled_examples
from perturbmap.learning.fit import Solve, Stage
from perturbmap.noise import Domain, Purpose
from perturbmap.potentials import Floats, Potentials, SiteLabels
from perturbmap.solvers import Problem
from perturbmap.structures import Structure
from perturbmap.support.blas import one_blas_thread
from perturbmap.task_losses import TaskLoss

CALIBRATION = Domain(Purpose.CALIBRATION)

#: Stages 0 and 1 are those of Algorithm 3; each fold after them has noise of its own.
_FIRST_STAGE = 2
_MOST_FOLDS = 1000
# How often the scale is doubled for decoding, at most.
_DOUBLINGS = 4


def check_folds(n_folds: int, known: SiteLabels) -> None:
    """Raises ValueError where there are not so many labelled examples, or too many folds."""
    n = len(labelled_examples(known))
    most = min(n, _MOST_FOLDS)
    if not 2 <= n_folds <= most:
        raise ValueError(
            f"calibration must be a number of folds from 2 to {most} (there are {n} labelled examples), but is "
            f"{n_folds!r}."
        )


class Calibrations(NamedTuple):
    """How marginals are made right: for probabilities, and where labels are read by a loss, for that."""

    marginals: Calibration
    decoding: Calibration | None


def calibrate(
    problem: Problem,
    known: SiteLabels,
    solve: Solve,
    *,
    n_folds: int,
    n_perturbations: int,
    task_loss: TaskLoss | None = None,
) -> Calibrations:
    """Fits to the potentials of each fold under weights that were learned from the others.

    task_loss : by which labels are read; None where they are not
    """
    from sklearn.model_selection import KFold  # takes long to load, and few fits are calibrated

    labelled = labelled_examples(known)
    held_out: list[HeldOut] = []
    folds = KFold(n_folds, shuffle=True, random_state=problem.seed % 2**32).split(labelled)
    for fold, (train, test) in enumerate(folds):
        stage = Stage(f"calibration, fold {fold}", _FIRST_STAGE + fold)
        w = solve(stage, in_stage(problem.part(labelled[train]), stage), None)
        held = problem.part(labelled[test])
        with one_blas_thread():
            f = problem.model.potentials(w, held.data, problem.n_labels)
        held_out.append(HeldOut(f, held.targets.label_weights, known.take(labelled[test])))
    prior, method = problem.objective.label_prior(known), problem.objective.marginal_method
    return fit_calibrations(problem.structure, held_out, prior, task_loss, method, n_perturbations, problem.seed)


class HeldOut(NamedTuple):
    """The potentials of examples that were not learned from, how much each label of each site counts, the labels."""

    f: Potentials
    label_weights: Floats
    known: SiteLabels


def fit_calibrations(
    structure: Structure,
    held_out: Sequence[HeldOut],
    label_prior: LabelPrior,
    task_loss: TaskLoss | None,
    method: MarginalMethod,
    n_perturbations: int,
    seed: int,
) -> Calibrations:
    """The calibration of greatest likelihood; and for decoding, sharper ones while they lower the loss.

    Balanced areas are expected ones, and those of probabilities that are right come out too even (docs/decisions.md,
    38).
    """
    c = np.concatenate([part.label_weights for part in held_out])

    @lru_cache(maxsize=2)  # the likeliest, and its double
    def marginals_at(scale: float) -> list[Floats]:
        options: Any = {"method": method, "n_perturbations": n_perturbations, "rng": seed, "domain": CALIBRATION}
        return [marginals(structure, part.f.scaled(scale), **options).mean for part in held_out]

    def fit_at(scale: float) -> tuple[float, Calibration]:
        return Calibration.at(scale, np.concatenate(marginals_at(scale)), c)

    def loss_of(calibration: Calibration) -> float:
        assert task_loss is not None
        losses = []
        for part, q in zip(held_out, marginals_at(calibration.scale), strict=True):
            p = label_prior.remove(calibration.shifted(q))
            losses.append(task_loss.value(part.known, decode_for(task_loss, p, part.f.layout, part.known.sizes)))
        return float(np.nanmean(np.concatenate(losses)))

    likeliest = Calibration.fit(fit_at)
    if task_loss is None:
        return Calibrations(likeliest, None)
    best, least = likeliest, loss_of(likeliest)
    for _ in range(_DOUBLINGS):
        sharper = fit_at(2.0 * best.scale)[1]
        loss = loss_of(sharper)
        if loss >= least:
            break
        best, least = sharper, loss
    return Calibrations(likeliest, best)
