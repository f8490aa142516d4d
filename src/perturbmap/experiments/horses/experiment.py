"""Tables 3 and 4 of the paper: horses cut out of images, learned from masks, from boxes and from images with neither.

Columns.    "small" has the masks of all images, "14" those of a tenth, drawn ten times. They are joined by the
            medium images, with their boxes or without, and by those of which nothing is known; and 5, 30, 70 masks.
Loss.       The area missed of the horse and of the background, balanced, over superpixels; also over pixels, and
            the plain share of mistakes.
Decodings.  Models are read in two ways: by their best labelling, and by the labelling of least expected loss under
            their pinned marginals (docs/decisions.md, 25), which are calibrated, whatever the method, by a scale of
            the scores and a shift, from held-out images of the same draw. What is chosen for its best labelling alone
            is not calibrated.
Choices.    l2, and with weak labels kappa, their weight, and then whether the next smaller l2 is better with it, by
            cross-validation inside labelled images, by least held-out loss: once for each method, decoding and
            column, over five draws. Fits with weak labels that hold masks out take half the steps.
            For 5 masks as for 14; for 30 and 70, l2 between those of 14 and of all. Fits that hold a third of the
            masks out have three halves of the l2: a penalty stands for a prior, whose part in a mean over n
            examples is in proportion to 1 / n.
Labels.     The structured SVM and perturb&MAP complete the labels that are missing by the best labelling, the
            marginal likelihoods by marginals, as in the paper.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from joblib import Parallel
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from perturbmap.experiments.horses.data import Horses, judge
from perturbmap.experiments.horses.learning import (
    Beginnings,
    Watch,
    best_labels,
    calibrations_of,
    hold_out,
    known_of,
    learn,
    make_problem,
    masked_images,
    read,
)
from perturbmap.experiments.horses.pin_timing import time_pins
from perturbmap.experiments.horses.plan import (
    COLUMNS,
    KAPPAS,
    LOSS,
    MAIN_LOSS,
    METHODS,
    SEARCHED,
    Choices,
    Effort,
    Task,
)
from perturbmap.experiments.results import Results, fingerprint_of
from perturbmap.inference import LabelPrior
from perturbmap.inference.decoding import Decoding
from perturbmap.learning.calibrating import fit_calibrations
from perturbmap.potentials import Floats
from perturbmap.solvers import DoubleSGD, PlainStep
from perturbmap.structures import BinaryGraph
from perturbmap.support.progress import Progress
from perturbmap.support.workers import delayed

# A task, in a process of its own.


def work(
    horses: Horses, task: Task, effort: Effort, seed: int, beginnings: Beginnings | None = None
) -> dict[str, dict[str, Any]]:
    """What a task adds to the results: entries by name."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # steps are what they are given; the report says so
        if task.is_held_out:
            return _hold_out(horses, task, effort.of_held_out(), seed, beginnings)
        return _test(horses, task, effort, seed, beginnings)


def _test(
    horses: Horses, task: Task, effort: Effort, seed: int, beginnings: Beginnings | None
) -> dict[str, dict[str, Any]]:
    """Entries for models that are judged by the test images."""
    entries = {}
    masked, images = masked_images(horses, COLUMNS[task.column].n_masks, task.draw, seed), horses.parts["test"]
    watch = Watch(horses) if task.column == "small" else None
    calibrations = dict(zip(task.choices, task.calibrations, strict=True))
    for l2, kappa, w, prior in learn(horses, task, masked, effort, seed, beginnings, watch):
        entry: dict[str, Any] = {"losses": {}, "images": {}}
        known = calibrations[l2, kappa]
        if known is None:
            predictions = {Decoding.MAP.name: best_labels(horses, w, images)}
        else:
            found = calibrations_of(known)
            predictions = read(horses, task.method, w, prior, found, images, effort, seed)[0]
        for name, predicted in predictions.items():
            losses = judge(predicted, horses, images)
            entry["losses"][name] = {kind: float(values.mean()) for kind, values in losses.items()}
            entry["images"][name] = losses[MAIN_LOSS].round(5).tolist()
        if task.draw == 0:
            entry["weights"], entry["prior"] = w.tolist(), prior.to_array().tolist()
            entry["calibrations"] = known
        if watch is not None:
            entry["curve"] = watch.take()
        entries[task.key(l2, kappa)] = entry
    return entries


def _hold_out(
    horses: Horses, task: Task, effort: Effort, seed: int, beginnings: Beginnings | None
) -> dict[str, dict[str, Any]]:
    """Entries for models that are judged by masks held out, one part after the other: calibration and mean losses."""
    masked = masked_images(horses, COLUMNS[task.column].n_masks, task.draw, seed)
    models: dict[tuple[float, float], list[tuple[NDArray[np.intp], Floats, LabelPrior]]] = {}
    for rest, held in KFold(effort.n_folds, shuffle=True, random_state=seed).split(masked):
        for l2, kappa, w, prior in learn(horses, task, masked[rest], effort, seed, beginnings, n_masks=len(masked)):
            models.setdefault((l2, kappa), []).append((masked[held], w, prior))
    method = METHODS[task.method].objective.marginal_method
    entries = {}
    for choice, folds in models.items():
        held_out = [hold_out(horses, task.method, w, images) for images, w, _ in folds]
        prior = METHODS[task.method].objective.label_prior(known_of(horses, masked))
        found = fit_calibrations(BinaryGraph(1), held_out, prior, LOSS, method, effort.n_perturbations, seed)
        losses: dict[str, list[Floats]] = {}
        for images, w, prior in folds:
            predictions = read(horses, task.method, w, prior, found, images, effort, seed)[0]
            for name, predicted in predictions.items():
                losses.setdefault(name, []).append(judge(predicted, horses, images)[MAIN_LOSS])
        entries[task.key(*choice)] = {
            "losses": {name: float(np.concatenate(parts).mean()) for name, parts in losses.items()},
            "calibrations": [part.to_array().tolist() for part in found if part is not None],
        }
    return entries


