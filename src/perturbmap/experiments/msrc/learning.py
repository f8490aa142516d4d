"""One model of the MSRC experiment: what it learns from, how it is read, and how it is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perturbmap.data import Dataset
from perturbmap.experiments.msrc.data import Photo
from perturbmap.experiments.msrc.plan import BASE, METHODS, Effort
from perturbmap.inference import Calibration, Decoding, LabelPrior
from perturbmap.learning.calibrating import Calibrations, HeldOut, fit_calibrations
from perturbmap.learning.learned_model import LearnedModel
from perturbmap.models import GraphModel
from perturbmap.objectives import Objective
from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.solvers import DoubleSGD, Problem
from perturbmap.structures import Graph, Structure, Tree
from perturbmap.task_losses import WeightedHamming


@dataclass(frozen=True)
class Model:
    """A method's weights, and what its loss has added to the labels that are expensive to miss.

    costs : (n_classes,), of missing a pixel of each class: see `class_costs`
    """

    method: str
    w: Floats
    prior: LabelPrior
    costs: Floats

    @property
    def objective(self) -> Objective:
        """The objective that the weights were learned by."""
        return METHODS[self.method].objective_under(self.costs)

    def reader(self, n_classes: int, calibrations: Calibrations | None, effort: Effort, seed: int) -> LearnedModel:
        """Who answers for photos; without calibrations, marginals are as they come."""
        return LearnedModel(
            GraphModel(),
            _structure(self.method),
            self.w,
            n_classes,
            n_classes,
            self.objective.marginal_method,
            effort.n_perturbations,
            seed,
            None if calibrations is None else calibrations.marginals,
            self.prior,
            Decoding.LOSS_AWARE,
            WeightedHamming(self.costs),
            None if calibrations is None else calibrations.decoding,
        )


def _structure(method: str) -> Structure:
    """A graph; without edges a forest, which can also be summed over."""
    return Graph(1) if METHODS[method].has_edges else Tree(1)


def _seen(method: str, photo: Photo) -> Photo:
    """The photo as the method sees it, with edges or without."""
    return photo if METHODS[method].has_edges else photo.without_edges()


def _dataset(method: str, photos: Sequence[Photo]) -> Dataset:
    return Dataset.from_examples([_seen(method, photo).example for photo in photos])


def _labelled(method: str, photos: Sequence[Photo], n_classes: int) -> tuple[Dataset, SiteLabels]:
    """What is not void of the photos, and its labels."""
    pairs = [_seen(method, photo).labelled() for photo in photos]
    data = Dataset.from_examples([x for x, _ in pairs])
    return data, SiteLabels.of(np.concatenate([y for _, y in pairs]), n_classes, data.layout, data.sizes)


def class_costs(photos: Sequence[Photo]) -> Floats:
    """The cost of missing a pixel of each class, one over its area: mistakes then cost 1 - mean class accuracy.

    Costs are in units in which a superpixel costs 1 on average, as it does in the Hamming loss, so that l2 means the
    same to all objectives.
    """
    areas = np.sum([photo.pixels.sum(axis=0) for photo in photos], axis=0, dtype=np.float64)
    n_superpixels = sum(np.count_nonzero(photo.labels >= 0) for photo in photos)
    return np.asarray(n_superpixels / (np.count_nonzero(areas) * np.maximum(areas, 1.0)))


def learn(method: str, l2: float, photos: Sequence[Photo], n_classes: int, effort: Effort, seed: int) -> Model:
    """The model that a method learns from these photos; stochastic gradients begin at the unaries alone."""
    data, known = _labelled(method, photos, n_classes)
    costs = class_costs(photos)
    objective = METHODS[method].objective_under(costs)
    solver = effort.solver(objective)
    problem = Problem(
        data, objective.targets(known), n_classes, GraphModel(), _structure(method), objective, l2, seed
    )
    start = None
    if isinstance(solver, DoubleSGD):
        start = np.zeros(problem.n_weights)
        n_alone = n_classes * (data.n_features + 1)
        start[:n_alone] = learn(BASE, METHODS[BASE].quick_l2, photos, n_classes, effort, seed).w[:n_alone]
    w = solver.run(problem, solver.start(problem, start)).average
    return Model(method, w, objective.label_prior(known), costs)


def calibrate(model: Model, photos: Sequence[Photo], n_classes: int, effort: Effort, seed: int) -> Calibrations:
    """How marginals are made right, from photos that were not learned from."""
    data, known = _labelled(model.method, photos, n_classes)
    held_out = HeldOut(GraphModel().potentials(model.w, data, n_classes), model.objective.label_weights(known), known)
    method, structure, loss = model.objective.marginal_method, _structure(model.method), WeightedHamming(model.costs)
    return fit_calibrations(structure, [held_out], model.prior, loss, method, effort.n_perturbations, seed)


def calibrations_of(arrays: Sequence[Sequence[float]]) -> Calibrations:
    """The calibrations that are kept like this among the results."""
    marginals, decoding = (Calibration(array[0], np.array(array[1:])) for array in arrays)
    return Calibrations(marginals, decoding)


def best_labels(model: Model, photos: Sequence[Photo], n_classes: int) -> list[Labels]:
    """The best labelling of each photo."""
    data = _dataset(model.method, photos)
    return data.layout.split(_structure(model.method).argmax(GraphModel().potentials(model.w, data, n_classes)))


def loss_aware_labels(reader: LearnedModel, model: Model, photos: Sequence[Photo]) -> list[Labels]:
    """The labelling of least expected loss of each photo."""
    data = _dataset(model.method, photos)
    return data.layout.split(reader.labels(data))


def probabilities(reader: LearnedModel, model: Model, photos: Sequence[Photo]) -> list[Floats]:
    """The probabilities of the classes at each superpixel, of each photo."""
    data = _dataset(model.method, photos)
    return data.layout.split(reader.marginals(data))


@dataclass(frozen=True)
class Judged:
    """Pixels of photos, by their class and by what they were taken for.

    confusion : (n_classes, n_classes), rows are the true class
    right : (n_photos, n_classes), the pixels of each class that were found
    """

    confusion: Floats
    right: Floats

    @classmethod
    def of(cls, predicted: Sequence[Labels], photos: Sequence[Photo]) -> Judged:
        """Holds predictions against the label maps; void does not count."""
        confusion = np.zeros((photos[0].pixels.shape[1],) * 2)
        right = np.zeros((len(photos), len(confusion)))
        for n, (labels, photo) in enumerate(zip(predicted, photos, strict=True)):
            np.add.at(confusion.T, labels, photo.pixels)
            np.add.at(right[n], labels, photo.pixels[np.arange(len(labels)), labels])
        return cls(confusion, right)

    def to_json(self) -> dict[str, list[list[int]]]:
        """The counts of pixels as lists, for a file."""
        return {name: getattr(self, name).astype(int).tolist() for name in ("confusion", "right")}

    @property
    def accuracy(self) -> float:
        """The share of pixels that are right."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def class_accuracy(self) -> float:
        """The share of each class's pixels that are right, its mean over the classes that occur."""
        totals = self.confusion.sum(axis=1)
        return float((np.diag(self.confusion)[totals > 0] / totals[totals > 0]).mean())
