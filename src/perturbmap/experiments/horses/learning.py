"""One model of the horse experiment: what it learns from, and how it is read."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.experiments.horses.data import Horses, judge
from perturbmap.experiments.horses.plan import COLUMNS, LOSS, MAIN_LOSS, METHODS, Effort, Task
from perturbmap.inference import Calibration, Decoding, LabelPrior
from perturbmap.learning.algorithm_3 import complete, learn_from_all, learn_from_labelled
from perturbmap.learning.calibrating import Calibrations, HeldOut
from perturbmap.learning.fit import Stage
from perturbmap.learning.learned_model import LearnedModel
from perturbmap.learning.setting import default_solver
from perturbmap.models import GraphModel
from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.potentials.site_labels import UNKNOWN
from perturbmap.solvers import BCFW, LBFGS, AdaptiveStep, DoubleSGD, PolynomialAveraging, Problem, Solver, State
from perturbmap.structures import BinaryGraph
from perturbmap.support.files import write_atomically

Images = NDArray[np.intp]


def masked_images(horses: Horses, n_masks: int | None, draw: int, seed: int) -> Images:
    """The images of small whose masks may be looked at; smaller draws are parts of larger ones."""
    small = horses.parts["small"]
    if n_masks is None:
        return small
    return np.sort(np.random.default_rng([seed, draw]).permutation(small)[:n_masks])


class Beginnings:
    """Weights that were learned from masks alone, in a folder: columns with the same masks begin with them.

    Nothing but the method, l2 and the images decides these weights within one run, so that it does not matter which
    task learns them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, method: str, l2: float, masked: Images, learn: Callable[[], Floats]) -> Floats:
        """The weights; learned, and kept, where nobody has yet."""
        name = hashlib.blake2b(f"{method} {l2!r} {masked.tolist()}".encode(), digest_size=12).hexdigest()
        path = self._folder / f"{name}.npy"
        if path.exists():
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        w = learn()
        write_atomically(path, lambda file: np.save(file, w, allow_pickle=False))
        return w


def learn(
    horses: Horses,
    task: Task,
    masked: Images,
    effort: Effort,
    seed: int,
    beginnings: Beginnings | None = None,
    watch: Watch | None = None,
    n_masks: int | None = None,
) -> Iterator[tuple[float, float, Floats, LabelPrior]]:
    """For each choice, l2 and kappa, the weights, and the prior of the labels that these masks show.

    l2 is meant for ``n_masks`` masks, these by default; with fewer, the penalty grows as one over their number.
    ``watch`` looks on while masks alone are learned from, which it then has to see.
    """
    column = COLUMNS[task.column]
    for l2 in dict.fromkeys(l2 for l2, _ in task.choices):
        problem, known = make_problem(horses, task, masked, l2 * (n_masks or len(masked)) / len(masked), seed)
        prior = problem.objective.label_prior(known)
        begin = partial(learn_from_labelled, problem, known, partial(_solve, horses, effort, watch))
        first = begin() if watch or beginnings is None else beginnings.find(task.method, problem.l2, masked, begin)
        if not column.weak:
            yield l2, 0.0, first, prior
            continue
        q = complete(problem, known, first, n_perturbations=effort.n_perturbations)
        for kappa in (kappa for other, kappa in task.choices if other == l2):
            w = learn_from_all(problem, known, partial(_solve, horses, effort, None), first, q, kappa)
            yield l2, kappa, w, prior


def make_problem(horses: Horses, task: Task, masked: Images, l2: float, seed: int) -> tuple[Problem, SiteLabels]:
    """All images of the column, and what is known of them."""
    column, objective = COLUMNS[task.column], METHODS[task.method].objective
    images = np.concatenate([masked, *(horses.parts[part] for part in column.weak)])
    data = horses.data.take(images)
    labels = horses.taught[horses.sites(images)]
    if not column.boxed:
        is_masked = np.arange(len(images)) < len(masked)
        labels = np.where(data.layout.repeat(is_masked), labels, np.int32(UNKNOWN))
    known = SiteLabels.of(labels, 2, data.layout, data.sizes)
    return Problem(data, objective.targets(known), 2, GraphModel(), BinaryGraph(1), objective, l2, seed), known


