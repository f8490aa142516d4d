"""A few examples of a problem, with the weights that they need, and no other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.models.base import Pullback
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.solvers.iterate import Positions
from perturbmap.solvers.problem import Problem


@final
@dataclass(frozen=True, eq=False)
class Piece:
    """Some examples of a problem.

    problem : theirs; of sparse features it has those of these examples alone, and their weights
    at : where its weights that are learned are in w
    own : where they are among all of its weights, of which the others are zero; None: all are learned
    """

    problem: Problem
    at: Positions
    own: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, problem: Problem, indices: NDArray[np.intp], weights: Floats | None = None) -> Piece:
        """These examples of a problem, with weights of their own or with others."""
        data, targets = problem.batch(indices)
        targets = targets if weights is None else targets.weighted(weights)
        at: Positions = slice(None)
        small = data.compact() if problem.model.is_by_feature else None
        if small is not None and len(small[1]) < data.n_features:
            data, columns = small
            at = _positions(problem, data, columns)
        part = replace(problem, data=data, targets=targets, has_stored_labels=False)
        if problem.learned is None:
            return cls(part, at)
        own = np.flatnonzero(problem.learned[at])
        return cls(part, own if isinstance(at, slice) else at[own], own.astype(np.int32))

    def value_and_grad(self, w: Floats, draw: int = 0, n_draws: int = 1) -> tuple[float, Floats]:
        """See `Problem.value_and_grad`; of the weights that are learned."""
        value, gradient, n = self.problem.totals(self._whole(w), draw=draw, n_draws=n_draws)
        return value / n, (gradient if self.own is None else gradient.take(self.own)) / n

    def apply(self, w: Floats) -> tuple[Potentials, Pullback]:
        """See `Model.apply`; of the weights that are learned."""
        f, pullback = self.problem.model.apply(self._whole(w), self.problem.data, self.problem.n_labels)
        return f, pullback if self.own is None else lambda moments: pullback(moments).take(self.own)

    def _whole(self, w: Floats) -> Floats:
        if self.own is None:
            return w
        whole = np.zeros(self.problem.n_weights)
        whole[self.own] = w
        return whole


def _positions(problem: Problem, small: Dataset, columns: Labels) -> NDArray[np.intp]:
    """Where the weights of a data set with some of the features are among those of the problem.

    The features are the axes of blocks whose length is not the same.
    """
    model, k = problem.model, problem.n_labels
    found, first = [], 0
    for (name, whole), part in zip(
        model.shapes(problem.data, k).items(), model.shapes(small, k).values(), strict=True
    ):
        at = np.zeros(1, dtype=np.intp)
        for n, m in zip(whole, part, strict=True):
            if n != m and m != len(columns):
                raise ValueError(f"the weights {name!r} of {type(model).__name__} must have an axis of the features.")
            at = (at[:, None] * n + (np.arange(m) if n == m else columns)).ravel()
        found.append(first + at)
        first += int(np.prod(whole, dtype=np.int64))
    return np.concatenate(found)
