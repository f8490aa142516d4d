"""One fit under way: its state, its reports, its checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from perturbmap import persistence
from perturbmap.annotations import Annotations
from perturbmap.blas import one_blas_thread
from perturbmap.calibration import Calibration
from perturbmap.checks import check_number
from perturbmap.examples import Dataset
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem, Solver, State
from perturbmap.task_losses import TaskLoss

Callback = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class FitOptions:
    """What `StructuredPredictor.fit` takes beside the data; described there."""

    validation: tuple[Sequence[Any], Sequence[Any]] | None = None
    patience: int = 5
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_seconds: float = 60.0
    callback: Callback | None = None


class Run:
    """The state of a fit, what it reports, and how it is taken up again."""

    def __init__(
        self,
        problem: Problem,
        solver: Solver[Any],
        task_loss: TaskLoss,
        held_out: tuple[Dataset, Annotations] | None,
        options: FitOptions,
        warm: State | None = None,
    ) -> None:
        self.problem, self.solver, self.task_loss, self.held_out = problem, solver, task_loss, held_out
        self.patience, self.callback, self._warm = options.patience, options.callback, warm
        self.state: State | None = None
        self._saved: tuple[dict[str, Any], int] | None = None
        self.phase = 1
        self.first_weights: Floats | None = None
        self.first_state: State | None = None  # of phase 1, once it is over
        self.calibration: Calibration | None = None
        self.history: list[dict[str, Any]] = []
        self._best: tuple[float, Floats] | None = None
        self._looks_since_best = 0
        self._stopped = False
        self._began = time.perf_counter()
        self._path: str | os.PathLike[str] | None = None
        self._fingerprint = ""
        self._written = self._began
        self._interval = np.inf

    @property
    def iteration(self) -> int:
        """Of this phase."""
        if self.state is not None:
            return self.state.iteration
        return 0 if self._saved is None else self._saved[1]

    @property
    def _last_report(self) -> tuple[int, int]:
        return (self.history[-1]["phase"], self.history[-1]["iteration"]) if self.history else (0, 0)

    def best_weights(self) -> Floats:
        """Those of the least validation loss, if there are validation data; else the average."""
        if self._best is not None:
            return self._best[1].copy()
        return np.zeros(self.problem.n_weights) if self.state is None else self.state.average.copy()

    def next_phase(self) -> None:
        """Begins phase 2 of Algorithm 3 at the weights that phase 1 found."""
        self.first_weights = self.best_weights()
        self.first_state = self.state
        self.phase, self.state, self._looks_since_best, self._stopped = 2, None, 0, False

    def go(self) -> None:
        """Runs the solver to the end of this phase."""
        if self._saved is not None:
            self.state, self._saved = self.solver.restore(self.problem, *self._saved), None
        if self.state is None and self._warm is not None and self.phase == 1:
            self.state = self.solver.warm(self.problem, self._warm)
        if self.state is None:
            self.state = self.solver.start(self.problem, self.first_weights)
        if self._stopped:
            return
        n = len(self.problem.data)
        n_iter = self.solver.n_iter(n)
        watched = self.callback is not None or self.held_out is not None or self.solver.knows_progress

        def on_step(state: State) -> bool:
            stop = False
            if watched and self.solver.is_due(state, n):
                stop = self._report(state, n_iter)
            is_old = self.solver.takes_long or time.perf_counter() - self._written >= self._interval
            if self._path is not None and is_old:
                self._write_checkpoint()
            return stop

        with one_blas_thread():
            self.state = self.solver.run(self.problem, self.state, on_step)
        if watched and not self._stopped and self._last_report != (self.phase, self.state.iteration):
            self._report(self.state, n_iter)
        if self._path is not None:
            self._write_checkpoint()

    def _report(self, state: State, n_iter: int) -> bool:
        info: dict[str, Any] = {
            "phase": self.phase,
            "iteration": state.iteration,
            "n_iter": n_iter,
            "seconds": time.perf_counter() - self._began,
            **self.solver.progress(self.problem, state),
        }
        stop = False
        if self.held_out is not None:
            info["validation_loss"] = loss = self._validation_loss(state.average)
            if self._best is None or loss < self._best[0]:
                self._best, self._looks_since_best = (loss, state.average.copy()), 0
            else:
                self._looks_since_best += 1
                stop = self._stopped = self._looks_since_best >= self.patience
        self.history.append(info)
        if self.callback is not None:
            self.callback({**info, "coef": state.average.copy()})
        return stop

    def _validation_loss(self, w: Floats) -> float:
        assert self.held_out is not None
        data, annotations = self.held_out
        problem = self.problem
        with one_blas_thread():
            labels = [
                problem.structure.argmax(problem.model.potentials(w, part, problem.n_labels)) for part in data.parts()
            ]
        predicted = np.concatenate(labels)
        losses = self.task_loss.value(annotations.labels, predicted, data.sizes, data.site_offsets, problem.n_labels)
        return float(losses.mean())

    # Checkpoints.

    def resume(
        self, path: str | os.PathLike[str], seconds: float, estimator: BaseEstimator, annotations: Annotations
    ) -> None:
        """Takes up the checkpoint, if there is one of this very fit; else writes to that path from now on."""
        self._path, self._interval = path, check_number("checkpoint_seconds", seconds, or_equal=True)
        persistence.check_writable(path)
        self._fingerprint = self._digest(estimator, annotations)
        if not os.path.exists(path):
            return
        keys = ["fingerprint", "seed", "phase", "iteration", "history", "looks_since_best", "stopped", "best_loss"]
        about, arrays = persistence.read(path, "checkpoint", keys, [])
        if about["fingerprint"] != self._fingerprint:
            raise ValueError(
                f"the checkpoint {path} belongs to a fit with other data or parameters: remove it, or name another."
            )
        self.problem = replace(self.problem, seed=about["seed"])
        self.phase = about["phase"]
        self.first_weights = arrays.get("first_weights")
        state = {name.removeprefix("state_"): array for name, array in arrays.items() if name.startswith("state_")}
        self._saved = (state, about["iteration"])
        self.calibration = Calibration.from_array(arrays.get("calibration"))
        self.history = about["history"]
        self._looks_since_best, self._stopped = about["looks_since_best"], about["stopped"]
        if "best" in arrays:
            self._best = (about["best_loss"], arrays["best"])

    def _write_checkpoint(self) -> None:
        assert self._path is not None
        assert self.state is not None
        arrays = {f"state_{name}": array for name, array in self.state.arrays().items()}
        if self.first_weights is not None:
            arrays["first_weights"] = self.first_weights
        if self.calibration is not None:
            arrays["calibration"] = self.calibration.to_array()
        if self._best is not None:
            arrays["best"] = self._best[1]
        about = {
            "fingerprint": self._fingerprint,
            "seed": self.problem.seed,
            "phase": self.phase,
            "iteration": self.state.iteration,
            "history": self.history,
            "looks_since_best": self._looks_since_best,
            "stopped": self._stopped,
            "best_loss": None if self._best is None else self._best[0],
        }
        persistence.write(self._path, "checkpoint", about, arrays)
        self._written = time.perf_counter()

    def _digest(self, estimator: BaseEstimator, annotations: Annotations) -> str:
        parameters = {k: _describe(v) for k, v in estimator.get_params(deep=True).items()}
        # How many work at once changes nothing; whether there are rounds does.
        parameters["n_jobs"] = parameters.get("n_jobs") is not None
        text = json.dumps({**parameters, "patience": self.patience}, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16)
        for data, notes in [(self.problem.data, annotations), *([] if self.held_out is None else [self.held_out])]:
            digest.update(data.fingerprint())
            digest.update(np.ascontiguousarray(notes.q).data)
        return digest.hexdigest()


def _describe(value: Any) -> Any:
    try:
        return persistence.to_json(value)
    except ValueError:  # a user's own object: its class must do
        return type(value).__name__