def _solve(
    horses: Horses, effort: Effort, watch: Watch | None, stage: Stage, problem: Problem, start: Floats | None
) -> Floats:
    """The weights by the solver that suits the problem."""
    solver = _solver(horses, effort, problem, is_weak=stage.phase == 2)
    look = None if watch is None else partial(watch, solver.examples_per_step(len(problem.data)) / len(problem.data))
    found: Floats = solver.run(problem, solver.start(problem, start), look).average
    return found


def _solver(horses: Horses, effort: Effort, problem: Problem, *, is_weak: bool) -> Solver[Any]:
    """The default for so many images, but for the number of its steps and the length of the first."""
    default = default_solver(problem.objective, len(problem.data))
    if isinstance(default, BCFW):
        n_passes = effort.n_weak_passes if is_weak else effort.n_passes
        return BCFW(0.01, n_passes, averaging=PolynomialAveraging(1))
    if isinstance(default, LBFGS):
        return LBFGS(effort.tolerance, max_draws=effort.max_draws)
    step = AdaptiveStep(horses.first_step)
    return DoubleSGD(1, step=step, min_steps=effort.n_weak_steps if is_weak else effort.n_steps)


class Watch:
    """The test loss of the best labelling along a fit, against passes and seconds; looking takes no time."""

    def __init__(self, horses: Horses) -> None:
        self._horses, self._data = horses, horses.data.take(horses.parts["test"])
        self._begin()

    def _begin(self) -> None:
        self._points: list[dict[str, float]] = []
        self._next, self._start = 0.2, time.perf_counter()

    def take(self) -> list[dict[str, float]]:
        """The points of the fit that is over; the next one begins."""
        points = self._points
        self._begin()
        return points

    def __call__(self, passes_per_step: float, state: State) -> bool:
        """See `Solver.run`; never stops it."""
        passes = passes_per_step * state.iteration
        if passes >= self._next:
            began = time.perf_counter()
            labels = _best(state.average, self._data)
            loss = float(judge(labels, self._horses, self._horses.parts["test"])[MAIN_LOSS].mean())
            self._points.append({"passes": passes, "seconds": began - self._start, "loss": loss})
            self._next *= 1.5
            self._start += time.perf_counter() - began
        return False


def learned_model(
    horses: Horses, method: str, w: Floats, prior: LabelPrior, calibrations: Calibrations, effort: Effort, seed: int
) -> LearnedModel:
    """A method's weights, with all that it takes to read images by them."""
    return LearnedModel(
        GraphModel(),
        BinaryGraph(1),
        w,
        horses.data.n_features,
        2,
        METHODS[method].objective.marginal_method,
        effort.n_perturbations,
        seed,
        calibrations.marginals,
        prior,
        Decoding.LOSS_AWARE,
        LOSS,
        calibrations.decoding,
    )


def read(
    horses: Horses,
    method: str,
    w: Floats,
    prior: LabelPrior,
    calibrations: Calibrations,
    images: Images,
    effort: Effort,
    seed: int,
) -> tuple[dict[str, Labels], Floats]:
    """The labels of these images in both ways, and the probabilities of the foreground."""
    data = horses.data.take(images)
    learned = learned_model(horses, method, w, prior, calibrations, effort, seed)
    q = learned.marginals(data)
    return {Decoding.MAP.name: _best(w, data), Decoding.LOSS_AWARE.name: learned.labels(data)}, q[:, 1]


def best_labels(horses: Horses, w: Floats, images: Images) -> Labels:
    """The best labelling of these images, whatever its probability."""
    return _best(w, horses.data.take(images))


def _best(w: Floats, data: Dataset) -> Labels:
    return BinaryGraph(1).argmax(GraphModel().potentials(w, data, 2))


def hold_out(horses: Horses, method: str, w: Floats, images: Images) -> HeldOut:
    """What a calibration is fitted to: images with masks that were not learned from."""
    known = known_of(horses, images)
    c = METHODS[method].objective.targets(known).label_weights
    return HeldOut(GraphModel().potentials(w, horses.data.take(images), 2), c, known)


def known_of(horses: Horses, images: Images) -> SiteLabels:
    """The labels of images with masks."""
    data = horses.data.take(images)
    return SiteLabels.of(horses.taught[horses.sites(images)], 2, data.layout, data.sizes)


def calibrations_of(arrays: Sequence[Sequence[float]]) -> Calibrations:
    """The calibrations that are kept like this among the results."""
    marginals, decoding = (Calibration(array[0], np.array(array[1:])) for array in arrays)
    return Calibrations(marginals, decoding)
