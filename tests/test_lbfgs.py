"""L-BFGS under a growing number of draws: its average, its end, what it ends at, and that it can be shared out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.solvers.climb import LBFGSState
from perturbmap.solvers.everything import Everything
from perturbmap.solvers.problem import FRESH

from .stored import cutter
from .test_estimator import words
from .test_steps import fresh_objective, problem_of


def blobs(n: int) -> tuple[list[pm.Example], list[np.ndarray]]:
    """Grids of which one side is foreground, seen through noise: neighbours matter, and so do perturbations."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(n):
        labels = np.tile(np.arange(6) >= rng.integers(1, 6), 5).astype(int)
        features = labels[:, None] + rng.normal(0, 1, (30, 4))
        X.append(pm.Example(features, pm.grid_edges(5, 6), sizes=rng.uniform(1, 4, 30)))
        y.append(labels)
    return X, y


def stored_blobs(folder: Path, n: int) -> pm.Store:
    """The same in three shards."""
    pm.write_store(folder, *blobs(n), classes=[0, 1], shard_bytes=30 * 4 * 8 * n // 3)
    return pm.Store(folder)


def graph_problem(n: int, **parameters: Any) -> pm.solvers.Problem:
    loss = pm.MarginalLogLikelihood(pm.BalancedHamming())
    return problem_of(*blobs(n), model=pm.GraphModel(), structure=pm.BinaryGraph(), objective=loss, **parameters)


def test_draws_are_averaged_between_two_products() -> None:
    """Value and gradient of several draws are the means of those of each; the features are multiplied once."""
    problem = graph_problem(7)
    w = problem.project(np.random.default_rng(0).normal(size=problem.n_weights))
    each = [problem.value_and_grad(w, draw=draw) for draw in range(3, 8)]
    value, gradient = problem.value_and_grad(w, draw=3, n_draws=5)
    assert value == pytest.approx(np.mean([v for v, _ in each]), rel=1e-12)
    np.testing.assert_allclose(gradient, np.mean([g for _, g in each], axis=0), rtol=1e-9, atol=1e-12)
    assert len({v for v, _ in each}) == 5


def test_it_ends_at_the_optimum_of_fresh_noise() -> None:
    """As far up as stochastic steps come in many times the time; weights that must not be negative are not."""
    problem = graph_problem(20, l2=0.01)
    solver, other = pm.LBFGS(), pm.DoubleSGD(min_steps=3000)
    state = solver.run(problem, solver.start(problem))
    found, long = (fresh_objective(problem, w) for w in (state.w, other.run(problem, other.start(problem)).average))
    assert found > long - 0.01 * abs(long)
    assert (state.w[problem.nonnegative] >= 0).all()
    assert state.gap <= 0.005 * abs(state.fresh) or state.n_draws == solver.max_draws


def test_more_draws_where_the_draws_are_fitted() -> None:
    """What was learned from four draws is better under these than what it goes on to find, and worse under others."""
    problem = graph_problem(10, l2=1e-3)
    four, more = pm.LBFGS(max_draws=4), pm.LBFGS()
    few, many = four.run(problem, four.start(problem)), more.run(problem, more.start(problem))
    assert few.n_draws == 4 < many.n_draws
    on_its_draws, on_fresh_ones = (
        [problem.objective_at(state.w, draw, n_draws) for state in (few, many)]
        for draw, n_draws in ((0, 4), (2 * FRESH, 400))
    )
    assert on_its_draws[0] > on_its_draws[1]
    assert on_fresh_ones[0] < on_fresh_ones[1]


def test_the_history_has_the_objective_of_fresh_noise() -> None:
    """Beside that of the draws, their number, and in the end what doubling them has gained."""
    est = cutter(solver=pm.LBFGS()).fit(*blobs(12))
    last = est.history_[-1]
    assert {"objective", "objective_of_draws", "n_draws", "gap"} <= last.keys()
    assert all(np.isfinite(entry["objective"]) for entry in est.history_)
    objective = est.problem(*blobs(12)).objective_at(est.coef_, FRESH, last["n_draws"])
    assert last["objective"] == pytest.approx(objective, rel=1e-9)
    with pytest.warns(match="LBFGS ended after 3 iterations, before it could tell"):
        short = cutter(solver=pm.LBFGS(max_iter=3)).fit(*blobs(12))
    assert np.isfinite(short.history_[-1]["objective"])


def test_no_point_is_evaluated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the first, for which SciPy asks again; but for those of fresh noise, and of more draws."""
    seen: list[tuple[bytes, int, int]] = []
    evaluate = Everything.value_and_grad

    def count(self: Everything, w: Any, draw: int = 0, n_draws: int = 1) -> Any:
        seen.append((w.tobytes(), draw, n_draws))
        return evaluate(self, w, draw, n_draws)

    monkeypatch.setattr(Everything, "value_and_grad", count)
    for est in (cutter(solver=pm.LBFGS()), pm.StructuredPredictor(objective=pm.ExactLogLikelihood())):
        seen.clear()
        est.fit(*(blobs(12) if est.model is not None else words(12)))
        learned_from = [key for key in seen if key[1] < FRESH]
        assert len(set(learned_from)) == len(learned_from) > 10


def test_neither_threads_nor_jobs_change_a_bit(tmp_path: Path) -> None:
    """On a store shard by shard: in this process on one thread or two, or in two others. More sites than a block."""
    store = stored_blobs(tmp_path / "store", 300)
    found = []
    for threads, n_jobs in ((1, None), (2, None), (None, 2)):
        est = cutter(solver=pm.LBFGS(1e-4, max_iter=12), n_jobs=n_jobs).set_params(structure=pm.BinaryGraph(threads))
        with pytest.warns(match="LBFGS ended after 12 iterations"):
            found.append(est.fit(store, store.y).coef_)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_labels_that_are_not_the_stores_travel_to_its_workers(tmp_path: Path) -> None:
    """Algorithm 3 on a store, both phases, with jobs and without."""
    store = stored_blobs(tmp_path / "store", 12)
    partly = [None if n % 3 == 0 else labels for n, labels in enumerate(store.y)]
    found = []
    for n_jobs in (None, 2):
        est = cutter(solver=pm.LBFGS(0.05), n_jobs=n_jobs).fit(store, partly)
        assert {entry["phase"] for entry in est.history_} == {1, 2}
        found.append(est.coef_)
    np.testing.assert_array_equal(found[0], found[1])


def test_a_killed_fit_goes_on_under_as_many_draws(tmp_path: Path) -> None:
    """It is taken up where it was, after the draws were doubled, and ends at the same optimum."""
    X, y = blobs(8)
    est, path = cutter(solver=pm.LBFGS(0.002), l2=0.01), tmp_path / "fit.pm"
    whole = est.fit(X, y)

    def kill(info: dict[str, Any]) -> None:
        if info["n_draws"] >= 8:
            raise MemoryError

    with pytest.raises(MemoryError):
        cutter(solver=pm.LBFGS(0.002), l2=0.01).fit(X, y, checkpoint=path, checkpoint_seconds=0, callback=kill)
    first: list[dict[str, Any]] = []
    again = cutter(solver=pm.LBFGS(0.002), l2=0.01).fit(X, y, checkpoint=path, callback=first.append)
    assert first[0]["n_draws"] >= 8
    problem = whole.problem(X, y)
    ends = [fresh_objective(problem, each.coef_) for each in (whole, again)]
    assert ends[0] == pytest.approx(ends[1], rel=0.01)


def test_a_path_begins_where_the_one_before_ended() -> None:
    """With fewer iterations than alone, to the same objective."""
    X, y = blobs(12)
    est = cutter(solver=pm.LBFGS())
    path = pm.regularisation_path(est, X, y, [0.03, 0.1])
    alone = cutter(solver=pm.LBFGS(), l2=0.03).fit(X, y)
    assert path[0].n_iter_ < alone.n_iter_
    problem = alone.problem(X, y)
    assert fresh_objective(problem, path[0].coef_) == pytest.approx(fresh_objective(problem, alone.coef_), rel=0.02)


def test_few_examples_are_learned_from_by_lbfgs_by_default() -> None:
    """Fewer than 32, where the noise is integrated; partial_fit, which comes in parts, takes steps."""
    few, many = pm.StructuredPredictor(random_state=0), pm.StructuredPredictor(random_state=0)
    few.fit(*words(31))
    many.fit(*words(32))
    assert "n_draws" in few.history_[-1]
    assert "n_draws" not in many.history_[-1]
    papers = pm.StructuredPredictor(objective=pm.MarginalLogLikelihood(integrate_noise=False))
    assert isinstance(papers.solver_for(5), pm.DoubleSGD)
    assert isinstance(pm.StructuredPredictor(objective=pm.LogLikelihood()).solver_for(5), pm.DoubleSGD)
    before, problem = few.coef_, few.problem(*words(31))
    few.partial_fit(*words(31))
    assert not np.array_equal(few.coef_, before)
    ends = [problem.objective_at(w, FRESH, 20) for w in (before, few.coef_)]
    assert ends[1] > ends[0] - 0.02 * abs(ends[0])  # not thrown off by the first steps of a schedule


@pytest.mark.parametrize(("parameters", "match"), [({"n_draws": 0}, "n_draws"), ({"max_draws": 3}, "max_draws must")])
def test_what_makes_no_sense_is_refused(parameters: dict[str, int], match: str) -> None:
    """By the name of the parameter."""
    with pytest.raises(ValueError, match=match):
        cutter(solver=pm.LBFGS(**parameters)).fit(*blobs(3))


def test_a_state_keeps_its_draws_in_a_file() -> None:
    """Their number, and the weights when it was doubled."""
    problem = graph_problem(4)
    state = LBFGSState(np.ones(2), np.ones(2), 7, n_draws=16, before=np.zeros(2))
    again = pm.LBFGS().restore(problem, state.arrays(), 7)
    assert (again.n_draws, again.iteration) == (16, 7)
    np.testing.assert_array_equal(again.before, np.zeros(2))
