"""How long solvers take to one objective, on noise that none of them has seen: adaptive steps, plain ones, L-BFGS.

The horses are no part of the package: ``HORSES=folder make bench ONLY=solver`` names the folder of ``perturbmap
reproduce horses``, and keeps its features in ``build/horses``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Benchmark, Line, MissingError
from benchmarks.learning import LETTERS, make_problem, ocr_fold_0
from perturbmap import LBFGS, Chain, DoubleSGD, MarginalLogLikelihood, PlainStep, SequenceModel
from perturbmap.noise import Domain, Purpose
from perturbmap.solvers import Problem, Solver


def run(problem: Problem, solver: Solver[Any]) -> tuple[float, float]:
    """CPU seconds, and the objective under twenty draws of noise that was not learned from."""
    start = time.process_time()
    w = solver.run(problem, solver.start(problem)).average
    seconds = time.process_time() - start
    unseen = replace(problem, domain=Domain(Purpose.TRAINING, 4095))
    objective = unseen.objective_at(w, n_draws=20)
    print(f"  {solver!r}: {objective:.4f} in {seconds:.1f} s", flush=True)
    return seconds, objective


def first_to(problem: Problem, solvers: Sequence[DoubleSGD], target: float) -> tuple[float, DoubleSGD] | None:
    """The first solver that reaches the target, and its seconds."""
    for solver in solvers:
        seconds, objective = run(problem, solver)
        if objective >= target:
            return seconds, solver
    return None


def handwriting() -> Iterator[Line]:
    """626 words, l2 = 1e-4: the objectives that adaptive steps reach."""
    problem = make_problem(*ocr_fold_0()[:2], LETTERS, SequenceModel(), Chain(1), MarginalLogLikelihood(), 1e-4)
    run(problem, DoubleSGD(1))  # what is set up once
    for n_passes in (20, 60, 120):
        ours, reached = run(problem, DoubleSGD(n_passes))
        # Steps of 2 take longer to the same objectives, and steps of 4 are thrown off.
        plain = [DoubleSGD(round(n_passes * 1.1**i), step=PlainStep(3.0)) for i in range(5, 14)]
        theirs = first_to(problem, plain, reached)
        ratio = theirs[0] / ours if theirs else float("inf")
        what = f"OCR fold 0, DoubleSGD({n_passes}): time to its objective, {reached:.3f}, {ours:.1f} s"
        yield Line(what, repr(theirs[1]) if theirs else "PlainStep(3.0), not reached", ratio, 2)


def horses() -> Iterator[Line]:
    """147 images, weighted, l2 = 3e-3: within 0.001 of the best objective that is known, that of a long L-BFGS."""
    folder = os.environ.get("HORSES")
    if folder is None:
        raise MissingError("HORSES=folder must name the horses (perturbmap prepare-voc)")
    from perturbmap.experiments.horses.data import load_horses
    from perturbmap.experiments.horses.learning import make_problem as make_horse_problem
    from perturbmap.experiments.horses.plan import Task
    from perturbmap.support.progress import Progress

    images = load_horses(Path(folder), Path("build/horses"), weak=(), n_jobs=1, progress=Progress())
    task = Task("small", "weighted", 0, ((3e-3, 0.0),))
    problem, _ = make_horse_problem(images, task, images.parts["small"], 3e-3, seed=0)
    _, best = run(problem, LBFGS(0.002))
    target = best - 1e-3
    ours = first_to(problem, [DoubleSGD(n) for n in (60, 80, 107, 143, 190, 253, 338)], target)
    plain = first_to(problem, [DoubleSGD(n, 1, PlainStep(0.1)) for n in (360, 480, 640, 853, 1137, 1516)], target)
    if ours is None:
        yield Line(f"horses, to an objective of {target:.4f}: not reached by DoubleSGD", "PlainStep(0.1)", 0.0, 5)
        return
    what = f"horses, time to an objective of {target:.4f} (best known: {best:.4f}), {ours[0]:.1f} s by {ours[1]!r}"
    peer = "PlainStep(0.1), batches of one"
    ratio = plain[0] / ours[0] if plain else float("inf")
    yield Line(what, f"{peer}, {plain[1].n_passes} passes" if plain else f"{peer}, not reached", ratio, 5)


BENCHMARKS = [Benchmark("solver handwriting", handwriting), Benchmark("solver horses", horses)]
