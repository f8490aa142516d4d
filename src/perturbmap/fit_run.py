"""One fit under way: its state, its reports, its checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from perturbmap import persistence
from perturbmap.annotations import Annotations
from perturbmap.calibration import Calibration
from perturbmap.examples import Dataset
from perturbmap.potentials import Floats
from perturbmap.solvers import DoubleSGD, Problem, SGDState
from perturbmap.task_losses import TaskLoss

Callback = Callable[[dict[str, Any]], None]

#: Reports that a fit makes to its callback, and looks that it takes at validation data.
N_REPORTS = 20


def part_of(problem: Problem, indices: np.ndarray) -> Problem:
    """The problem of some of the examples."""
    data, targets = problem.batch(indices)
    return replace(problem, data=data, targets=targets)


class Run:
    """The state of a fit, what it reports, and how it is taken up again."""

    def __init__(
        self,
        problem: Problem,
        solver: DoubleSGD,
        task_loss: TaskLoss,
        n_weights: int,
        held_out: tuple[Dataset, Annotations] | None,
        patience: int,
        callback: Callback | None,
    ) -> None:
        self.problem, self.solver, self.task_loss, self.held_out = problem, solver, task_loss, held_out
        self.patience, self.callback = patience, callback
        zeros = np.zeros(n_weights)
        self.state = SGDState(zeros, zeros.copy())
        self.phase = 1
        self.first_weights: Floats | None = None
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

    def best_weights(self) -> Floats:
        """Those of the least validation loss, if there are validation data; else the average."""
        return (self.state.average if self._best is None else self._best[1]).copy()

    def next_phase(self) -> None:
        """Begins phase 2 of Algorithm 3 at the weights that phase 1 found."""
        self.first_weights = w = self.best_weights()
        self.phase, self.state, self._looks_since_best, self._stopped = 2, SGDState(w.copy(), w.copy()), 0, False

    def go(self) -> None:
        """Runs the solver to the end of this phase."""
        if self._stopped:
            return
        n_iter = self.solver.n_iter(len(self.problem.data))
        every = max(1, n_iter // N_REPORTS)
        watched = self.callback is not None or self.held_out is not None

        def on_step(state: SGDState) -> bool:
            stop = False
            if watched and (state.iteration % every == 0 or state.iteration == n_iter):
                stop = self._report(n_iter)
            if self._path is not None and time.perf_counter() - self._written >= self._interval:
                self._write_checkpoint()
            return stop

        self.solver.run(self.problem, self.state, on_step)
        if self._path is not None:
            self._write_checkpoint()

    def _report(self, n_iter: int) -> bool:
        info: dict[str, Any] = {
            "phase": self.phase,
            "iteration": self.state.iteration,
            "n_iter": n_iter,
            "seconds": time.perf_counter() - self._began,
            "objective": self.problem.objective_at(self.state.average),
        }
        stop = False
        if self.held_out is not None:
            info["validation_loss"] = loss = self._validation_loss()
            if self._best is None or loss < self._best[0]:
                self._best, self._looks_since_best = (loss, self.state.average.copy()), 0
            else:
                self._looks_since_best += 1
                stop = self._stopped = self._looks_since_best >= self.patience
        self.history.append(info)
        if self.callback is not None:
            self.callback(dict(info))
        return stop

    def _validation_loss(self) -> float:
        assert self.held_out is not None
        data, annotations = self.held_out
        problem = self.problem
        f = problem.model.potentials(self.state.average, data, problem.n_labels)
        predicted = problem.structure.argmax(f)
        losses = self.task_loss.value(annotations.labels, predicted, data.sizes, data.site_offsets, problem.n_labels)
        return float(losses.mean())

    # Checkpoints.

    def resume(
        self, path: str | os.PathLike[str], seconds: float, estimator: BaseEstimator, annotations: Annotations
    ) -> None:
        """Takes up the checkpoint, if there is one of this very fit; else writes to that path from now on."""
        self._path, self._interval = path, seconds
        self._fingerprint = self._digest(estimator, annotations)
        if not os.path.exists(path):
            return
        keys = ["fingerprint", "seed", "phase", "iteration", "history", "looks_since_best", "stopped", "best_loss"]
        about, arrays = persistence.read(path, "checkpoint", keys, ["w", "average"])
        if about["fingerprint"] != self._fingerprint:
            raise ValueError(
                f"the checkpoint {path} belongs to a fit with other data or parameters: remove it, or name another."
            )
        self.problem = replace(self.problem, seed=about["seed"])
        self.phase = about["phase"]
        self.state = SGDState(arrays["w"], arrays["average"], about["iteration"])
        self.first_weights = arrays.get("first_weights")
        self.calibration = Calibration.from_array(arrays.get("calibration"))
        self.history = about["history"]
        self._looks_since_best, self._stopped = about["looks_since_best"], about["stopped"]
        if "best" in arrays:
            self._best = (about["best_loss"], arrays["best"])

    def _write_checkpoint(self) -> None:
        assert self._path is not None
        arrays = {"w": self.state.w, "average": self.state.average}
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
        text = json.dumps({**parameters, "patience": self.patience}, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16)
        for data, notes in [(self.problem.data, annotations), *([] if self.held_out is None else [self.held_out])]:
            matrix = data.features.matrix
            features = [matrix] if isinstance(matrix, np.ndarray) else [matrix.data, matrix.indices, matrix.indptr]
            edge_features = None if data.edge_features is None else data.edge_features.matrix
            arrays = (data.site_offsets, data.edges, edge_features, data.sizes, notes.q)
            for array in (*features, *arrays, *(data.label_features or [])):
                digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _describe(value: Any) -> Any:
    try:
        return persistence.to_json(value)
    except ValueError:  # a user's own object: its class must do
        return type(value).__name__
