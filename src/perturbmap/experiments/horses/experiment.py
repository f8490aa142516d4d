"""Tables 3 and 4 of the paper: horses cut out of images, learned from masks, from boxes and from images with neither.

Columns.    "small" has the masks of all images, "14" those of a tenth, drawn five times. They are joined by the
            medium images, with their boxes or without, and by those of which nothing is known; and 5, 30, 70 masks.
Loss.       The area missed of the horse and of the background, balanced, over superpixels; also over pixels, and
            the plain share of mistakes.
Decodings.  Every model is read in two ways: by its best labelling, and by the labelling of least expected loss under
            its pinned marginals (docs/decisions.md, 25).
Choices.    l2, and then kappa, the weight of what is not labelled, by cross-validation inside the labelled images, by
            least held-out loss: once for each method, decoding and column, over all draws together. For 5 masks as
            for 14; for 30 and 70, l2 between those of 14 and of all.
Labels.     The structured SVM and perturb&MAP complete the labels that are missing by the best labelling, the
            marginal likelihoods by marginals, as in the paper.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from perturbmap.experiments.horses.data import Horses, judge
from perturbmap.experiments.horses.learning import Watch, learn, make_problem, masked_images, read
from perturbmap.experiments.horses.pin_timing import time_pins
from perturbmap.experiments.horses.plan import (
    COLUMNS,
    KAPPAS,
    MAIN_LOSS,
    METHODS,
    SEARCHED,
    Choices,
    Effort,
    Task,
)
from perturbmap.experiments.results import Results
from perturbmap.inference.decoding import Decoding
from perturbmap.potentials import Floats
from perturbmap.solvers import DoubleSGD, PlainStep
from perturbmap.support.progress import Progress

# A task, in a process of its own.


def work(horses: Horses, task: Task, effort: Effort, seed: int) -> dict[str, dict[str, Any]]:
    """What a task adds to the results: entries by name."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # steps are what they are given; the report says so
        return (_hold_out if task.is_held_out else _test)(horses, task, effort, seed)


def _test(horses: Horses, task: Task, effort: Effort, seed: int) -> dict[str, dict[str, Any]]:
    """Entries for models that are judged by the test images."""
    entries = {}
    masked, images = masked_images(horses, COLUMNS[task.column].n_masks, task.draw, seed), horses.parts["test"]
    watch = Watch(horses) if task.column == "small" else None
    for l2, kappa, w, prior in learn(horses, task, masked, effort, seed, watch):
        entry: dict[str, Any] = {"losses": {}, "images": {}}
        for name, predicted in read(horses, task.method, w, prior, images, effort, seed)[0].items():
            losses = judge(predicted, horses, images)
            entry["losses"][name] = {kind: float(values.mean()) for kind, values in losses.items()}
            entry["images"][name] = losses[MAIN_LOSS].round(5).tolist()
        if task.draw == 0:
            entry["weights"], entry["prior"] = w.tolist(), prior.to_array().tolist()
        if watch is not None:
            entry["curve"] = watch.take()
        entries[task.key(l2, kappa)] = entry
    return entries


