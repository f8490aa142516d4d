"""Table 5 of the paper: seconds to find all pinned maximisers of Algorithm 2, along a training run.

An iteration draws an example and its noise, and needs y_A and, for every site d whose label is known, the best
labelling with y_d pinned to it. Steps of a real run are timed at their real weights and noise, each in all the ways
of `pin_ways`. The ways take turns at being first, and each runs on other pins and makes its potentials anew before
the clock starts, so that caches are as they would be in a run of its own. Features times weights and noise are not
timed.

The sums.   All of the first 100 iterations are timed, and evenly spaced ones of every decade thereafter: the mean of
            a decade times its length. Ten times the run is extrapolated, at the rate of the last decade.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from perturbmap.experiments.horses.pin_ways import Pins, Timing, Way, all_ways
from perturbmap.potentials import Floats
from perturbmap.solvers import DoubleSGD, Problem, State
from perturbmap.solvers.passes import Passes
from perturbmap.support.progress import Progress

#: Seconds for 100, 1,000, ..., 1,000,000 iterations on HorseSeg "small".
PAPER: dict[str, list[float]] = {
    "basic": [0.9, 9.2, 89.5, 900, 8993],
    "dynamic": [0.7, 6.9, 69.0, 696, 7171],
    "reduction": [0.3, 2.1, 15.5, 133.4, 1186],
    "both": [0.2, 1.5, 10.9, 83.5, 727],
}


def time_pins(
    problem: Problem,
    solver: DoubleSGD,
    n_iter: int = 100_000,
    n_samples: int = 2000,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs the solver for ``n_iter`` steps of one example and times the pins of about ``n_samples`` of them.

    The entry of the results: a column for every power of ten up to ``n_iter`` and for ten times as many, which is
    extrapolated; for every row of the table the ``seconds`` of each column and their standard errors; by decade, the
    mean number of unsatisfied pins, of the sites that one of them flips, and microseconds per iteration; the median
    of these over the last tenth of the run, at the learned weights; and how many times "both" is faster than "basic".
    """
    if solver.batch_size != 1:
        raise ValueError(
            f"solver must take one example per step, batch_size=1, but its batch_size is {solver.batch_size}."
        )
    progress = Progress() if progress is None else progress
    problem = replace(problem, structure=problem.structure.with_threads(1))
    ways, passes = all_ways(), Passes(problem)
    columns = [*(10**k for k in range(2, 10) if 10**k < n_iter), n_iter]
    iterations = _sampled(columns, n_samples)
    due = set(iterations.tolist())
    timings: list[list[float]] = []
    sizes: list[tuple[int, int]] = []

    def look(state: State) -> bool:
        h = state.iteration + 1
        if h in due:
            before, now = (partial(Pins.of_step, problem, passes, state.w, max(1, step)) for step in (h - 1, h))
            timings.append(_time_all(ways, len(timings), before, now))
            sizes.append(_count(now()))
            progress.advance(h / n_iter)
        return False

    with threadpool_limits(1):
        state = solver.start(problem)
        look(state)
        solver.run(problem, state, look, n_iter)
    return _summary(list(ways), columns, iterations, np.array(timings), np.array(sizes, dtype=np.float64))


def _sampled(columns: list[int], n_samples: int) -> NDArray[np.intp]:
    """All of the first iterations, then as many of each decade, evenly spaced."""
    parts = [np.arange(1, columns[0] + 1)]
    each = max(2, (n_samples - columns[0]) // max(1, len(columns) - 1))
    for first, last in itertools.pairwise(columns):
        n = min(each, last - first)
        parts.append(first + 1 + ((np.arange(n) + 0.5) * (last - first) / n).astype(np.intp))
    return np.concatenate(parts)


def _time_all(ways: dict[str, Way], turn: int, before: Callable[[], Pins], now: Callable[[], Pins]) -> list[float]:
    """Seconds of every way, in the order of ``ways``; the first to run changes from turn to turn."""
    names = list(ways)
    shift = turn % len(names)
    timings: dict[str, Timing] = {}
    for name in names[shift:] + names[:shift]:
        ways[name](before())
        timings[name] = ways[name](now())
    for name, (_, values) in timings.items():
        if not np.allclose(values, timings["basic"][1], rtol=0, atol=1e-9):
            raise RuntimeError(f"{name} and basic must find the same maxima, but differ at a pin.")
    return [timings[name][0] for name in names]


def _count(p: Pins) -> tuple[int, int]:
    """The number of unsatisfied pins, and of sites flipped by them."""
    free = p.structure.argmax(p.f)
    wrong = p.unsatisfied(free)
    if wrong.size == 0:
        return 0, 0
    return len(wrong), int((p.structure.argmax(p.f.with_unary(p.unary(wrong))) != free).sum())


def _summary(
    names: list[str], columns: list[int], iterations: NDArray[np.intp], timings: Floats, sizes: Floats
) -> dict[str, Any]:
    """See `time_pins`; ``timings`` is (n_samples, n_ways), ``sizes`` (n_samples, 2)."""
    total, variance = np.zeros(len(names)), np.zeros(len(names))
    seconds, errors, decades = [], [], []
    for first, last in zip([0, *columns[:-1]], columns, strict=True):
        is_in = (iterations > first) & (iterations <= last)
        part, n, length = timings[is_in], int(is_in.sum()), last - first
        rate = part.mean(axis=0)
        # Of a decade that was timed throughout, nothing is left to chance.
        rate_variance = part.var(axis=0, ddof=1) / n * (1 - n / length) if n > 1 else np.zeros(len(names))
        total, variance = total + length * rate, variance + length**2 * rate_variance
        seconds.append(total)
        errors.append(np.sqrt(variance))
        n_wrong, n_flipped = sizes[is_in].sum(axis=0)
        decades.append(
            {
                "last": last,
                "n_timed": n,
                "unsatisfied": float(n_wrong / n),
                "flipped": float(n_flipped / max(1.0, n_wrong)),
                "microseconds": dict(zip(names, (1e6 * rate).tolist(), strict=True)),
            }
        )
    more = 9 * columns[-1]
    seconds.append(total + more * rate)
    errors.append(np.sqrt(variance + (more**2 + 2 * more * length) * rate_variance))
    by_name = dict(zip(names, np.array(seconds).T.tolist(), strict=True))
    return {
        "iterations": [*columns, 10 * columns[-1]],
        "is_extrapolated": [*(False for _ in columns), True],
        "seconds": by_name,
        "standard_errors": dict(zip(names, np.array(errors).T.tolist(), strict=True)),
        "decades": decades,
        "microseconds_at_end": dict(
            zip(names, (1e6 * np.median(timings[iterations > 0.9 * columns[-1]], axis=0)).tolist(), strict=True)
        ),
        "ratio": by_name["basic"][-2] / max(1e-9, by_name["both"][-2]),
    }
