"""Weights in coordinates of which one is what all sites share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from perturbmap.potentials import Floats
from perturbmap.solvers.iterate import Positions
from perturbmap.solvers.problem import Problem

# The examples whose sites stand for all: a direction is wanted, not its last digits.
_N_EXAMPLES = 64


@final
@dataclass(frozen=True, eq=False)
class Reflection:
    """The Householder reflection ``z - 2 v (v @ z)`` that exchanges the bias with the mean of the features.

    Features whose mean is not zero share a direction, that of ``u = (mean x, 1)``: a step of every weight by the
    same length moves all scores along it together, far more than it moves them apart. After the reflection it is a
    coordinate of its own, the last, and the others are orthogonal to it. Lengths and the penalty stay as they are,
    and the reflection is its own inverse.

    at, shape : the positions of `Model.site_weights`, as a slice where they lie one after another, and their shape
    v : ``(n_features + 1,)``, the unit vector along ``u / |u| - e_last``
    """

    at: Positions
    shape: tuple[int, ...]
    v: Floats

    @classmethod
    def of(cls, problem: Problem) -> Reflection | None:
        """That of a problem with dense features; None where its model has no bias beside them."""
        positions = problem.model.site_weights(problem.data, problem.n_labels)
        if positions is None or problem.data.n_sites == 0:
            return None
        n = len(problem.data)
        some = problem.data.take(np.unique(np.linspace(0, n - 1, min(n, _N_EXAMPLES)).astype(np.intp)))
        # Example by example: the same bits in memory and on disk.
        total = some.features.by_example().pullback(np.ones((some.n_sites, 1)))[:, 0]
        v = np.append(total / max(1, some.n_sites), 1.0)
        v /= np.linalg.norm(v)
        v[-1] -= 1.0
        length = float(np.linalg.norm(v))
        if length == 0:
            return None
        flat = positions.ravel()
        is_run = bool((flat[1:] - flat[:-1] == 1).all())
        return cls(slice(int(flat[0]), int(flat[-1]) + 1) if is_run else flat, positions.shape, v / length)

    def __call__(self, weights: Floats) -> Floats:
        """The reflected weights, or what else has one number for each of them."""
        reflected = weights.copy()
        of_sites = weights[self.at].reshape(self.shape)
        reflected[self.at] -= (2.0 * self.v[:, None] * (self.v @ of_sites)).ravel()
        return reflected