def _hold_out(horses: Horses, task: Task, effort: Effort, seed: int) -> dict[str, dict[str, Any]]:
    """Entries for models that are judged by masks held out, one part after the other: each decoding's mean loss."""
    masked = masked_images(horses, COLUMNS[task.column].n_masks, task.draw, seed)
    losses: dict[str, dict[str, list[Floats]]] = {}
    for rest, held in KFold(effort.n_folds, shuffle=True, random_state=seed).split(masked):
        for l2, kappa, w, prior in learn(horses, task, masked[rest], effort, seed):
            for name, predicted in read(horses, task.method, w, prior, masked[held], effort, seed)[0].items():
                parts = losses.setdefault(task.key(l2, kappa), {}).setdefault(name, [])
                parts.append(judge(predicted, horses, masked[held])[MAIN_LOSS])
    return {
        key: {"losses": {name: float(np.concatenate(parts).mean()) for name, parts in by_name.items()}}
        for key, by_name in losses.items()
    }


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
        text = f"{version('perturbmap')} {METHODS} {COLUMNS} {KAPPAS} {self.effort} {self.horses.fingerprint}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def run(self, results: Results, methods: Sequence[str], columns: Sequence[str], progress: Progress) -> None:
        """Fills in what is missing of the results: columns of masks alone first, since the others build on them."""
        choices = Choices(results, self.effort)
        alone = [c for c in columns if not COLUMNS[c].weak]
        weak = [c for c in columns if COLUMNS[c].weak]
        searched = [(c, m) for c in alone if c in SEARCHED for m in methods] if self.effort.n_folds else []
        searched_weak = [(c, m) for c in weak for m in methods] if self.effort.n_folds else []
        stages: list[Callable[[], list[Task]]] = [
            lambda: [
                Task(c, m, draw, ((l2, 0.0),), True)
                for c, m in searched
                for draw in self._draws(c)
                for l2 in METHODS[m].l2s
            ],
            lambda: [Task(c, m, draw, choices.of(c, m)) for c in alone for m in methods for draw in self._draws(c)],
            lambda: [
                Task(c, m, draw, tuple((l2, kappa) for l2 in choices.l2s(c, m) for kappa in KAPPAS), True)
                for c, m in searched_weak
                for draw in self._draws(c)
            ],
            lambda: [Task(c, m, draw, choices.of(c, m)) for c in weak for m in methods for draw in self._draws(c)],
        ]
        n_first = sum(len(METHODS[m].l2s) * len(self._draws(c)) for c, m in searched)
        n_tests = sum(len(methods) * len(self._draws(c)) for c in columns)
        progress.start(n_first + n_tests + sum(len(self._draws(c)) for c, _ in searched_weak), 0)
        with Parallel(self.n_jobs, return_as="generator_unordered") as pool:
            for stage in stages:
                self._do(results, stage(), pool, progress)

    def time_pins(self, results: Results, progress: Progress) -> None:
        """Table 5, along a run on small with the weighted likelihood."""
        if "timing" in results:
            return
        progress.begin("pins, basic and fast")
        l2 = Choices(results, self.effort).l2("small", "weighted", Decoding.MAP.name)
        task = Task("small", "weighted", 0, ((l2, 0.0),))
        problem, _ = make_problem(self.horses, task, self.horses.parts["small"], l2, self.seed)
        solver = DoubleSGD(self.effort.n_timed / len(problem.data), 1, PlainStep(METHODS["weighted"].first_step))
        n_samples = min(2000, self.effort.n_timed // 10)
        results["timing"] = time_pins(problem, solver, self.effort.n_timed, n_samples, progress)

    def _draws(self, column: str) -> range:
        return range(1 if COLUMNS[column].n_masks is None else self.effort.n_draws)

    def _do(self, results: Results, tasks: list[Task], pool: Parallel, progress: Progress) -> None:
        missing = []
        for task in tasks:
            left = tuple(choice for choice in task.choices if task.key(*choice) not in results)
            if left:
                missing.append(replace(task, choices=left))
            else:
                progress.finish(None)
        if not missing:
            return
        stage = f"{'choosing' if missing[0].is_held_out else 'testing'}, {len(missing)} tasks"
        progress.begin(stage)
        # What only reports look at stays here.
        bare = replace(self.horses, regions=[], files=[])
        done = pool(delayed(work)(bare, task, self.effort, self.seed) for task in missing)
        for n, entries in enumerate(done, start=1):
            results.update(entries)
            name, entry = next(iter(entries.items()))
            progress.begin(name)
            progress.finish(min(_mean(loss) for loss in entry["losses"].values()))
            progress.begin(stage)
            progress.advance(n / len(missing))


def _mean(loss: Any) -> float:
    return float(loss[MAIN_LOSS] if isinstance(loss, dict) else loss)
