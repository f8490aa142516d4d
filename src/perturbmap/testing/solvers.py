"""The check of solvers: what they reach, how they stop, and how they are taken up again."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from perturbmap.models import GraphModel
from perturbmap.objectives import ExactLogLikelihood, MarginalLogLikelihood, StructuredHinge
from perturbmap.potentials import Floats
from perturbmap.solvers import BCFW, LBFGS, Problem, Solver, State
from perturbmap.testing.failure import Trial, describe
from perturbmap.testing.parts import check_part
from perturbmap.testing.problems import small_problem

# Examples of the problems that are tried, the smallest first.
_N_EXAMPLES = (2, 12)
# Draws of noise that the objective is averaged over, where it has noise; the same before and after.
_N_DRAWS = 20


def check_solver(
    solver: Solver[Any],
    problems: Sequence[Problem] | None = None,
    *,
    tolerance: float | None = None,
    resumes_exactly: bool = True,
) -> None:
    """Checks that a solver improves the objective, obeys signs, stops when told to, and goes on where it stopped.

    `ConformanceError` says what is wrong.

    solver : the `Solver` to check
    problems : `Problem`s that it can solve; by default those of `small_problem` that its ``check`` accepts, exact,
        perturbed and with a hinge, with weights that must not be negative and without
    tolerance : how far, as a part of its value, the objective may end below its maximum, which `LBFGS` or `BCFW`
        finds; by default it must only end above its start
    resumes_exactly : whether a run that is stopped and restored ends with the same bits; if not, with nearly the same
        objective

    >>> pm.testing.check_solver(pm.DoubleSGD(n_passes=5))
    """
    check_part(solver, Solver)
    chosen = _accepted(solver) if problems is None else problems
    for problem in chosen:
        _check_on(solver, problem, tolerance, resumes_exactly)


def _check_on(solver: Solver[Any], problem: Problem, tolerance: float | None, resumes_exactly: bool) -> None:
    with Trial(solver, lambda: _describe(problem)) as trial, warnings.catch_warnings():
        # That a solver did not come to its end is what some of these runs are about.
        warnings.simplefilter("ignore", UserWarning)
        solver.check(problem)
        _check_start(trial, solver, problem)
        end = _check_run(trial, solver, problem)
        _check_result(trial, solver, problem, end, tolerance)
        _check_stopping(trial, solver, problem, end)
        _check_resuming(trial, solver, problem, end, resumes_exactly)
        _check_going_on(trial, solver, problem, end)


def _accepted(solver: Solver[Any]) -> list[Problem]:
    objectives = (ExactLogLikelihood(), MarginalLogLikelihood(), StructuredHinge())
    tried = itertools.product(_N_EXAMPLES, objectives, (None, GraphModel()))
    found, reasons = [], []
    for problem in [small_problem(objective, model, n_examples=n) for n, objective, model in tried]:
        try:
            solver.check(problem)
        except (TypeError, ValueError) as error:
            reasons.append(str(error))
        else:
            found.append(problem)
    if not found:
        raise ValueError(f"{solver!r} accepts no small problem of ours: pass problems=[...]. It says: {reasons[0]}")
    return found


def _describe(problem: Problem) -> str:
    return describe(
        model=problem.model,
        structure=problem.structure,
        objective=problem.objective,
        l2=problem.l2,
        seed=problem.seed,
        n_examples=len(problem.data),
        n_weights=problem.n_weights,
        features=problem.data.features @ np.eye(problem.data.n_features),
        labels=problem.targets.labels,
        site_offsets=problem.data.layout.site_offsets,
    )


def _objective(problem: Problem, w: Floats) -> float:
    """The penalised objective at w, under the same noise whenever it is asked."""
    draws = range(10**6, 10**6 + _N_DRAWS) if problem.objective.is_perturbed else [0]
    values = [problem.value_and_grad(w, draw=draw)[0] for draw in draws]
    return float(np.mean(values)) - 0.5 * problem.l2 * float(w @ w)


def _check_start(trial: Trial, solver: Solver[Any], problem: Problem) -> None:
    w = problem.project(np.random.default_rng(0).normal(size=problem.n_weights))
    kept = w.copy()
    for state in (solver.start(problem), solver.start(problem, w)):
        trial.holds("`start` returns a State", isinstance(state, State), f"found: {state!r}")
        trial.equal("a state has all weights", state.w.shape, (problem.n_weights,))
        trial.equal("a state has the weights to use", state.average.shape, (problem.n_weights,))
        trial.equal("a state begins before the first step", state.iteration, 0)
        solver.run(problem, state, n_iter=2)
    trial.equal("the weights that a run starts from are left as they are", w, kept)
    n = solver.n_iter(len(problem.data))
    trial.holds("`n_iter` is a positive integer", isinstance(n, int) and n >= 1, f"found: {n!r}")
    size = solver.examples_per_step(len(problem.data))
    trial.holds("`examples_per_step` is a positive integer", isinstance(size, int) and size >= 1, f"found: {size!r}")


def _check_run(trial: Trial, solver: Solver[Any], problem: Problem) -> State:
    seen: list[int] = []

    def look(state: State) -> bool:
        seen.append(state.iteration)
        return False

    end: State = solver.run(problem, solver.start(problem), look)
    n_iter = solver.n_iter(len(problem.data))
    trial.holds(
        "a run takes `n_iter` steps at most", end.iteration <= n_iter, f"n_iter: {n_iter}\ntook:   {end.iteration}"
    )
    trial.equal("`on_step` is called after every step", seen, list(range(1, end.iteration + 1)))
    again = solver.run(problem, solver.start(problem))
    trial.equal("the same problem and seed give the same weights, bit by bit: w", again.w, end.w)
    trial.equal("the same problem and seed give the same weights, bit by bit: average", again.average, end.average)
    told = solver.progress(problem, end)
    trial.holds(
        "`progress` returns numbers by name",
        isinstance(told, dict) and all(isinstance(v, (int, float, np.number)) for v in told.values()),
        f"found: {told!r}",
    )
    return end


def _check_result(trial: Trial, solver: Solver[Any], problem: Problem, end: State, tolerance: float | None) -> None:
    trial.holds("the weights are finite", np.isfinite(end.average), f"found: {end.average.tolist()}")
    signed = end.average[problem.nonnegative]
    trial.holds("weights that must not be negative are not", signed >= 0, f"found: {signed.tolist()}")
    begin, value = _objective(problem, solver.start(problem).average), _objective(problem, end.average)
    trial.holds(
        "a run ends with a higher objective than it begins with", value > begin, f"begins: {begin}\nends:   {value}"
    )
    if tolerance is not None:
        best = _objective(problem, _best(problem))
        trial.holds(
            f"a run ends within {tolerance:g} of the maximum",
            value >= best - tolerance * abs(best),
            f"maximum: {best}\nends:    {value}",
        )


def _best(problem: Problem) -> Floats:
    solvers: tuple[Solver[Any], ...] = (LBFGS(1e-8), BCFW(1e-3))
    for certified in solvers:
        try:
            certified.check(problem)
        except ValueError:
            continue
        best: State = certified.run(problem, certified.start(problem))
        return best.average
    raise ValueError(
        f"tolerance needs a problem whose maximum is known: {problem.objective!r} is solved by no other solver."
    )


def _check_stopping(trial: Trial, solver: Solver[Any], problem: Problem, end: State) -> None:
    half = max(1, end.iteration // 2)
    stopped = solver.run(problem, solver.start(problem), lambda state: bool(state.iteration == half))
    trial.equal("a run stops when `on_step` returns True", stopped.iteration, half)
    short = solver.run(problem, solver.start(problem), n_iter=half)
    trial.equal("a run stops at step `n_iter` where it is told so", short.iteration, half)


def _check_resuming(trial: Trial, solver: Solver[Any], problem: Problem, end: State, resumes_exactly: bool) -> None:
    half = max(1, end.iteration // 2)
    kept: dict[str, Any] = {}
    before: dict[str, Floats] = {}

    def keep(state: State) -> bool:
        kept.update({name: np.array(array) for name, array in state.arrays().items()})
        before.update(w=state.w.copy(), average=state.average.copy())
        return bool(state.iteration == half)

    solver.run(problem, solver.start(problem), keep)
    state = solver.restore(problem, {name: array.copy() for name, array in kept.items()}, half)
    trial.equal("`restore` brings back the iteration", state.iteration, half)
    trial.equal("`restore` brings back w", state.w, before["w"])
    trial.equal("`restore` brings back the average", state.average, before["average"])
    for name, array in state.arrays().items():
        trial.equal(f"a restored state has the arrays that it was restored from: {name}", array, kept[name])
    resumed = solver.run(problem, state)
    if resumes_exactly:
        how = "a run that is stopped and restored ends with the bits of one that is not"
        trial.equal(f"{how}: iteration", resumed.iteration, end.iteration)
        trial.equal(f"{how}: w", resumed.w, end.w)
        trial.equal(f"{how}: average", resumed.average, end.average)
    else:
        one, other = _objective(problem, resumed.average), _objective(problem, end.average)
        trial.close("a run that is stopped and restored ends at nearly the same objective", one, other, 1e-3, 1e-9)


def _check_going_on(trial: Trial, solver: Solver[Any], problem: Problem, end: State) -> None:
    """From the end of one solve to the next: with another l2, and with more steps."""
    other = replace(problem, l2=2 * problem.l2)
    warm = solver.warm(other, end)
    trial.equal("a state for another l2 has all weights", warm.w.shape, (problem.n_weights,))
    solver.run(other, warm, n_iter=warm.iteration + 2)
    if solver.is_incremental:
        reached = end.iteration
        more = solver.run(problem, end, n_iter=reached + 2)
        trial.equal("an incremental solver goes on from where it ended", more.iteration, reached + 2)
