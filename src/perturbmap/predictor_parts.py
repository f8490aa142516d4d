"""The parts of an estimator: their defaults, and all that is checked before a fit begins."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold

from perturbmap.annotations import NO_LABELS, Annotations, EncodedLabels, check_length, find_classes
from perturbmap.blas import one_blas_thread
from perturbmap.calibration import Calibration
from perturbmap.checks import check_count, check_number
from perturbmap.decoding import Decoding
from perturbmap.examples import Dataset
from perturbmap.inference import MarginalMethod, marginals
from perturbmap.models import Model, SequenceModel
from perturbmap.objectives import MarginalLogLikelihood, Objective, Targets
from perturbmap.perturbation import seed_of
from perturbmap.potentials import Floats, Potentials
from perturbmap.solvers import Problem, Solver, default_solver
from perturbmap.structures import Chain, InfeasibleError, Structure
from perturbmap.task_losses import Hamming, TaskLoss


class PredictorParts(BaseEstimator):
    """What `StructuredPredictor` is made of; its parameters are described there."""

    model: Model | None
    structure: Structure | None
    objective: Objective | None
    l2: float
    solver: Solver[Any] | None
    unlabelled_weight: float
    calibration: int | None
    decoding: Decoding
    task_loss: TaskLoss | None
    n_perturbations: int
    n_jobs: int | None
    classes: Sequence[Hashable] | None
    random_state: int | np.random.Generator | None

    @property
    def _model(self) -> Model:
        return SequenceModel() if self.model is None else self.model

    @property
    def _structure(self) -> Structure:
        return Chain() if self.structure is None else self.structure

    @property
    def _objective(self) -> Objective:
        return MarginalLogLikelihood() if self.objective is None else self.objective

    @property
    def _solver(self) -> Solver[Any]:
        return default_solver(self._objective) if self.solver is None else self.solver

    @property
    def _task_loss(self) -> TaskLoss:
        if self.task_loss is not None:
            return self.task_loss
        return self._objective.task_loss if isinstance(self._objective, Objective) else Hamming()

    def _start(
        self, X: Sequence[Any], y: Sequence[Any], known_classes: list[Hashable] | None = None
    ) -> tuple[Problem, Annotations, list[Hashable]]:
        """Checks everything before any work is done, and changes nothing."""
        self._check_parts()
        l2 = check_number("l2", self.l2)
        check_number("unlabelled_weight", self.unlabelled_weight, or_equal=True)
        check_count("n_perturbations", self.n_perturbations)
        self._objective.check(self._structure)
        self._solver.check(self._objective)
        data = Dataset.from_examples(X)
        check_length(y, data)
        classes = find_classes(y, self.classes) if known_classes is None else known_classes
        annotations = Annotations.encode(y, data, classes)
        if not (annotations.q > 0).any():
            raise ValueError(NO_LABELS)
        if not self._objective.takes_soft_labels and not annotations.is_hard:
            raise ValueError(
                f"{type(self._objective).__name__} learns from labels, not from soft ones: give labels in y."
            )
        k = len(classes)
        n_weights = self._model.n_weights(data, k)
        c = self._objective.label_weights(annotations.q, data.sizes, data.site_offsets)
        targets = Targets(annotations.labels, c, annotations.is_complete, np.ones(len(data)))
        seed = seed_of(self.random_state, "random_state")
        stored = (
            isinstance(y, EncodedLabels)
            and data.store is not None
            and y.store == data.store
            and y.classes == classes
            and bool(annotations.is_complete.all())
        )
        parts = (self._model, self._structure, self._objective)
        problem = Problem(data, targets, k, *parts, l2, seed, self.n_jobs, stored)
        # The structure has its say now, not after an hour; of a solver of the user's only two examples are asked, and
        # of a store only its beginning.
        n_asked = len(next(data.parts())) if self._structure.is_thread_safe else min(2, len(data))
        some = np.arange(n_asked)
        f = self._model.potentials(np.zeros(n_weights), data.take(some), k)
        try:
            self._structure.maximise(f, annotations.labels[: f.n_sites])
        except InfeasibleError as error:
            raise ValueError(
                f"y holds labels that {type(self._structure).__name__} does not allow: {error}"
            ) from None
        return problem, annotations, classes

    def _encode_validation(
        self, problem: Problem, classes: list[Hashable], X: Sequence[Any], y: Sequence[Any]
    ) -> tuple[Dataset, Annotations]:
        data = Dataset.from_examples(X)
        if data.n_features != problem.data.n_features:
            raise ValueError(f"validation has {data.n_features} features, but X has {problem.data.n_features}.")
        if self._model.n_weights(data, problem.n_labels) != problem.n_weights:
            raise ValueError("validation must have as many edge_features and label_features as X.")
        notes = Annotations.encode(y, data, classes, "validation y")
        if not notes.is_hard or not (notes.labels >= 0).any():
            raise ValueError("validation y must hold labels, and no soft ones.")
        return data, notes

    def _check_parts(self) -> None:
        loss = "task_loss" if self.task_loss is not None else "loss of the objective"
        for name, part, kind, example in (
            ("model", self._model, Model, "SequenceModel()"),
            ("structure", self._structure, Structure, "Chain()"),
            ("objective", self._objective, Objective, "MarginalLogLikelihood(Hamming())"),
            ("solver", self._solver, Solver, "DoubleSGD()"),
            (loss, self._task_loss, TaskLoss, "Hamming()"),
            ("decoding", self.decoding, Decoding, "Decoding.MAP"),
        ):
            if not isinstance(part, kind):
                raise TypeError(f"{name} must be of type {kind.__name__}, such as {example}, but is {part!r}.")

    def _calibrate(self, problem: Problem, labelled: np.ndarray, solver: Solver[Any]) -> Calibration:
        """Pinned log-odds of held-out examples, by cross-validation on the labelled part."""
        assert self.calibration is not None
        if not isinstance(self.calibration, (int, np.integer)) or not 2 <= self.calibration <= len(labelled):
            raise ValueError(
                f"calibration must be a number of folds from 2 to the {len(labelled)} labelled examples, "
                f"but is {self.calibration!r}."
            )
        q, c = [], []
        for train, test in KFold(self.calibration, shuffle=True, random_state=problem.seed % 2**32).split(labelled):
            part, held = problem.part(labelled[train]), problem.part(labelled[test])
            with one_blas_thread():
                w = solver.run(part, solver.start(part)).average
                f = self._model.potentials(w, held.data, problem.n_labels)
            q.append(self._estimated_marginals(f, None, problem.seed))
            c.append(held.targets.label_weights)
        return Calibration.fit(np.concatenate(q), np.concatenate(c))

    def _estimated_marginals(
        self, f: Potentials, given: Any, seed: int, method: MarginalMethod | None = None
    ) -> Floats:
        method, n = self._objective.marginal_method if method is None else method, self.n_perturbations
        return marginals(self._structure, f, method=method, given=given, n_perturbations=n, rng=seed).mean
