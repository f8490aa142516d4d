"""One model of the horse experiment: what it learns from, and how it is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.experiments.horses.data import Horses, judge
from perturbmap.experiments.horses.plan import COLUMNS, LOSS, MAIN_LOSS, METHODS, Effort, Method, Task
from perturbmap.inference import PINNED, Decoding, LabelPrior
from perturbmap.learning.algorithm_3 import complete, learn_from_all, learn_from_labelled
from perturbmap.learning.fit import Stage
from perturbmap.learning.learned_model import LearnedModel
from perturbmap.models import GraphModel
from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.potentials.site_labels import UNKNOWN
from perturbmap.solvers import BCFW, DoubleSGD, PlainStep, PolynomialAveraging, Problem, Solver, State
from perturbmap.structures import BinaryGraph

Images = NDArray[np.intp]


def masked_images(horses: Horses, n_masks: int | None, draw: int, seed: int) -> Images:
    """The images of small whose masks may be looked at; smaller draws are parts of larger ones."""
    small = horses.parts["small"]
    if n_masks is None:
        return small
    return np.sort(np.random.default_rng([seed, draw]).permutation(small)[:n_masks])


def learn(
    horses: Horses, task: Task, masked: Images, effort: Effort, seed: int, watch: Watch | None = None
) -> Iterator[tuple[float, float, Floats, LabelPrior]]:
    """For each choice, l2 and kappa, the weights, and the prior of the labels that these masks show.

    ``watch`` looks on while masks alone are learned from.
    """
    column, method = COLUMNS[task.column], METHODS[task.method]
    n_steps = max(effort.n_steps, effort.n_passes * len(masked))
    for l2 in dict.fromkeys(l2 for l2, _ in task.choices):
        problem, known = make_problem(horses, task, masked, l2, seed)
        prior = problem.objective.label_prior(known)
        first = learn_from_labelled(problem, known, partial(_solve, method, n_steps, watch))
        if not column.weak:
            yield l2, 0.0, first, prior
            continue
        q = complete(problem, known, first, n_perturbations=effort.n_perturbations)
        for kappa in (kappa for other, kappa in task.choices if other == l2):
            w = learn_from_all(problem, known, partial(_solve, method, n_steps, None), first, q, kappa)
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
    method: Method, n_steps: int, watch: Watch | None, stage: Stage, problem: Problem, start: Floats | None
) -> Floats:
    """The weights after so many steps of one image each."""
    n_passes = n_steps / len(problem.data)
    solver: Solver[Any] = DoubleSGD(n_passes, batch_size=1, step=PlainStep(method.first_step))
    if method.objective.is_hinge:
        solver = BCFW(0.01, n_passes, averaging=PolynomialAveraging(1))
    found: Floats = solver.run(problem, solver.start(problem, start), watch).average
    return found


class Watch:
    """The test loss of the best labelling along a fit, against steps and seconds; looking takes no time."""

    def __init__(self, horses: Horses) -> None:
        self._horses, self._data = horses, horses.data.take(horses.parts["test"])
        self._begin()

    def _begin(self) -> None:
        self._points: list[dict[str, float]] = []
        self._next, self._start = 30.0, time.perf_counter()

    def take(self) -> list[dict[str, float]]:
        """The points of the fit that is over; the next one begins."""
        points = self._points
        self._begin()
        return points

    def __call__(self, state: State) -> bool:
        """See `Solver.run`; never stops it."""
        if state.iteration >= self._next:
            began = time.perf_counter()
            labels = BinaryGraph(1).argmax(GraphModel().potentials(state.average, self._data, 2))
            loss = float(judge(labels, self._horses, self._horses.parts["test"])[MAIN_LOSS].mean())
            self._points.append({"steps": state.iteration, "seconds": began - self._start, "loss": loss})
            self._next *= 1.5
            self._start += time.perf_counter() - began
        return False


def read(
    horses: Horses, method: str, w: Floats, prior: LabelPrior, images: Images, effort: Effort, seed: int
) -> tuple[dict[str, Labels], Floats]:
    """The labels of these images in both ways, and the probabilities of the foreground."""
    data = horses.data.take(images)
    learned = LearnedModel(
        GraphModel(),
        BinaryGraph(1),
        METHODS[method].scale * w,
        data.n_features,
        2,
        PINNED,
        effort.n_perturbations,
        seed,
        None,
        prior,
        Decoding.LOSS_AWARE,
        LOSS,
    )
    q = learned.marginals(data)
    best = learned.structure.argmax(learned.potentials(data))
    return {Decoding.MAP.name: best, Decoding.LOSS_AWARE.name: learned.labels(data, q)}, q[:, 1]
