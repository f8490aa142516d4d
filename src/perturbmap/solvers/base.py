"""What every solver can be asked for, and the state that a run keeps."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.solvers.problem import Problem
from perturbmap.support.parts import Part

#: Reports that a fit makes, unless its solver has its own rhythm; validation data are looked at as often.
N_REPORTS = 20


class State:
    """All that a run needs to go on: the weights w, the ``average`` to use, and the number of steps, ``iteration``.

    Weights and average may each be a function that returns them, for a solver that does not multiply them out in
    every step.
    """

    def __init__(
        self, w: Floats | Callable[[], Floats], average: Floats | Callable[[], Floats], iteration: int = 0
    ) -> None:
        self._w, self._average = w, average
        self.iteration = iteration

    @property
    def w(self) -> Floats:
        """The weights of the last step."""
        return self._w() if callable(self._w) else self._w

    @w.setter
    def w(self, w: Floats | Callable[[], Floats]) -> None:
        self._w = w

    @property
    def average(self) -> Floats:
        """The weights to use: an average of those of the steps, or the last."""
        return self._average() if callable(self._average) else self._average

    @average.setter
    def average(self, average: Floats | Callable[[], Floats]) -> None:
        self._average = average

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state as named arrays, for a file."""
        return {"w": self.w, "average": self.average}


def warn_of_gap(what: str, gap: float, tolerance: float) -> None:
    """Warns that a solver ended before it was done."""
    from sklearn.exceptions import (
        ConvergenceWarning,
    )  # takes long to load, and processes that help with a fit do not warn

    if np.isnan(gap):
        how_far = f"{what}, before it could tell how far it is from the optimum. Allow more iterations."
    elif np.isfinite(gap):
        how_far = (
            f"{what}, where the objective may still be {gap:.2%} from its optimum (tolerance: {tolerance:.2%}). The "
            "weights can be used; allow more iterations, a larger tolerance or a larger l2."
        )
    else:
        how_far = (
            f"{what} without a certificate: the structure is approximate and gives no upper bound on its maximum "
            "(maximise_with_bound). The weights can be used."
        )
    warnings.warn(how_far, ConvergenceWarning, stacklevel=2)


S = TypeVar("S", bound=State)


class Solver(Part, Generic[S]):
    """A way to maximise the objective of a `Problem`.

    A solver of your own needs ``n_iter`` and ``run``. One whose `State` holds more than weights also needs ``start``,
    ``restore`` and the ``arrays`` of its state, so that it can be interrupted and taken up again.
    """

    #: Whether a pass over new examples can follow one over others: what ``partial_fit`` asks for.
    is_incremental: ClassVar[bool] = False
    #: Whether it ends by a rule of its own, and says so where that is not met; else after so many steps, and a fit
    #: looks whether it has come to rest.
    ends_by_rule: ClassVar[bool] = False
    #: Whether a step takes so long that a checkpoint is written after each.
    saves_every_step: ClassVar[bool] = False

    def check(self, problem: Problem) -> None:
        """Raises ValueError where a parameter makes no sense, or the problem cannot be solved like this."""

    @abstractmethod
    def n_iter(self, n_examples: int) -> int:
        """The number of steps in all, at most."""

    def examples_per_step(self, n_examples: int) -> int:
        """How many examples a step looks at; all, unless the solver says otherwise."""
        return n_examples

    def is_due(self, state: S, n_examples: int) -> bool:
        """Whether it is time for a report: after every twentieth of all steps by default."""
        return state.iteration % max(1, self.n_iter(n_examples) // N_REPORTS) == 0

    def start(self, problem: Problem, w: Floats | None = None) -> S:
        """The state before the first step: at the weights w where the solver can begin anywhere, else at zero."""
        w = np.zeros(problem.n_weights) if w is None else w
        return State(w.copy(), w.copy())  # type: ignore[return-value]  # one with more in its state overrides this

    def warm(self, problem: Problem, state: S) -> S:
        """The state before the first step, from the state that was found for the same examples with another l2."""
        return self.start(problem, state.average)

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> S:
        """The state whose `State.arrays` these are."""
        return State(arrays["w"], arrays["average"], iteration)  # type: ignore[return-value]  # see start

    @abstractmethod
    def run(
        self,
        problem: Problem,
        state: S,
        on_step: Callable[[S], bool] | None = None,
        n_iter: int | None = None,
    ) -> S:
        """Goes on from ``state`` to step ``n_iter``; ``on_step`` may stop it by returning True."""

    def progress(self, problem: Problem, state: S) -> dict[str, float]:
        """Numbers that describe a state, by name; a fit keeps them in ``history_``, so they must cost nothing."""
        return {}
