"""What is solved, and what every solver answers."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from perturbmap.examples import Dataset
from perturbmap.models.base import Model
from perturbmap.objectives.base import Objective, Targets
from perturbmap.perturbation import gumbel_noise
from perturbmap.potentials import Floats
from perturbmap.structures.base import Structure


@dataclass(frozen=True, eq=False)
class Problem:
    """``maximise sum_n weights[n] objective_n(w) / N - l2/2 ||w||^2`` over the N examples of ``data``."""

    data: Dataset
    targets: Targets
    n_labels: int
    model: Model
    structure: Structure
    objective: Objective
    l2: float
    seed: int
    #: Shards that are worked on at once, and whether their labels are those of the store itself, all known.
    n_jobs: int | None = None
    has_stored_labels: bool = False

    @property
    def n_weights(self) -> int:
        """The length of w."""
        return self.model.n_weights(self.data, self.n_labels)

    def batch(self, indices: NDArray[np.intp]) -> tuple[Dataset, Targets]:
        """Some of the examples."""
        sites, t = self.data.sites_of(indices), self.targets
        part = Targets(t.labels[sites], t.label_weights[sites], t.is_complete[indices], t.weights[indices])
        return self.data.take(indices), part

    def part(self, indices: NDArray[np.intp]) -> Problem:
        """The problem of some of the examples."""
        data, targets = self.batch(indices)
        return replace(self, data=data, targets=targets, has_stored_labels=False)

    def value_and_grad(
        self, w: Floats, indices: NDArray[np.intp] | None = None, draw: int = 0
    ) -> tuple[float, Floats]:
        """The mean over some examples, or all, under one draw of each one's noise; without the penalty."""
        batch, targets = (self.data, self.targets) if indices is None else self.batch(indices)
        f = self.model.potentials(w, batch, self.n_labels)
        noise = None
        if self.objective.is_perturbed:
            noise = gumbel_noise(f, self.seed, first_draw=draw, n_threads=self.structure.n_threads)[0]
        values, moments = self.objective.value_and_grad(f, targets, self.structure, noise)
        gradient = self.model.pullback(batch, self.n_labels, moments)
        return float(targets.weights @ values) / len(batch), gradient / len(batch)

    def objective_at(self, w: Floats, n_draws: int = 2, max_examples: int = 200) -> float:
        """The objective itself, on a fixed set of perturbations, so that two iterates can be compared.

        The draws are counted down from 2**32, where no step gets; of more examples than ``max_examples``, evenly
        spaced ones stand for all.
        """
        n = len(self.data)
        n_draws = n_draws if self.objective.is_perturbed else 1
        some = np.unique(np.linspace(0, n - 1, min(n, max_examples)).astype(np.intp))
        total = sum(self.value_and_grad(w, some, 2**32 - 1 - draw)[0] for draw in range(n_draws))
        return total / n_draws - 0.5 * self.l2 * float(w @ w)


@dataclass(eq=False)
class State:
    """All that a run needs to go on; ``average`` are the weights to use."""

    w: Floats
    average: Floats
    iteration: int = 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state as named arrays, for a file."""
        return {"w": self.w, "average": self.average}


def warn_of_gap(what: str, gap: float, tolerance: float) -> None:
    """Says that a solver ended before it was done."""
    warnings.warn(
        f"{what}, where the objective may still be {gap:.2%} from its optimum (tolerance: {tolerance:.2%}). "
        "The weights can be used; allow more iterations, a larger tolerance or a larger l2.",
        ConvergenceWarning,
        stacklevel=2,
    )


S = TypeVar("S", bound=State)


class Solver(BaseEstimator, Generic[S]):
    """A way to maximise the objective of a `Problem`."""

    #: Whether `progress` costs nothing, so that the history of a fit is kept without being asked for.
    knows_progress: bool = False
    #: Whether a step is so long that a checkpoint is written after each.
    takes_long: bool = False

    @abstractmethod
    def check(self, objective: Objective) -> None:
        """Raises ValueError where a parameter makes no sense, or the objective cannot be solved like this."""

    @abstractmethod
    def n_iter(self, n_examples: int) -> int:
        """Steps in all, at most."""

    @abstractmethod
    def is_due(self, state: S, n_examples: int) -> bool:
        """Whether it is time for a report."""

    @abstractmethod
    def start(self, problem: Problem, w: Floats | None = None) -> S:
        """The state before the first step; at the weights w, where the solver can begin anywhere."""

    def warm(self, problem: Problem, state: S) -> S:
        """A start from what was found for the same examples with another l2."""
        return self.start(problem, state.average)

    @abstractmethod
    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> S:
        """The state whose `State.arrays` these are."""

    @abstractmethod
    def run(
        self,
        problem: Problem,
        state: S,
        on_step: Callable[[S], bool] | None = None,
        n_iter: int | None = None,
    ) -> S:
        """Goes on from ``state`` to step ``n_iter``; ``on_step`` may stop it by returning True."""

    @abstractmethod
    def progress(self, problem: Problem, state: S) -> dict[str, float]:
        """What there is to say of a state, by name."""
