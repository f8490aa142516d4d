"""One model of the horse experiment: what it learns from, and how it is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perturbmap.annotations import UNKNOWN, Annotations
from perturbmap.decoding import Decoding
from perturbmap.experiments.horse_data import Horses, judge
from perturbmap.experiments.horses_plan import COLUMNS, LOSS, MAIN_LOSS, METHODS, Effort, Method, Task
from perturbmap.inference import decode, marginals
from perturbmap.models import GraphModel
from perturbmap.objectives import StructuredHinge, Targets
from perturbmap.potentials import Floats, Labels
from perturbmap.semi_supervised import complete, known_mass, mixture
from perturbmap.site_arrays import one_hot
from perturbmap.solvers import BCFW, DoubleSGD, PolynomialAveraging, Problem, State
from perturbmap.structures import BinaryGraph
from perturbmap.tilt import untilt

Images = NDArray[np.intp]


def masked_images(horses: Horses, n_masks: int | None, draw: int, seed: int) -> Images:
    """The images of small whose masks may be looked at; smaller draws are parts of larger ones."""
    small = horses.parts["small"]
    if n_masks is None:
        return small
    return np.sort(np.random.default_rng([seed, draw]).permutation(small)[:n_masks])


def learn(
    horses: Horses, task: Task, masked: Images, effort: Effort, seed: int, watch: Watch | None = None
) -> Iterator[tuple[float, float, Floats, Floats]]:
    """For each choice, l2 and kappa, the weights, and the mass of the labels that these masks show.

    ``watch`` looks on while masks alone are learned from.
    """
    column, method = COLUMNS[task.column], METHODS[task.method]
    for l2 in dict.fromkeys(l2 for l2, _ in task.choices):
        problem, notes = make_problem(horses, task, masked, l2, seed)
        mass = known_mass(problem, notes)
        n_steps = max(effort.n_steps, effort.n_passes * len(masked))
        first = _solve(problem.part(np.flatnonzero(notes.is_complete)), method, n_steps, watch=watch)
        q = _guess(problem, notes, first, effort) if column.weak else notes.q
        for kappa in (kappa for other, kappa in task.choices if other == l2):
            if column.weak:  # Algorithm 3, from the weights of the masks alone
                joined = replace(problem, targets=mixture(problem, notes, q, kappa))
                yield l2, kappa, _solve(joined, method, n_steps, first), mass
            else:
                yield l2, kappa, first, mass


def make_problem(horses: Horses, task: Task, masked: Images, l2: float, seed: int) -> tuple[Problem, Annotations]:
    """All images of the column, and what is known of them."""
    column, objective = COLUMNS[task.column], METHODS[task.method].objective
    images = np.concatenate([masked, *(horses.parts[part] for part in column.weak)])
    data = horses.data.take(images)
    is_masked = np.arange(len(images)) < len(masked)
    labels = horses.taught[horses.sites(images)]
    if not column.boxed:
        labels = np.where(np.repeat(is_masked, data.site_counts), labels, np.int32(UNKNOWN))
    notes = Annotations(labels, one_hot(labels, 2), is_masked)
    c = objective.label_weights(notes.q, data.sizes, data.site_offsets)
    targets = Targets(labels, c, is_masked, np.ones(len(data)))
    return Problem(data, targets, 2, GraphModel(), BinaryGraph(1), objective, l2, seed), notes


def _guess(problem: Problem, notes: Annotations, w: Floats, effort: Effort) -> Floats:
    """What is learned from where no mask is: the best labelling, or marginals."""
    hard = not problem.objective.takes_soft_labels
    return complete(problem, notes, w, hard=hard, calibration=None, n_perturbations=effort.n_perturbations)


def _solve(
    problem: Problem, method: Method, n_steps: int, first: Floats | None = None, watch: Watch | None = None
) -> Floats:
    n_passes = n_steps / len(problem.data)
    if isinstance(method.objective, StructuredHinge):
        frank_wolfe = BCFW(0.01, n_passes, averaging=PolynomialAveraging(1))
        return frank_wolfe.run(problem, frank_wolfe.start(problem), watch).average
    sgd = DoubleSGD(n_passes, batch_size=1, first_step=method.first_step)
    return sgd.run(problem, sgd.start(problem, first), watch).average


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
    horses: Horses, method: str, w: Floats, mass: Floats, images: Images, effort: Effort, seed: int
) -> tuple[dict[str, Labels], Floats]:
    """The labels of these images in both ways, and the probabilities of the foreground."""
    data = horses.data.take(images)
    f = GraphModel().potentials(METHODS[method].scale * w, data, 2)
    structure = BinaryGraph(1)
    q = marginals(structure, f, n_perturbations=effort.n_perturbations, rng=seed).mean
    plain = untilt(q, mass)
    aware = decode(plain, LOSS.site_weights(plain, data.sizes, data.site_offsets))
    return {Decoding.MAP.name: structure.argmax(f), Decoding.LOSS_AWARE.name: aware}, plain[:, 1]
