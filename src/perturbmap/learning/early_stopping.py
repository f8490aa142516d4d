"""Early stopping: looks at validation data, of which the best is kept."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

import numpy as np

from perturbmap.data import Dataset
from perturbmap.data.labels import encode_labels
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_count
from perturbmap.task_losses import TaskLoss


@final
class EarlyStopping:
    """Keeps the weights of the least validation loss, and stops when it has not fallen for ``patience`` looks.

    The loss is that of the best labelling, over the examples of which some label is known.
    """

    def __init__(
        self, problem: Problem, classes: Sequence[Hashable], task_loss: TaskLoss, validation: Any, patience: int
    ) -> None:
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise ValueError("validation must be a pair (X, y) of examples and their labels.")
        self.patience = check_count("patience", patience)
        self.data = Dataset.from_examples(validation[0])
        if self.data.n_features != problem.data.n_features:
            raise ValueError(
                f"validation has {self.data.n_features} features, but X has {problem.data.n_features}: compute both "
                "in the same way."
            )
        problem.model.check(self.data, problem.n_labels)
        if problem.model.n_weights(self.data, problem.n_labels) != problem.n_weights:
            raise ValueError("validation must have as many edge_features and label_features as X.")
        self.known = encode_labels(validation[1], self.data, classes, "validation y")
        if not self.known.is_hard or not self.known.is_known.any():
            raise ValueError("validation y must hold labels, and no soft ones.")
        self._task_loss = task_loss
        self.best: tuple[float, Floats] | None = None
        self.n_looks_since_best = 0

    @property
    def is_over(self) -> bool:
        """Whether patience has run out."""
        return self.n_looks_since_best >= self.patience

    def begin(self) -> None:
        """Another solve begins, with all patience; the best weights so far stay."""
        self.n_looks_since_best = 0

    def look(self, problem: Problem, w: Floats) -> float:
        """The validation loss of w, which is kept if it is the least."""
        with one_blas_thread():
            labels = [
                problem.structure.argmax(problem.model.potentials(w, part, problem.n_labels))
                for part in self.data.parts()
            ]
        loss = float(np.nanmean(self._task_loss.value(self.known, np.concatenate(labels))))
        if np.isnan(loss):
            raise ValueError(f"validation: the loss {self._task_loss!r} is not a number for the labels at hand.")
        if self.best is None or loss < self.best[0]:
            self.best, self.n_looks_since_best = (loss, w.copy()), 0
        else:
            self.n_looks_since_best += 1
        return loss
