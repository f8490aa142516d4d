"""One fit under way: its solves one after another, what they report, when they stop, where they are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import NDArray

from perturbmap.learning.at_rest import AtRest
from perturbmap.learning.checkpoint import Checkpoint, Contents
from perturbmap.learning.early_stopping import EarlyStopping
from perturbmap.learning.taking_up import kept_floats, restored
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem, Solver, State
from perturbmap.support.blas import one_blas_thread

Callback = Callable[[dict[str, Any]], None]


@final
@dataclass(frozen=True)
class Stage:
    """One solve of a fit.

    name : what it is called in a checkpoint
    number : which tells its noise from that of the fit's other solves
    phase : of Algorithm 3, 1 or 2, under which it is reported; None is kept in no history and decides no weights
    """

    name: str
    number: int
    phase: int | None = None


#: Solves the problem of a stage from the given weights, or from the beginning.
Solve = Callable[[Stage, Problem, Floats | None], Floats]


@final
class Fit:
    """The solves of a fit in turn (`solve`), each reported, watched on validation data, and kept in a checkpoint.

    solver : how each problem is solved
    early_stopping : looks at validation data, or None
    checkpoint : the file to write, or None; what it held before is taken up
    callback : gets a dict of progress now and then
    warm : the state that another l2 ended with, from which the first reported solve begins
    """

    def __init__(
        self,
        solver: Solver[Any],
        *,
        seed: int,
        early_stopping: EarlyStopping | None = None,
        checkpoint: Checkpoint | None = None,
        callback: Callback | None = None,
        warm: State | None = None,
    ) -> None:
        self._solver, self._early_stopping, self._checkpoint = solver, early_stopping, checkpoint
        self._callback, self._warm = callback, warm
        self.seed = seed
        self.history: list[dict[str, Any]] = []
        #: The states in which the reported solves ended, or are; the last is the current one.
        self.states: list[State] = []
        self._finished: dict[str, Floats] = {}
        self._saved: Contents | None = None
        self._began = time.perf_counter()
        kept = None if checkpoint is None else checkpoint.read()
        if kept is not None:
            self._take_up(kept)

    @property
    def iteration(self) -> int:
        """The steps of the current solve so far."""
        return self.states[-1].iteration if self.states else 0

    def weights(self) -> Floats:
        """The weights to use: those of the least validation loss, or those of the current solve."""
        if self._early_stopping is not None and self._early_stopping.best is not None:
            return self._early_stopping.best[1].copy()
        return self.state.average.copy()

    @property
    def state(self) -> State:
        """The state of the current solve; ValueError where a checkpoint has led to none."""
        if self._checkpoint is not None and not self.states:
            raise self._checkpoint.damaged(ValueError("its stage is none of this fit"))
        return self.states[-1]

    def solve(self, stage: Stage, problem: Problem, start: Floats | None = None) -> Floats:
        """The weights that the solver finds; at once where a checkpoint has them."""
        is_current = self._saved is not None and self._saved.about["stage"] == stage.name
        self._check_kept(stage, problem)
        if stage.name in self._finished and not is_current:
            return self._finished[stage.name]
        state = self._first_state(stage, problem, start, is_current)
        if stage.phase is not None:
            self.states.append(state)
        if stage.name not in self._finished:
            if stage.phase is not None and self._early_stopping is not None and not is_current:
                self._early_stopping.begin()
            state = self._run(stage, problem, state)
            w = state.average if stage.phase is None else self.weights()
            self._finished[stage.name] = w.copy()
            self._write(stage, state)
        return self._finished[stage.name]

    def _first_state(self, stage: Stage, problem: Problem, start: Floats | None, is_current: bool) -> State:
        if is_current:
            assert self._saved is not None
            about, arrays = self._saved
            self._saved = None
            state = {name.removeprefix("state_"): a for name, a in arrays.items() if name.startswith("state_")}
            try:
                return restored(self._solver, problem, state, about["iteration"])
            except ValueError as error:
                assert self._checkpoint is not None
                raise self._checkpoint.damaged(error) from None
        if self._warm is not None and stage.phase == 1:
            warm: State = self._solver.warm(problem, self._warm)
            return warm
        fresh: State = self._solver.start(problem, start)
        return fresh

    def _run(self, stage: Stage, problem: Problem, state: State) -> State:
        stopping = self._early_stopping if stage.phase is not None else None
        if stopping is not None and stopping.is_over:
            return state
        n = len(problem.data)
        n_iter = self._solver.n_iter(n)
        at_rest = AtRest(problem, n_iter)

        def on_step(state: State) -> bool:
            at_rest.look(state)
            if stage.phase is not None:
                self.states[-1] = state  # for Ctrl-C, where a solver makes new states
            if self._solver.is_due(state, n):
                self._report(stage, problem, state, n_iter)
            if self._checkpoint is not None and (self._solver.saves_every_step or self._checkpoint.is_due):
                self._write(stage, state)
            return stopping is not None and stopping.is_over

        with one_blas_thread():
            state = self._solver.run(problem, state, on_step)
        if not isinstance(state, State):
            raise TypeError(f"{type(self._solver).__name__}.run must return its State, but returned {state!r}.")
        is_reported = bool(self.history) and (stage.phase, state.iteration) == (
            self.history[-1]["phase"],
            self.history[-1]["iteration"],
        )
        if stage.phase is not None:
            self.states[-1] = state
            if is_reported:  # of the end there may be more to say than of the step
                self.history[-1].update(self._solver.progress(problem, state))
            else:
                self._report(stage, problem, state, n_iter)
            if not self._solver.ends_by_rule and state.iteration >= n_iter:
                with one_blas_thread():
                    at_rest.warn(state)
        return state

    def _report(self, stage: Stage, problem: Problem, state: State, n_iter: int) -> None:
        info = describe(stage.phase or 0, self._solver, problem, state, n_iter, self._began)
        if stage.phase is not None:
            if self._early_stopping is not None:
                info["validation_loss"] = self._early_stopping.look(problem, state.average)
            self.history.append(info)
        if self._callback is not None:
            self._callback({**info, "coef": state.average.copy()})

    # The checkpoint.

    def _take_up(self, kept: Contents) -> None:
        about, arrays = kept
        self.seed, self.history, self._saved = about["seed"], about["history"], kept
        self._finished = {name: arrays[f"finished_{n}"] for n, name in enumerate(about["finished"])}
        if self._early_stopping is not None:
            self._early_stopping.n_looks_since_best = about["n_looks_since_best"]
            if "best" in arrays:
                self._early_stopping.best = (about["best_loss"], arrays["best"])

    def _check_kept(self, stage: Stage, problem: Problem) -> None:
        """Raises ValueError where weights that may be a checkpoint's are not of this problem."""
        if self._checkpoint is None:
            return
        best = None if self._early_stopping is None else self._early_stopping.best
        kept = {"finished": self._finished.get(stage.name), "best": None if best is None else best[1]}
        try:
            for name, w in kept.items():
                if w is not None:
                    kept_floats(name, w, (problem.n_weights,))
        except ValueError as error:
            raise self._checkpoint.damaged(error) from None

    def _write(self, stage: Stage, state: State) -> None:
        if self._checkpoint is None:
            return
        stopping = self._early_stopping
        arrays: dict[str, NDArray[Any]] = {f"state_{name}": array for name, array in state.arrays().items()}
        arrays.update({f"finished_{n}": w for n, w in enumerate(self._finished.values())})
        best = None if stopping is None else stopping.best
        if best is not None:
            arrays["best"] = best[1]
        about = {
            "seed": self.seed,
            "finished": list(self._finished),
            "stage": stage.name,
            "iteration": state.iteration,
            "history": self.history,
            "n_looks_since_best": 0 if stopping is None else stopping.n_looks_since_best,
            "best_loss": None if best is None else best[0],
        }
        self._checkpoint.write(about, arrays)


def describe(
    phase: int, solver: Solver[Any], problem: Problem, state: State, n_iter: int, began: float
) -> dict[str, Any]:
    """An entry of ``history_``: where a solve is, and what its solver has to say."""
    n = len(problem.data)
    return {
        "phase": phase,
        "iteration": state.iteration,
        "n_iter": n_iter,
        "passes": state.iteration * solver.examples_per_step(n) / n,
        "seconds": time.perf_counter() - began,
        **solver.progress(problem, state),
    }