# All tasks.


@dataclass(frozen=True)
class Experiment:
    """The data and what all runs have in common."""

    horses: Horses
    effort: Effort
    seed: int
    n_jobs: int

    @property
    def fingerprint(self) -> str:
        """A digest of the data and of what the methods are: results with another do not mix."""
        return fingerprint_of(METHODS, COLUMNS, KAPPAS, self.effort, self.horses.fingerprint)

    def run(self, results: Results, methods: Sequence[str], columns: Sequence[str], progress: Progress) -> None:
        """Fills in what is missing of the results: columns of masks alone first, since the others build on them."""
        choices = Choices(results, self.effort)
        alone = [c for c in columns if not COLUMNS[c].weak]
        weak = [c for c in columns if COLUMNS[c].weak]
        searched = [c for c in alone if c in SEARCHED] if self.effort.is_searched else []
        all_of_alone, all_of_weak = (
            [(c, m, d) for c in some for m in methods for d in self.effort.draws(c)] for some in (alone, weak)
        )

        searched_weak = [(c, m, d) for c, m, d in all_of_weak if d in self.effort.searched_draws(c)]
        searched_weak = searched_weak if self.effort.is_searched else []

        def search() -> list[Task]:
            each = [(c, m, d) for c in searched for m in methods for d in self.effort.searched_draws(c)]
            return [Task(c, m, d, ((l2, 0.0),), True) for c, m, d in each for l2 in METHODS[m].l2s]

        def search_kappa() -> list[Task]:
            return [Task(c, m, d, choices.kappas(c, m), True) for c, m, d in searched_weak]

        def search_smaller() -> list[Task]:
            return [Task(c, m, d, choices.smaller(c, m), True) for c, m, d in searched_weak]

        def calibrate(which: list[tuple[str, str, int]]) -> list[Task]:
            return [choices.calibrate(c, m, d) for c, m, d in which]

        def test(which: list[tuple[str, str, int]]) -> list[Task]:
            return [choices.test(c, m, d) for c, m, d in which]

        stages: list[Callable[[], list[Task]]] = [
            search,
            lambda: calibrate(all_of_alone),
            lambda: test(all_of_alone),
            search_kappa,
            search_smaller,
            lambda: calibrate(all_of_weak),
            lambda: test(all_of_weak),
        ]
        n_searches = len(search()) + 2 * len(searched_weak)
        progress.start(n_searches + 2 * (len(all_of_alone) + len(all_of_weak)), 0)
        with (
            TemporaryDirectory(prefix="perturbmap-horses-") as folder,
            Parallel(self.n_jobs, return_as="generator_unordered") as pool,
        ):
            for stage in stages:
                self._do(results, stage(), pool, Beginnings(Path(folder)), progress)

    def time_pins(self, results: Results, progress: Progress) -> None:
        """Table 5, along a run on small with the weighted likelihood."""
        if "timing" in results:
            return
        progress.begin("pins, basic and fast")
        l2 = Choices(results, self.effort).l2("small", "weighted", Decoding.MAP.name)
        task = Task("small", "weighted", 0, ((l2, 0.0),))
        problem, _ = make_problem(self.horses, task, self.horses.parts["small"], l2, self.seed)
        solver = DoubleSGD(self.effort.n_timed / len(problem.data), 1, PlainStep(0.1))  # the paper's
        n_samples = min(2000, self.effort.n_timed // 10)
        results["timing"] = time_pins(problem, solver, self.effort.n_timed, n_samples, progress)

    def _do(
        self, results: Results, tasks: list[Task], pool: Parallel, beginnings: Beginnings, progress: Progress
    ) -> None:
        missing = []
        for task in tasks:
            left = tuple(choice for choice in task.choices if task.key(*choice) not in results)
            if left:
                which = [task.choices.index(choice) for choice in left]
                calibrations = tuple(task.calibrations[i] for i in which) if task.calibrations else ()
                missing.append(replace(task, choices=left, calibrations=calibrations))
            else:
                progress.finish(None)
        if not missing:
            return
        missing.sort(key=self._length, reverse=True)  # so that no process waits long for the last of another
        stage = f"{'choosing' if missing[0].is_held_out else 'testing'}, {len(missing)} tasks"
        progress.begin(stage)
        # What only reports look at stays here.
        bare = replace(self.horses, regions=[], files=[])
        done = pool(delayed(work)(bare, task, self.effort, self.seed, beginnings) for task in missing)
        for n, entries in enumerate(done, start=1):
            results.update(entries)
            name, entry = next(iter(entries.items()))
            progress.begin(name)
            progress.finish(min(_mean(loss) for loss in entry["losses"].values()))
            progress.begin(stage)
            progress.advance(n / len(missing))

    def _length(self, task: Task) -> int:
        """About how long a task takes, beside others of its stage."""
        column = COLUMNS[task.column]
        n_masks = len(self.horses.parts["small"]) if column.n_masks is None else column.n_masks
        return len(task.choices) * (n_masks + sum(len(self.horses.parts[part]) for part in column.weak))


def _mean(loss: Any) -> float:
    return float(loss[MAIN_LOSS] if isinstance(loss, dict) else loss)
