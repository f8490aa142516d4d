"""The estimator: scikit-learn's grammar over lists of ragged examples.

The way of a fit: `pose` makes a problem of examples and labels, `Fit` solves problems, and `algorithm_3` says which.
The way of a prediction: `LearnedModel` answers for a data set, and `ask` puts the question to all parts of one.

(More than 300 lines, since it is one class, and half of them say what its parameters and methods are for.)
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from perturbmap.data import Dataset
from perturbmap.data.labels import encode_hard_labels, find_classes, with_unseen
from perturbmap.distributed import ask
from perturbmap.estimator import fitted_file
from perturbmap.estimator.explanation import Explanation
from perturbmap.estimator.token_features import TokenFeatures, holds_tokens
from perturbmap.inference import Decoding, LabelPrior, MarginalMethod
from perturbmap.learning.algorithm_3 import algorithm_3
from perturbmap.learning.calibrating import Calibrations, calibrate, check_folds
from perturbmap.learning.checkpoint import Checkpoint, identity_of_fit
from perturbmap.learning.early_stopping import EarlyStopping
from perturbmap.learning.fit import Callback, Fit, describe
from perturbmap.learning.learned_model import LearnedModel
from perturbmap.learning.posing import Posed, pose
from perturbmap.learning.setting import Setting
from perturbmap.learning.taking_up import restored
from perturbmap.models import Model
from perturbmap.noise import seed_of
from perturbmap.objectives import Objective
from perturbmap.potentials import Floats, Potentials
from perturbmap.solvers import Problem, Solver, State
from perturbmap.structures import Structure
from perturbmap.support import archive
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_count
from perturbmap.task_losses import TaskLoss


class FitInterruptedWarning(UserWarning):
    """Warns that Ctrl-C ended a fit early, and that the estimator has the weights so far.

    A script that must not go on then can make it an error: ``warnings.simplefilter("error", FitInterruptedWarning)``.
    """


@final
class StructuredPredictor(BaseEstimator):
    """Predicts the labels of structured examples.

    An example has sites, such as the letters of a word, each of which gets a label; edges join sites whose labels
    depend on each other. X is a list of examples: feature matrices with a row for each site, `Example`, or sentences
    of tokens with named features, as `TokenFeatures` takes them. An entry of y is a sequence of labels (any hashable
    values, such as the names of tags; -1 or None where a site's label is not known), None for an unlabelled example,
    or an array ``(n_sites, n_labels)`` of probabilities.

    model : how features become potentials, the scores of labellings (`Potentials`); `SequenceModel` by default
    structure : which labellings there are, and how the best is found; `Chain` by default
    objective : what learning maximises; `MarginalLogLikelihood` of the Hamming loss by default
    l2 : strength of the penalty ``l2/2 ||w||^2`` on the weights, beside the mean of the objective over examples: a
        larger one keeps the weights smaller, against overfitting
    solver : what maximises the objective; by default `BCFW` for the hinge, `LBFGS` for what is exact and for a
        `MarginalLogLikelihood` of fewer than 32 examples, `DoubleSGD` for the rest
    unlabelled_weight : kappa, how much the mean over the examples that are not fully labelled counts beside the mean
        over those that are
    hard_labels : whether learning completes unknown labels by the best labelling, rather than by marginals (the
        probabilities of the labels of each site)
    calibration : number of cross-validation folds from which marginals are calibrated, so that a probability says how
        often it is right (`Calibration`): by a scale of the potentials and a shift of the log-odds. Probabilities are
        calibrated by their likelihood, those of `Decoding.LOSS_AWARE` by its loss. None: no calibration
    decoding : which labelling ``predict`` returns; see `Decoding`
    task_loss : what ``score`` measures and `Decoding.LOSS_AWARE` minimises; the objective's own by default
    n_perturbations : how many random perturbations marginals are estimated from: more take longer, and leave less
        noise
    n_jobs : how many shards of a `Store` are worked on at once, through joblib and under its ``parallel_config``, by
        predictions, by `LocalSGD` and by `LBFGS`. None: one after another. It never changes a result. Lists of
        examples are worked on by threads.
    classes : all label values, where y may not show them all
    features : how tokens become matrices; `TokenFeatures` by default where X holds tokens
    random_state : an integer, a numpy Generator, or None for a different fit each time

    After a fit, ``coef_`` holds the weights and ``weights_`` the same weights by name, in their shapes; ``classes_``
    holds the label values, ``history_`` what the solver reported on its way, ``n_iter_`` the number of its steps, and
    ``seed_`` the seed. ``calibration_`` and ``label_prior_`` say how marginals are corrected, and
    ``decoding_calibration_`` how those for `Decoding.LOSS_AWARE` are. ``features_`` is the fitted `TokenFeatures`,
    which has the names of the features of tokens, or None.

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
        features: TokenFeatures | None = None,
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
        self.features = features
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
        """Learns the weights ``coef_`` from examples X and their labels y; returns the estimator.

        Where some examples are not fully labelled, it follows Algorithm 3 of the paper: it learns from the fully
        labelled ones, or from the known labels where there are none (phase 1), estimates the unknown labels, and then
        learns from all examples (phase 2).

        validation : a pair (X, y). The weights of the least validation loss are kept, and learning stops when it has
            not fallen for ``patience`` looks. The loss is that of the best labelling, whatever ``decoding`` is
        patience : looks at the validation data without a lower loss after which learning stops
        checkpoint : a file that is written every ``checkpoint_seconds``. If it is there already, from the same data
            and parameters, the fit goes on where it stopped and ends as if it never had (`LBFGS`: at the same
            optimum, by other steps)
        checkpoint_seconds : time between two writes of the checkpoint
        callback : a function that gets a dict of progress now and then, with the weights so far as "coef"; "phase" is
            0 in the folds of a calibration

        Ctrl-C ends the fit with the weights so far, and a `FitInterruptedWarning`.
        """
        check_count("patience", patience)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function of a dict, but is {callback!r}.")
        features, X = self._learn_features(X)
        posed = self._pose(X, y)
        stopping = None
        if validation is not None:
            if features is not None and isinstance(validation, (tuple, list)) and len(validation) == 2:
                validation = (features.transform(validation[0]), validation[1])
            stopping = EarlyStopping(posed.problem, posed.classes, self._setting().task_loss, validation, patience)
        kept = None
        if checkpoint is not None:
            data = [(posed.problem.data, posed.known)]
            data += [] if stopping is None else [(stopping.data, stopping.known)]
            parameters = {**self._what_decides_the_weights(posed, stopping), "patience": patience}
            kept = Checkpoint(checkpoint, checkpoint_seconds, identity_of_fit(parameters, data))
        self._fit(posed, features, early_stopping=stopping, checkpoint=kept, callback=callback)
        return self

    def _what_decides_the_weights(self, posed: Posed, stopping: EarlyStopping | None) -> dict[str, Any]:
        """The parameters that this fit depends on."""
        idle = {"decoding", "n_jobs"}
        if stopping is None:
            idle.add("task_loss")
        if self.calibration is None and posed.known.is_complete.all():
            idle.update({"n_perturbations", "unlabelled_weight", "hard_labels"})
        return {name: value for name, value in self.get_params(deep=False).items() if name not in idle}

    def fit_warm(self, X: Sequence[Any], y: Sequence[Any], state: State | None) -> State:
        """Fits from the state in which a fit with another l2 ended; returns its own state, for the next fit.

        `regularisation_path` fits like this. The state is that of phase 1 of a fit, on the fully labelled examples.
        """
        features, X = self._learn_features(X)
        return self._fit(self._pose(X, y), features, warm=state)

    def _fit(self, posed: Posed, features: TokenFeatures | None, **options: Any) -> State:
        problem, known, classes = posed
        setting = self._setting()
        if setting.calibration is not None:
            check_folds(setting.calibration, known)
        solver = setting.solver_for(len(problem.data))
        fit = Fit(solver, seed=problem.seed, **options)
        problem = problem.with_seed(fit.seed)
        calibrations: Calibrations | None = None
        n = setting.n_perturbations
        try:
            if setting.calibration is not None:
                calibrations = calibrate(
                    problem,
                    known,
                    fit.solve,
                    n_folds=setting.calibration,
                    n_perturbations=n,
                    task_loss=setting.loss_of_decoding,
                )
            algorithm_3(
                problem,
                known,
                fit.solve,
                unlabelled_weight=setting.unlabelled_weight,
                hard_labels=setting.hard_labels,
                calibration=None if calibrations is None else calibrations.marginals,
                n_perturbations=n,
            )
        except KeyboardInterrupt:
            if not fit.states:  # nothing is learned yet; what an earlier fit has learned stays
                raise
            warnings.warn(
                f"fit was interrupted at step {fit.iteration}; the estimator has the weights so far.",
                FitInterruptedWarning,
                stacklevel=3,
            )
        w = fit.weights()
        prior = setting.objective.label_prior(known)
        self._set_fitted(problem, features, solver, classes, w, fit.state, calibrations, prior, fit.history)
        return fit.states[0]

    def _set_fitted(
        self,
        problem: Problem,
        features: TokenFeatures | None,
        solver: Solver[Any],
        classes: list[Hashable],
        coef: Floats,
        state: State,
        calibrations: Calibrations | None,
        label_prior: LabelPrior,
        history: list[dict[str, Any]],
    ) -> None:
        """All that a fit leaves behind, at once: one that fails leaves what was there."""
        self.classes_, self.features_ = fitted_file.as_array(classes), features
        self.n_features_in_, self.seed_ = problem.data.n_features, problem.seed
        self.coef_, self.label_prior_ = coef, label_prior
        self.calibration_ = None if calibrations is None else calibrations.marginals
        self.decoding_calibration_ = None if calibrations is None else calibrations.decoding
        self.weights_ = problem.model.unpack(coef, problem.data, problem.n_labels)
        self.history_, self.n_iter_ = history, state.iteration
        # What partial_fit goes on from, if the solver is one that can.
        is_last = np.array_equal(state.average, coef)  # early stopping may have chosen earlier ones
        self._state = state.arrays() if solver.is_incremental and is_last else {}
        self._state_of = type(solver).__name__

    def partial_fit(
        self, X: Sequence[Any], y: Sequence[Any], classes: Sequence[Hashable] | None = None
    ) -> StructuredPredictor:
        """Goes on learning from the weights so far, by about one pass over more, fully labelled examples.

        ``classes``, all label values, are needed the first time, unless the constructor was given them.
        """
        is_fresh = not hasattr(self, "coef_")
        stated = self.classes if classes is None else classes
        named = None if stated is None else find_classes(y, stated)
        if is_fresh and named is None:
            raise ValueError("classes must name all labels at the first call of partial_fit.")
        if not is_fresh and named is not None and named != self.classes_.tolist():
            raise ValueError(
                f"classes must stay what they were at the first call, {self.classes_.tolist()}, but are {named}."
            )
        features, X = self._learn_features(X) if is_fresh else (self.features_, self._matrices(X))
        posed = self._pose(X, y, self.classes_.tolist() if named is None else named)
        problem, known, found = posed
        solver = self.solver_for(np.inf)  # whoever comes in parts may be many
        if not known.is_complete.all():
            raise ValueError("partial_fit needs every site of y labelled; use fit for anything else.")
        if not solver.is_incremental:
            raise ValueError(
                "partial_fit needs a solver that takes examples as they come, such as DoubleSGD(); "
                f"{type(solver).__name__} needs all of them: use fit."
            )
        if not is_fresh:
            self._learned().check(problem.data)
            problem = problem.with_seed(self.seed_).with_weights_of(self.coef_)
        n, began = len(problem.data), time.perf_counter()
        n_steps = -(-n // solver.examples_per_step(n))
        if is_fresh:
            state = solver.start(problem)
        elif self._state and self._state_of == type(solver).__name__:
            state = restored(solver, problem, self._state, self.n_iter_)
        else:  # another solver has found these weights: steps as short as at the end of a fit
            state = solver.start(problem, self.coef_)
            state.iteration = solver.n_iter(n)
        with one_blas_thread():
            state = solver.run(problem, state, n_iter=state.iteration + n_steps)
        prior = problem.objective.label_prior(known)
        history = [*([] if is_fresh else self.history_), describe(1, solver, problem, state, state.iteration, began)]
        if not is_fresh:
            prior = self.label_prior_.plus(prior)
        kept = None if is_fresh or self.calibration_ is None else (self.calibration_, self.decoding_calibration_)
        calibrations = None if kept is None else Calibrations(*kept)
        self._set_fitted(problem, features, solver, found, state.average.copy(), state, calibrations, prior, history)
        return self

    def problem(self, X: Sequence[Any], y: Sequence[Any]) -> Problem:
        """Returns the `Problem` that ``fit`` would solve, for a closer look or a solver of your own, unsolved."""
        return self._pose(self._learn_features(X)[1], y).problem

    def solver_for(self, n_examples: float) -> Solver[Any]:
        """The solver that ``fit`` uses for so many examples: the one given, or the default."""
        return self._setting().solver_for(n_examples)

    # Prediction.

    def predict(self, X: Sequence[Any], *, marginals: Sequence[Floats] | None = None) -> list[NDArray[Any]]:
        """Predicts labels, one array for each example, decoded as ``decoding`` says.

        If you have the result of `predict_marginals` already, pass it as ``marginals``, so that it is not computed
        again. `Decoding.MAP` needs no marginals, and `Decoding.LOSS_AWARE` computes others where it has a calibration
        of its own.
        """
        data, learned = self._question(X)
        q = None
        if marginals is not None:
            q = np.concatenate([np.asarray(part, dtype=np.float64) for part in marginals])
            if len(marginals) != len(data) or q.shape != (data.n_sites, len(self.classes_)):
                raise ValueError(f"marginals must be those of predict_marginals, for {len(data)} examples.")
        return [self.classes_[part] for part in ask(learned.labels, data, q, self.n_jobs)]

    def predict_marginals(
        self, X: Sequence[Any], given: Sequence[Any] | None = None, *, method: MarginalMethod | None = None
    ) -> list[Floats]:
        """The probability of each label at each site: an array ``(n_sites, n_labels)`` for each example.

        Columns are in the order of ``classes_``. Other estimators of scikit-learn call this ``predict_proba``.

        A weighted loss makes the labels that are expensive to miss look more probable than they are; this is taken
        out again (docs/decisions.md, 13).

        given : like y, labels that are known (-1 elsewhere), on which the marginals are conditioned
        method : how marginals are estimated, see `marginals`. By default it is that of the objective, PINNED or
            EXACT. COUNTED needs no pins (sites held at a label), which a solver of your own solves one by one
        """
        data, learned = self._question(X)
        if method is not None and not isinstance(method, MarginalMethod):
            raise TypeError(f"method must be a MarginalMethod, such as COUNTED, but is {method!r}.")
        known = None if given is None else encode_hard_labels("given", given, data, self.classes_.tolist()).labels
        return ask(partial(learned.marginals, method=method), data, known, self.n_jobs)

    def potentials(self, X: Sequence[Any]) -> Potentials:
        """The `Potentials` of examples under the learned weights, for inference by hand."""
        data, learned = self._question(X)
        with one_blas_thread():
            f = Potentials.batch([learned.potentials(part) for part in data.parts()])
        return Potentials.trusted(f.layout.with_streams(data.layout.streams), f.unary, f.pairwise)

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """One minus the mean task loss; sites and examples whose labels are not known do not count.

        A label in y that the fit has not seen counts as missed by the prediction.

        By default that is the share of right sites. For `LogLikelihood` and `ExactLogLikelihood`, which learn whole
        labellings, it is the share of examples without a mistake, unless ``task_loss=Hamming()`` counts sites.
        """
        losses = self.losses(X, y)
        if np.isnan(losses).all():
            raise ValueError("y must hold some label to measure by.")
        return 1.0 - float(np.nanmean(losses))

    def losses(self, X: Sequence[Any], y: Sequence[Any]) -> Floats:
        """The task loss of the prediction for each example; NaN where no label is known."""
        data, learned = self._question(X)
        known = encode_hard_labels("y", y, data, with_unseen(y, data, self.classes_.tolist()))
        predicted = np.concatenate(ask(learned.labels, data, None, self.n_jobs))
        return learned.task_loss.value(known, predicted)

    def explain(self, top: int = 20, *, feature_names: Sequence[str] | None = None) -> Explanation:
        """The weights of the ``top`` strongest features and transitions, by their names; print it to see a table.

        ``feature_names`` names the columns of X where the fit had matrices: usually it is the
        ``get_feature_names_out()`` of the transformer that made them. A fit to tokens knows its own names.
        """
        self._check_fitted()
        names: Any = feature_names
        if names is None and self.features_ is not None:
            names = self.features_.get_feature_names_out()
        return Explanation.of(self.weights_, self.classes_.tolist(), names, top)

    # Keeping it.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fitted estimator to one file, atomically, without pickle; weights that are zero take a bit each.

        If the solver can go on with `partial_fit`, the file also holds what it goes on from: six numbers for each
        weight with `DoubleSGD`.
        """
        archive.write(path, "estimator", *self.contents())

    def contents(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns what `save` writes, as JSON and arrays, for a file that holds more, such as a `Segmenter`'s."""
        self._check_fitted()
        return fitted_file.to_contents(self.get_params(deep=False), vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, parts: Sequence[type] = ()) -> StructuredPredictor:
        """The estimator that `save` wrote; ValueError for a damaged, truncated, forged or foreign file.

        ``parts`` are the classes of your own (models, structures, losses, ...) that the estimator was made with.
        Loading runs no code from the file, and takes about as much memory as the file has bytes; but a weight that is
        zero takes one bit in the file, and a whole number in memory.
        """
        if not isinstance(parts, (list, tuple)) or not all(isinstance(part, type) for part in parts):
            raise TypeError(f"parts must be a list of classes, such as [MyModel], but is {parts!r}.")
        make = partial(cls.from_contents, parts=parts)
        return archive.load(path, "estimator", fitted_file.KEYS, fitted_file.ARRAYS, make)

    @classmethod
    def from_contents(
        cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, parts: Sequence[type] = ()
    ) -> StructuredPredictor:
        """Makes the estimator whose `contents` these are; raises ValueError where they are those of none."""
        parameters, fitted = fitted_file.read_contents(about, arrays, parts)
        unknown = parameters.keys() - cls().get_params(deep=False).keys()
        if unknown:
            raise ValueError(f"the file names the unknown parameter {min(unknown)!r}.")
        estimator = cls(**parameters)
        fitted_file.check_parameters(estimator.get_params(deep=False))
        for name, value in fitted.items():
            setattr(estimator, name, value)
        return estimator

    # Inside.

    def _learn_features(self, X: Sequence[Any]) -> tuple[TokenFeatures | None, Sequence[Any]]:
        """Where X holds tokens, the names of their features, and their matrices; else None, and X itself."""
        fitted_file.check_features(self.features)
        if self.features is None and not holds_tokens(X):
            return None, X
        features = TokenFeatures() if self.features is None else TokenFeatures(**self.features.get_params())
        return features, features.fit_transform(X)

    def _matrices(self, X: Sequence[Any]) -> Sequence[Any]:
        """The examples as the fit had them: tokens become matrices by the names that it has learned."""
        if self.features_ is not None:
            return self.features_.transform(X)
        if holds_tokens(X):
            raise ValueError("X holds tokens, but the fit had feature matrices: give what the fit was given.")
        return X

    def _setting(self) -> Setting:
        return Setting.resolve(self.get_params(deep=False))

    def _pose(self, X: Sequence[Any], y: Sequence[Any], classes: Sequence[Hashable] | None = None) -> Posed:
        seed = seed_of(self.random_state, "random_state")
        return pose(self._setting(), X, y, self.classes if classes is None else classes, seed)

    def _check_fitted(self) -> None:
        if not hasattr(self, "coef_"):
            raise NotFittedError("This StructuredPredictor is not fitted yet: call fit(X, y) first.")

    def _learned(self) -> LearnedModel:
        setting = self._setting()
        return LearnedModel(
            setting.model,
            setting.structure,
            self.coef_,
            self.n_features_in_,
            len(self.classes_),
            setting.objective.marginal_method,
            setting.n_perturbations,
            self.seed_,
            self.calibration_,
            self.label_prior_,
            setting.decoding,
            setting.task_loss,
            self.decoding_calibration_,
        )

    def _question(self, X: Sequence[Any]) -> tuple[Dataset, LearnedModel]:
        """The examples, checked, and who answers for them; alone on one thread, where jobs share the cores."""
        self._check_fitted()
        learned, data = self._learned(), Dataset.from_examples(self._matrices(X))
        learned.check(data)
        is_shared_out = data.store is not None and self.n_jobs not in (None, 1)
        return data, learned.with_threads(1) if is_shared_out else learned
