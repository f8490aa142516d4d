"""The estimator: scikit-learn's grammar over lists of ragged examples."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from perturbmap import persistence
from perturbmap.annotations import Annotations, find_classes
from perturbmap.answers import answer_parts, answer_shards
from perturbmap.blas import one_blas_thread
from perturbmap.calibration import Calibration
from perturbmap.checks import check_count
from perturbmap.decoding import Decoding
from perturbmap.examples import Dataset
from perturbmap.fit_run import Callback, FitOptions, Run
from perturbmap.inference import MarginalMethod, decode
from perturbmap.models import Model
from perturbmap.objectives import Objective
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.predictor_parts import PredictorParts
from perturbmap.semi_supervised import complete, known_mass, mixture
from perturbmap.site_arrays import sums_by_example
from perturbmap.solvers import DoubleSGD, LocalSGD, Problem, Solver, State
from perturbmap.structures import Structure
from perturbmap.task_losses import TaskLoss, ZeroOne
from perturbmap.tilt import untilt


class FitInterruptedWarning(UserWarning):
    """Ctrl-C ended a fit. A script that must not go on then makes it an error, by ``warnings.simplefilter``."""


@final
class StructuredPredictor(PredictorParts):
    """Predicts the labels of structured examples.

    X is a list of examples: feature matrices, or `Example`. An entry of y is a sequence of labels (any hashable
    values, -1 or None where a site's label is not known), None for an unlabelled example, or an array
    ``(n_sites, n_labels)`` of probabilities.

    model : features to potentials; `SequenceModel` by default
    structure : which labellings there are, and how the best is found; `Chain` by default
    objective : what is learned for; `MarginalLogLikelihood` of the Hamming loss by default
    l2 : weight of the penalty ``l2/2 ||w||^2``
    solver : how; by default `DoubleSGD` for what is estimated, `LBFGS` for what is exact, `BCFW` for the hinge
    unlabelled_weight : kappa, the weight of examples that are not fully labelled
    hard_labels : complete their labels by the best labelling, not by marginals
    calibration : number of cross-validation folds from which slope and shift of the log-odds are fitted; None: none
    decoding : which labelling ``predict`` returns
    task_loss : what ``score`` measures and `Decoding.LOSS_AWARE` minimises; the objective's own by default
    n_perturbations : for marginals
    n_jobs : of a `Store`, how many shards are worked on at once, through joblib and under its ``parallel_config``; a
        fit by `DoubleSGD` is then one by `LocalSGD`. None: one after another. Lists are worked on by threads.
    classes : all label values, where y may not show them all
    random_state : an integer, a numpy Generator, or None for a different fit each time

    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(2, size=n) for n in (5, 3, 8, 6)]
    >>> X = [np.eye(2)[labels] + rng.normal(0, 0.3, (len(labels), 2)) for labels in y]
    >>> words = pm.StructuredPredictor(l2=0.01, random_state=0).fit(X, y)
    >>> words.predict(X[:1])
    [array([1, 1, 1, 0, 0])]
    >>> words.predict_marginals(X[:1])[0].shape
    (5, 2)
    >>> words.score(X, y)
    1.0
    """

    def __init__(
        self,
        model: Model | None = None,
        structure: Structure | None = None,
        objective: Objective | None = None,
        *,
        l2: float = 1e-3,
        solver: Solver[Any] | None = None,
        unlabelled_weight: float = 1.0,
        hard_labels: bool = False,
        calibration: int | None = None,
        decoding: Decoding = Decoding.MAP,
        task_loss: TaskLoss | None = None,
        n_perturbations: int = 100,
        n_jobs: int | None = None,
        classes: Sequence[Hashable] | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.model = model
        self.structure = structure
        self.objective = objective
        self.l2 = l2
        self.solver = solver
        self.unlabelled_weight = unlabelled_weight
        self.hard_labels = hard_labels
        self.calibration = calibration
        self.decoding = decoding
        self.task_loss = task_loss
        self.n_perturbations = n_perturbations
        self.n_jobs = n_jobs
        self.classes = classes
        self.random_state = random_state

    # Learning.

    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        validation: tuple[Sequence[Any], Sequence[Any]] | None = None,
        patience: int = 5,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 60.0,
        callback: Callback | None = None,
    ) -> StructuredPredictor:
        """Learns ``coef_``; with examples that are not fully labelled, by Algorithm 3.

        With ``validation`` data, the weights of the least validation loss are kept, and learning stops when it has
        not fallen for ``patience`` looks. A ``checkpoint`` file is written every so many seconds; if it is there
        already, from the same data and parameters, the fit goes on where it stopped and ends as if it never had
        (`LBFGS`: at the same optimum, by other steps). Validation losses are those of the best labelling.
        ``callback`` gets a dict of progress now and then, with the weights so far as "coef". Ctrl-C ends the fit with
        the weights so far.
        """
        self._fit(X, y, FitOptions(validation, patience, checkpoint, checkpoint_seconds, callback))
        return self

    def _fit(self, X: Sequence[Any], y: Sequence[Any], options: FitOptions, warm: State | None = None) -> State:
        """Fits, from the state of another l2, if there is one; returns the state on fully labelled examples."""
        problem, annotations, classes = self._start(X, y)
        held_out = None
        if options.validation is not None:
            if not isinstance(options.validation, (tuple, list)) or len(options.validation) != 2:
                raise ValueError("validation must be a pair (X, y) of examples and their labels.")
            held_out = self._encode_validation(problem, classes, *options.validation)
        check_count("patience", options.patience)
        if options.callback is not None and not callable(options.callback):
            raise TypeError(f"callback must be a function of a dict, but is {options.callback!r}.")
        solver = self._solver
        if isinstance(solver, DoubleSGD) and problem.data.store is not None and self.n_jobs is not None:
            solver = LocalSGD(solver)
        run = Run(problem, solver, self._task_loss, held_out, options, warm)
        if options.checkpoint is not None:
            run.resume(options.checkpoint, options.checkpoint_seconds, self, annotations)
        try:
            self._learn(run, annotations)
        except KeyboardInterrupt:
            warnings.warn(
                f"fit was interrupted at step {run.iteration}; the estimator has the weights so far.",
                FitInterruptedWarning,
                stacklevel=3,
            )
        w = run.best_weights()
        state = State(w, w) if run.state is None else run.state
        self._set_fitted(problem, classes, state, w, run.calibration, known_mass(problem, annotations))
        self.seed_, self.history_ = run.problem.seed, run.history
        return state if run.first_state is None else run.first_state

    def _set_fitted(
        self,
        problem: Problem,
        classes: list[Hashable],
        state: State,
        coef: Floats,
        calibration: Calibration | None,
        mass: Floats,
    ) -> None:
        """All that a fit leaves behind, at once: one that fails leaves what was there."""
        self.classes_, self.n_features_in_, self.seed_ = classes, problem.data.n_features, problem.seed
        self.coef_, self.calibration_, self.label_mass_ = coef, calibration, mass
        self._state, self.n_iter_ = State(state.w, state.average, state.iteration), state.iteration

    def _learn(self, run: Run, annotations: Annotations) -> None:
        everything = run.problem
        labelled = np.flatnonzero(annotations.is_complete)
        if labelled.size == 0:  # every example has gaps: begin with the sites that are known
            labelled = np.arange(len(everything.data))
        if run.phase == 1:
            if self.calibration is not None and run.iteration == 0:
                run.calibration = self._calibrate(everything, labelled, run.solver)
            run.problem = everything if len(labelled) == len(everything.data) else everything.part(labelled)
            run.go()
            if len(labelled) == len(everything.data) and annotations.is_complete.all():
                return
            run.next_phase()
        assert run.first_weights is not None
        hard = self.hard_labels or not self._objective.takes_soft_labels
        q = complete(
            everything,
            annotations,
            run.first_weights,
            hard=hard,
            calibration=run.calibration,
            n_perturbations=self.n_perturbations,
        )
        targets = mixture(everything, annotations, q, self.unlabelled_weight)
        run.problem = replace(everything, targets=targets, has_stored_labels=False)
        run.go()

    def partial_fit(
        self, X: Sequence[Any], y: Sequence[Any], classes: Sequence[Hashable] | None = None
    ) -> StructuredPredictor:
        """About one pass over fully labelled examples, from the weights so far.

        ``classes`` are needed the first time.
        """
        fresh = not hasattr(self, "coef_")
        stated = self.classes if classes is None else classes
        named = None if stated is None else find_classes(y, stated)
        if fresh and named is None:
            raise ValueError("classes must name all labels at the first call of partial_fit.")
        if not fresh and named is not None and named != self.classes_:
            raise ValueError(f"classes must stay what they were at the first call, {self.classes_}, but are {named}.")
        problem, annotations, known = self._start(X, y, known_classes=self.classes_ if named is None else named)
        if not annotations.is_complete.all():
            raise ValueError("partial_fit needs every site of y labelled; use fit for anything else.")
        if not isinstance(self._solver, DoubleSGD):
            raise ValueError(
                "partial_fit needs solver=DoubleSGD(), which takes examples as they come; "
                f"{type(self._solver).__name__} needs all of them: use fit."
            )
        if not fresh:
            self._check_features(problem.data)
            problem = replace(problem, seed=self.seed_)
        solver: DoubleSGD = clone(self._solver).set_params(n_passes=1, min_steps=0)
        state = solver.start(problem) if fresh else self._state
        n_steps = solver.n_iter(len(problem.data))
        with one_blas_thread():
            state = solver.run(problem, state, n_iter=state.iteration + n_steps)
        mass = known_mass(problem, annotations)
        if not fresh:
            mass = mass + self.label_mass_
        self._set_fitted(problem, known, state, state.average.copy(), None if fresh else self.calibration_, mass)
        self.history_ = [] if fresh else self.history_
        return self

    # Prediction.

    def predict(self, X: Sequence[Any]) -> list[np.ndarray]:
        """Labels, one array an example, decoded as ``decoding`` says."""
        self._fitted_classes()
        same_type = len({type(c) for c in self.classes_}) == 1
        values = np.empty(len(self.classes_), dtype=object)
        values[:] = self.classes_
        if same_type and isinstance(self.classes_[0], (str, bool, int, float)):
            values = np.asarray(self.classes_)
        return [values[part] for part in self._for_each_part(X, StructuredPredictor._labels_of)]

    def _labels_of(self, data: Dataset, given: Labels | None) -> list[Labels]:
        f = self._potentials_of(data)
        return f.split(self._decode(data, f))

    def _decode(self, data: Dataset, f: Potentials, q: Floats | None = None) -> Labels:
        """The labelling; ``q`` are the marginals, where they are known already."""
        self._check_parts()
        if self.decoding is Decoding.MAP or (
            self.decoding is Decoding.LOSS_AWARE and isinstance(self._task_loss, ZeroOne)
        ):
            return self._structure.argmax(f)  # which is the labelling of least expected zero-one loss
        q = self._marginals(f, None) if q is None else q
        if self.decoding is Decoding.MARGINAL:
            return decode(q)
        return decode(q, self._task_loss.site_weights(q, data.sizes, data.site_offsets))

    def predict_marginals(
        self, X: Sequence[Any], given: Sequence[Any] | None = None, *, method: MarginalMethod | None = None
    ) -> list[Floats]:
        """P(label) of every site, ``(n_sites, n_labels)`` an example, in the order of ``classes_``.

        What a weighted loss has added to the labels that are dear to miss is taken out again (docs/decisions.md, 13).
        ``given`` is like y: labels that are known (-1 elsewhere), on which the marginals are conditioned. ``method``
        is what the objective learns, PINNED or EXACT, unless you choose: COUNTED needs no pins, which a solver of
        your own solves one by one.
        """
        self._fitted_classes()
        known = None if given is None else _hard_labels("given", given, Dataset.from_examples(X), self.classes_)
        if method is not None and not isinstance(method, MarginalMethod):
            raise TypeError(f"method must be a MarginalMethod, such as COUNTED, but is {method!r}.")
        return self._for_each_part(X, partial(StructuredPredictor._marginals_of, method=method), known)

    def _marginals_of(self, data: Dataset, given: Labels | None, method: MarginalMethod | None) -> list[Floats]:
        f = self._potentials_of(data)
        return f.split(self._marginals(f, given, method))

    def _for_each_part(
        self,
        X: Sequence[Any],
        answer: Callable[[Any, Dataset, Labels | None], list[Any]],
        given: Labels | None = None,
    ) -> list[Any]:
        """Answers for all examples: of a store part by part, and shard by shard where there are jobs."""
        data = Dataset.from_examples(X)
        if data.store is None or self.n_jobs in (None, 1):
            return answer_parts(self, data, answer, given)
        alone = copy(self)  # each job has one thread: the jobs share the cores
        alone.structure = self._structure.with_threads(1)
        return answer_shards(alone, data, answer, given, self.n_jobs)

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """1 - the mean task loss; sites and examples whose labels are not known do not count."""
        losses = self.losses(X, y)
        if np.isnan(losses).all():
            raise ValueError("y must hold some label to measure by.")
        return 1.0 - float(np.nanmean(losses))

    def losses(self, X: Sequence[Any], y: Sequence[Any]) -> Floats:
        """The task loss of the prediction for each example; NaN where no label is known."""
        self._fitted_classes()
        data = Dataset.from_examples(X)
        labels = _hard_labels("y", y, data, self.classes_)
        predicted = np.concatenate(self._for_each_part(X, StructuredPredictor._labels_of))
        losses = self._task_loss.value(labels, predicted, data.sizes, data.site_offsets, len(self.classes_))
        is_known = sums_by_example(np.asarray(labels >= 0, dtype=np.float64), data.site_offsets) > 0
        return np.where(is_known, losses, np.nan)

    # Keeping it.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fitted estimator to one file, atomically, without pickle."""
        persistence.write(path, "estimator", *self.contents())

    def contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All that a file must hold, as JSON and arrays; `from_contents` is the way back."""
        self._fitted_classes()
        classes = [persistence.to_json(c) for c in self.classes_]
        if any(isinstance(c, (list, dict)) for c in classes):
            raise ValueError("classes must be numbers, texts or booleans to be saved.")
        parameters = self.get_params(deep=False)
        if isinstance(parameters["random_state"], np.random.Generator):
            parameters["random_state"] = None  # its state belongs to this process; the fit's seed is kept
        parameters = {k: persistence.to_json(v) for k, v in parameters.items()}
        arrays = {
            "coef": self.coef_,
            "w": self._state.w,
            "average": self._state.average,
            "label_mass": self.label_mass_,
        }
        if self.calibration_ is not None:
            arrays["calibration"] = self.calibration_.to_array()
        about = {
            "parameters": parameters,
            "classes": classes,
            "n_features_in": self.n_features_in_,
            "seed": self.seed_,
            "iteration": self._state.iteration,
        }
        return about, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StructuredPredictor:
        """The estimator that `save` wrote; ValueError for a damaged, truncated or foreign file."""
        keys = ["parameters", "classes", "n_features_in", "seed", "iteration"]
        about, arrays = persistence.read(path, "estimator", keys, ["coef", "w", "average", "label_mass"])
        return cls.from_contents(about, arrays)

    @classmethod
    def from_contents(cls, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> StructuredPredictor:
        """The estimator whose `contents` these are."""
        estimator = cls(**{k: persistence.from_json(v) for k, v in about["parameters"].items()})
        estimator.coef_, estimator.label_mass_ = arrays["coef"], arrays["label_mass"]
        estimator.classes_ = about["classes"]
        estimator.n_features_in_ = about["n_features_in"]
        estimator.n_iter_ = about["iteration"]
        estimator.history_ = []
        estimator._state = State(arrays["w"], arrays["average"], about["iteration"])
        estimator.seed_ = about["seed"]
        estimator.calibration_ = Calibration.from_array(arrays.get("calibration"))
        return estimator

    # Inside.

    def _fitted_classes(self) -> list[Hashable]:
        if not hasattr(self, "coef_"):
            raise NotFittedError("This StructuredPredictor is not fitted yet: call fit(X, y) first.")
        return self.classes_

    def _potentials(self, X: Sequence[Any]) -> tuple[Dataset, Potentials]:
        """Of a list of examples."""
        (data,) = Dataset.from_examples(X).parts()
        return data, self._potentials_of(data)

    def _potentials_of(self, data: Dataset) -> Potentials:
        classes = self._fitted_classes()
        self._check_features(data)
        n_weights = self._model.n_weights(data, len(classes))
        if n_weights != len(self.coef_):
            raise ValueError(
                f"X asks for {n_weights} weights, but the fit had {len(self.coef_)}: the examples must have as many "
                "edge_features and label_features as those of the fit."
            )
        return self._model.potentials(self.coef_, data, len(classes))

    def _check_features(self, data: Dataset) -> None:
        if data.n_features != self.n_features_in_:
            raise ValueError(f"X has {data.n_features} features, but the fit had {self.n_features_in_}.")

    def _marginals(self, f: Potentials, given: Any, method: MarginalMethod | None = None) -> Floats:
        q = self._estimated_marginals(f, given, self.seed_, method)
        return untilt(q if self.calibration_ is None else self.calibration_(q), self.label_mass_)


def _hard_labels(name: str, y: Sequence[Any], data: Dataset, classes: list[Hashable]) -> Labels:
    notes = Annotations.encode(y, data, classes, name)
    if not notes.is_hard:
        raise ValueError(f"{name} must hold labels here, not soft ones.")
    return notes.labels
