"""What is solved: the penalised mean of an objective over examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.models.base import Model, project
from perturbmap.noise import Domain, Purpose, gumbel_noise
from perturbmap.objectives import Objective, Targets
from perturbmap.potentials import Floats, Mask, Moments, Potentials
from perturbmap.structures.base import Structure

TRAINING = Domain(Purpose.TRAINING)
#: The first of the draws of the noise that are never learned from.
FRESH = 1 << 24


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """``maximise sum_n weights[n] objective_n(w) / N - l2/2 ||w||^2`` over the N examples of ``data``.

    data : the examples, as a `Dataset`
    targets : what is to be made likely for them
    n_labels : the number of labels
    model, structure, objective : as in `StructuredPredictor`
    l2 : strength of the penalty
    seed, domain : what the noise depends on. Two solves of one fit have two domains, so that they share no draw.
    n_jobs : shards of a `Store` that are worked on at once by a solver that can; changes nothing else
    has_stored_labels : whether the targets are those of the store's own labels, all known: workers read them there
    learned_of_whole : which weights are learned, where a larger problem decides; see `learned`
    """

    data: Dataset
    targets: Targets
    n_labels: int
    model: Model
    structure: Structure
    objective: Objective
    l2: float
    seed: int
    domain: Domain = TRAINING
    n_jobs: int | None = None
    has_stored_labels: bool = False
    learned_of_whole: Mask | None = None

    @cached_property
    def n_weights(self) -> int:
        """The length of the weight vector w."""
        return self.model.n_weights(self.data, self.n_labels)

    @cached_property
    def nonnegative(self) -> NDArray[np.intp]:
        """The positions in w of the weights that must not be negative."""
        return self.model.nonnegative_weights(self.data, self.n_labels)

    @cached_property
    def is_nonnegative(self) -> Mask | None:
        """(n_weights,), whether a weight must not be negative; None: all may be."""
        if self.nonnegative.size == 0:
            return None
        marks = np.zeros(self.n_weights, dtype=bool)
        marks[self.nonnegative] = True
        return marks

    @cached_property
    def learned(self) -> Mask | None:
        """(n_weights,), the weights that are learned, as `Model.learned` says of all examples; None: all are."""
        if self.learned_of_whole is not None:
            return self.learned_of_whole
        return self.model.learned(self.data, self.targets.label_weights, self.n_labels)

    def project(self, w: Floats) -> Floats:
        """The nearest weights that are allowed."""
        return project(w, self.nonnegative)

    def batch(self, indices: NDArray[np.intp]) -> tuple[Dataset, Targets]:
        """Some of the examples, and their targets."""
        sites = self.data.layout.sites_of(indices)
        data = self.data.take(indices, sites)
        if len(indices) and indices[-1] - indices[0] == len(indices) - 1 and (np.diff(indices) == 1).all():
            first, last = int(indices[0]), int(indices[-1]) + 1  # one after another: views
            return data, self.targets.between(first, last, self.data.layout.sites(first, last))
        return data, self.targets.take(indices, sites)

    def with_seed(self, seed: int) -> Problem:
        """The same problem under other noise."""
        return replace(self, seed=seed)

    def with_weights_of(self, w: Floats) -> Problem:
        """The same problem, in which weights that are not zero in w are learned too: earlier examples needed them."""
        return self if self.learned is None else replace(self, learned_of_whole=self.learned | (w != 0))

    def part(self, indices: NDArray[np.intp]) -> Problem:
        """The problem of some of the examples."""
        data, targets = self.batch(indices)
        return replace(self, data=data, targets=targets, has_stored_labels=False)

    def penalty(self, w: Floats) -> float:
        """The penalty of the weights, ``l2/2 ||w||^2``."""
        return 0.5 * self.l2 * float(w @ w)

    def objective_at(self, w: Floats, draw: int = 0, n_draws: int = 1) -> float:
        """What is maximised: the mean objective of all examples, under draws of their noise, less the penalty."""
        return self.value_and_grad(w, draw=draw, n_draws=n_draws)[0] - self.penalty(w)

    def value_and_grad(
        self, w: Floats, indices: NDArray[np.intp] | None = None, draw: int = 0, n_draws: int = 1
    ) -> tuple[float, Floats]:
        """The mean objective of some examples, or all, over draws of their noise, and its gradient; no penalty."""
        value, gradient, n = self.totals(w, indices, draw, n_draws)
        return value / n, gradient / n

    def totals(
        self, w: Floats, indices: NDArray[np.intp] | None = None, draw: int = 0, n_draws: int = 1
    ) -> tuple[float, Floats, int]:
        """The sum of which `value_and_grad` is the mean, its gradient, and by how much both are divided there.

        Draws come one after another, between one product with the features and one with their transpose.
        """
        batch, targets = (self.data, self.targets) if indices is None else self.batch(indices)
        f, pullback = self.model.apply(w, batch, self.n_labels)
        if not self.objective.is_perturbed:
            values, moments = self.objective.value_and_grad(f, targets, self.structure, None)
            return float(targets.weights @ values), pullback(moments), len(batch)
        values, moments = self._at_draw(f, targets, draw)
        for other in range(draw + 1, draw + n_draws):
            more_values, more_moments = self._at_draw(f, targets, other)
            values, moments = values + more_values, moments.plus(more_moments)
        return float(targets.weights @ values), pullback(moments), len(batch) * n_draws

    def _at_draw(self, f: Potentials, targets: Targets, draw: int) -> tuple[Floats, Moments]:
        noise = gumbel_noise(f, self.seed, first_draw=draw, n_threads=self.structure.n_threads, domain=self.domain)[0]
        return self.objective.value_and_grad(f, targets, self.structure, noise)
