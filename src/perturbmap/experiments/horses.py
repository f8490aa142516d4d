"""Tables 3 and 4 of the paper: horses cut out of images, learned from masks, from boxes and from images with neither.

Columns.    "small" has the masks of all images, "14" those of a tenth, drawn five times. They are joined by the
            medium images, with their boxes or without, and by those of which nothing is known; and 5, 30, 70 masks.
Loss.       The area missed of the horse and of the background, balanced, over superpixels; also over pixels, and
            the plain share of mistakes.
Decodings.  Every model is read in two ways: by its best labelling, and by the labelling of least expected loss under
            its pinned marginals (docs/decisions.md, 25).
Choices.    l2, and then kappa, the weight of what is not labelled, by cross-validation inside the labelled images, by
            least held-out loss: once a method, decoding and column, over all draws together. For 5 masks as for 14;
            for 30 and 70, l2 between those of 14 and of all.
Labels.     The structured SVM and perturb&MAP complete the labels that are missing by the best labelling, the
            marginal likelihoods by marginals, as in the paper.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from perturbmap.annotations import UNKNOWN, Annotations
from perturbmap.decoding import Decoding
from perturbmap.experiments.horse_data import Horses, judge
from perturbmap.experiments.pin_timing import time_pins
from perturbmap.experiments.progress import Progress
from perturbmap.experiments.results import Results
from perturbmap.inference import decode, marginals
from perturbmap.models import GraphModel
from perturbmap.objectives import LogLikelihood, MarginalLogLikelihood, Objective, StructuredHinge, Targets
from perturbmap.potentials import Floats, Labels
from perturbmap.semi_supervised import complete, known_mass, mixture
from perturbmap.solvers import BCFW, DoubleSGD, PolynomialAveraging, Problem, State
from perturbmap.structures import BinaryGraph
from perturbmap.task_losses import BalancedHamming, Hamming
from perturbmap.task_losses.base import one_hot
from perturbmap.tilt import untilt

Images = NDArray[np.intp]

LOSS = BalancedHamming()
#: The loss that is chosen by and that the tables show.
MAIN_LOSS = "balanced superpixels"
DECODINGS = (Decoding.MAP, Decoding.LOSS_AWARE)


@dataclass(frozen=True)
class Method:
    """A row of the tables: what is learned, from which l2 to choose, and by which first step.

    scale : of the scores, before marginals are taken. Those of a likelihood have the scale of the noise; those of a
        hinge have that of its loss, which is 1 an image however many superpixels it has (docs/decisions.md, 27).
    """

    name: str
    objective: Objective
    l2s: tuple[float, ...]
    quick_l2: float
    first_step: float = 0.1
    scale: float = 1.0


_PLAIN_L2S = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

METHODS: dict[str, Method] = {
    "ssvm": Method("structured SVM", StructuredHinge(LOSS), (0.1, 1.0, 10.0, 100.0, 1e3, 1e4), 100.0, scale=300.0),
    "perturb-map": Method("perturb&MAP", LogLikelihood(), _PLAIN_L2S, 0.1, 0.01),
    "marginal": Method("marginal perturb&MAP", MarginalLogLikelihood(Hamming()), _PLAIN_L2S, 0.1, 0.01),
    "weighted": Method(
        "weighted marginal perturb&MAP", MarginalLogLikelihood(LOSS), (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1), 1e-2
    ),
}


@dataclass(frozen=True)
class Column:
    """What there is to learn from: so many masks (None: all), and parts with boxes or with nothing."""

    name: str
    n_masks: int | None
    weak: tuple[str, ...] = ()
    boxed: bool = True
    base: str = ""  # the column without them
    paper: dict[str, float] = field(default_factory=dict)


COLUMNS: dict[str, Column] = {
    "small": Column("small", None, paper={"ssvm": 12.3, "perturb-map": 20.9, "weighted": 11.6}),
    "small+boxes": Column(
        "+ medium, boxes",
        None,
        ("medium",),
        base="small",
        paper={"ssvm": 10.9, "perturb-map": 21.0, "weighted": 10.9},
    ),
    "small+all": Column(
        "+ large, nothing",
        None,
        ("medium", "unlabelled"),
        base="small",
        paper={"ssvm": 10.9, "perturb-map": 20.9, "weighted": 10.9},
    ),
    "14": Column("10 % of small", 14, paper={"ssvm": 17.3, "perturb-map": 23.2, "weighted": 18.1}),
    "14+boxes": Column(
        "+ medium, boxes",
        14,
        ("medium",),
        base="14",
        paper={"ssvm": 14.0, "perturb-map": 23.4, "weighted": 13.7},
    ),
    "14+nothing": Column(
        "+ medium, nothing",
        14,
        ("medium",),
        boxed=False,
        base="14",
        paper={"ssvm": 16.1, "perturb-map": 23.0, "weighted": 14.4},
    ),
    "5": Column("5 images", 5),
    "30": Column("30 images", 30),
    "70": Column("70 images", 70),
}
KAPPAS = (1.0, 3.0, 10.0)
#: The columns in which l2 is searched for: the fewest masks, and all.
SEARCHED = ("14", "small")
N_SMALL = 147


@dataclass(frozen=True)
class Effort:
    """How much is done.

    n_steps, n_passes : of a fit, at least; passes over the images with masks. Weak labels are learned from with as
        many again.
    n_timed : steps of the run whose pins are timed
    """

    n_steps: int = 8_000
    n_passes: int = 100
    n_draws: int = 5
    n_folds: int = 3
    n_perturbations: int = 50
    n_timed: int = 100_000


QUICK_COLUMNS = ("small", "14", "14+boxes", "14+nothing")
QUICK = Effort(3_000, 20, 1, 0, 20, 3_000)


@dataclass(frozen=True)
class Task:
    """Models of one method in one column on one draw of the masks: one for each choice of (l2, kappa)."""

    column: str
    method: str
    draw: int
    choices: tuple[tuple[float, float], ...]
    is_held_out: bool = False

    def key(self, l2: float, kappa: float) -> str:
        """The name of one among the results."""
        held_out = "held out/" if self.is_held_out else ""
        weight = f"/kappa {kappa:g}" if kappa else ""
        return f"{held_out}{self.column}/{self.method}/draw {self.draw}/l2 {l2:g}{weight}"


# One model.


def masked_images(horses: Horses, n_masks: int | None, draw: int, seed: int) -> Images:
    """The images of small whose masks may be looked at; smaller draws are parts of larger ones."""
    small = horses.parts["small"]
    if n_masks is None:
        return small
    return np.sort(np.random.default_rng([seed, draw]).permutation(small)[:n_masks])


def learn(
    horses: Horses, task: Task, masked: Images, effort: Effort, seed: int, watch: Watch | None = None
) -> Iterator[tuple[float, float, Floats, Floats]]:
    """For each choice, l2 and kappa, the weights, and the mass of the labels that these masks show.

    ``watch`` looks on while masks alone are learned from.
    """
    column, method = COLUMNS[task.column], METHODS[task.method]
    for l2 in dict.fromkeys(l2 for l2, _ in task.choices):
        problem, notes = _problem(horses, task, masked, l2, seed)
        mass = known_mass(problem, notes)
        n_steps = max(effort.n_steps, effort.n_passes * len(masked))
        first = _solve(problem.part(np.flatnonzero(notes.is_complete)), method, n_steps, watch=watch)
        q = _guess(problem, notes, first, effort) if column.weak else notes.q
        for kappa in (kappa for other, kappa in task.choices if other == l2):
            if column.weak:  # Algorithm 3, from the weights of the masks alone
                joined = replace(problem, targets=mixture(problem, notes, q, kappa))
                yield l2, kappa, _solve(joined, method, n_steps, first), mass
            else:
                yield l2, kappa, first, mass


def _problem(horses: Horses, task: Task, masked: Images, l2: float, seed: int) -> tuple[Problem, Annotations]:
    """All images of the column, and what is known of them."""
    column, objective = COLUMNS[task.column], METHODS[task.method].objective
    images = np.concatenate([masked, *(horses.parts[part] for part in column.weak)])
    data = horses.data.take(images)
    is_masked = np.arange(len(images)) < len(masked)
    labels = horses.taught[horses.sites(images)]
    if not column.boxed:
        labels = np.where(np.repeat(is_masked, data.site_counts), labels, np.int32(UNKNOWN))
    notes = Annotations(labels, one_hot(labels, 2), is_masked)
    c = objective.label_weights(notes.q, data.sizes, data.site_offsets)
    targets = Targets(labels, c, is_masked, np.ones(len(data)))
    return Problem(data, targets, 2, GraphModel(), BinaryGraph(1), objective, l2, seed), notes


def _guess(problem: Problem, notes: Annotations, w: Floats, effort: Effort) -> Floats:
    """What is learned from where no mask is: the best labelling, or marginals."""
    hard = not problem.objective.takes_soft_labels
    return complete(problem, notes, w, hard=hard, calibration=None, n_perturbations=effort.n_perturbations)


def _solve(
    problem: Problem, method: Method, n_steps: int, first: Floats | None = None, watch: Watch | None = None
) -> Floats:
    n_passes = n_steps / len(problem.data)
    if isinstance(method.objective, StructuredHinge):
        frank_wolfe = BCFW(0.01, n_passes, averaging=PolynomialAveraging(1))
        return frank_wolfe.run(problem, frank_wolfe.start(problem), watch).average
    sgd = DoubleSGD(n_passes, batch_size=1, first_step=method.first_step)
    return sgd.run(problem, sgd.start(problem, first), watch).average


class Watch:
    """The test loss of the best labelling along a fit, against steps and seconds; looking takes no time."""

    def __init__(self, horses: Horses) -> None:
        self._horses, self._data = horses, horses.data.take(horses.parts["test"])
        self._begin()

    def _begin(self) -> None:
        self._points: list[dict[str, float]] = []
        self._next, self._start = 30.0, time.perf_counter()

    def take(self) -> list[dict[str, float]]:
        """The points of the fit that is over; the next one begins."""
        points = self._points
        self._begin()
        return points

    def __call__(self, state: State) -> bool:
        """See `Solver.run`; never stops it."""
        if state.iteration >= self._next:
            began = time.perf_counter()
            labels = BinaryGraph(1).argmax(GraphModel().potentials(state.average, self._data, 2))
            loss = float(judge(labels, self._horses, self._horses.parts["test"])[MAIN_LOSS].mean())
            self._points.append({"steps": state.iteration, "seconds": began - self._start, "loss": loss})
            self._next *= 1.5
            self._start += time.perf_counter() - began
        return False


def read(
    horses: Horses, method: str, w: Floats, mass: Floats, images: Images, effort: Effort, seed: int
) -> tuple[dict[str, Labels], Floats]:
    """The labels of these images in both ways, and the probabilities of the foreground."""
    data = horses.data.take(images)
    f = GraphModel().potentials(METHODS[method].scale * w, data, 2)
    structure = BinaryGraph(1)
    q = marginals(structure, f, n_perturbations=effort.n_perturbations, rng=seed).mean
    plain = untilt(q, mass)
    aware = decode(plain, LOSS.site_weights(plain, data.sizes, data.site_offsets))
    return {Decoding.MAP.name: structure.argmax(f), Decoding.LOSS_AWARE.name: aware}, plain[:, 1]


# A task, in a process of its own.


def work(horses: Horses, task: Task, effort: Effort, seed: int) -> dict[str, dict[str, Any]]:
    """Entries for the results, by name."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # steps are what they are given; the report says so
        return (_hold_out if task.is_held_out else _test)(horses, task, effort, seed)


def _test(horses: Horses, task: Task, effort: Effort, seed: int) -> dict[str, dict[str, Any]]:
    """Judged by the test images."""
    entries, start = {}, time.perf_counter()
    masked, images = masked_images(horses, COLUMNS[task.column].n_masks, task.draw, seed), horses.parts["test"]
    watch = Watch(horses) if task.column == "small" else None
    for l2, kappa, w, mass in learn(horses, task, masked, effort, seed, watch):
        entry: dict[str, Any] = {"seconds": time.perf_counter() - start, "losses": {}, "images": {}}
        for name, predicted in read(horses, task.method, w, mass, images, effort, seed)[0].items():
            losses = judge(predicted, horses, images)
            entry["losses"][name] = {kind: float(values.mean()) for kind, values in losses.items()}
            entry["images"][name] = losses[MAIN_LOSS].round(5).tolist()
        if task.draw == 0:
            entry["weights"], entry["mass"] = w.tolist(), mass.tolist()
        if watch is not None:
            entry["curve"] = watch.take()
        entries[task.key(l2, kappa)] = entry
        start = time.perf_counter()
    return entries


def _hold_out(horses: Horses, task: Task, effort: Effort, seed: int) -> dict[str, dict[str, Any]]:
    """Judged by masks that were not learned from, a part after the other: the mean loss of each decoding."""
    masked = masked_images(horses, COLUMNS[task.column].n_masks, task.draw, seed)
    losses: dict[str, dict[str, list[Floats]]] = {}
    for rest, held in KFold(effort.n_folds, shuffle=True, random_state=seed).split(masked):
        for l2, kappa, w, mass in learn(horses, task, masked[rest], effort, seed):
            for name, predicted in read(horses, task.method, w, mass, masked[held], effort, seed)[0].items():
                parts = losses.setdefault(task.key(l2, kappa), {}).setdefault(name, [])
                parts.append(judge(predicted, horses, masked[held])[MAIN_LOSS])
    return {
        key: {"losses": {name: float(np.concatenate(parts).mean()) for name, parts in by_name.items()}}
        for key, by_name in losses.items()
    }


# All tasks.


def possible_columns(horses: Horses, columns: Sequence[str]) -> list[str]:
    """Those whose weak labels are there and whose masks are some of all; those with fewer than 14 not without 14."""
    n_small = len(horses.parts["small"])

    def is_possible(column: Column) -> bool:
        needed = 0 if column.n_masks is None else max(14, column.n_masks)
        return needed < n_small and all(horses.parts[part].size for part in column.weak)

    return [name for name in columns if is_possible(COLUMNS[name])]


@dataclass(frozen=True)
class Experiment:
    """The data and what all runs have in common."""

    horses: Horses
    effort: Effort
    seed: int
    n_jobs: int

    @property
    def fingerprint(self) -> str:
        """Of the data and of what the methods are: results with another do not mix."""
        text = f"{version('perturbmap')} {METHODS} {COLUMNS} {KAPPAS} {self.effort} {self.horses.fingerprint}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def run(self, results: Results, methods: Sequence[str], columns: Sequence[str], progress: Progress) -> None:
        """Fills in what is missing of the results: columns of masks alone first, since the others build on them."""
        choices = Choices(results, self.effort)
        alone = [c for c in columns if not COLUMNS[c].weak]
        weak = [c for c in columns if COLUMNS[c].weak]
        searched = [(c, m) for c in alone if c in SEARCHED for m in methods] if self.effort.n_folds else []
        searched_weak = [(c, m) for c in weak for m in methods] if self.effort.n_folds else []
        stages: list[Callable[[], list[Task]]] = [
            lambda: [
                Task(c, m, draw, ((l2, 0.0),), True)
                for c, m in searched
                for draw in self._draws(c)
                for l2 in METHODS[m].l2s
            ],
            lambda: [Task(c, m, draw, choices.of(c, m)) for c in alone for m in methods for draw in self._draws(c)],
            lambda: [
                Task(c, m, draw, tuple((l2, kappa) for l2 in choices.l2s(c, m) for kappa in KAPPAS), True)
                for c, m in searched_weak
                for draw in self._draws(c)
            ],
            lambda: [Task(c, m, draw, choices.of(c, m)) for c in weak for m in methods for draw in self._draws(c)],
        ]
        n_first = sum(len(METHODS[m].l2s) * len(self._draws(c)) for c, m in searched)
        n_tests = sum(len(methods) * len(self._draws(c)) for c in columns)
        progress.start(n_first + n_tests + sum(len(self._draws(c)) for c, _ in searched_weak), 0)
        with Parallel(self.n_jobs, return_as="generator_unordered") as pool:
            for stage in stages:
                self._do(results, stage(), pool, progress)

    def time_pins(self, results: Results, progress: Progress) -> None:
        """Table 5, along a run on small with the weighted likelihood."""
        if "timing" in results:
            return
        progress.begin("pins, basic and fast")
        l2 = Choices(results, self.effort).l2("small", "weighted", Decoding.MAP.name)
        task = Task("small", "weighted", 0, ((l2, 0.0),))
        problem, _ = _problem(self.horses, task, self.horses.parts["small"], l2, self.seed)
        solver = DoubleSGD(self.effort.n_timed / len(problem.data), 1, METHODS["weighted"].first_step)
        n_samples = min(2000, self.effort.n_timed // 10)
        results["timing"] = time_pins(problem, solver, self.effort.n_timed, n_samples, progress)

    def _draws(self, column: str) -> range:
        return range(1 if COLUMNS[column].n_masks is None else self.effort.n_draws)

    def _do(self, results: Results, tasks: list[Task], pool: Parallel, progress: Progress) -> None:
        missing = []
        for task in tasks:
            left = tuple(choice for choice in task.choices if task.key(*choice) not in results)
            if left:
                missing.append(replace(task, choices=left))
            else:
                progress.finish(None)
        # What only reports look at stays here.
        bare = replace(self.horses, regions=[], files=[])
        for entries in pool(delayed(work)(bare, task, self.effort, self.seed) for task in missing):
            results.update(entries)
            name, entry = next(iter(entries.items()))
            progress.begin(name)
            progress.finish(min(_mean(loss) for loss in entry["losses"].values()))


def _mean(loss: Any) -> float:
    return float(loss[MAIN_LOSS] if isinstance(loss, dict) else loss)


class Choices:
    """What cross-validation has found best, for each decoding by itself."""

    def __init__(self, results: Results, effort: Effort) -> None:
        self._results, self._effort = results, effort

    def of(self, column: str, method: str) -> tuple[tuple[float, float], ...]:
        """(l2, kappa) of both decodings, once if they are the same."""
        return tuple(dict.fromkeys(self.best(column, method, decoding.name) for decoding in DECODINGS))

    def l2s(self, column: str, method: str) -> tuple[float, ...]:
        """Of the column without weak labels, for both decodings."""
        base = COLUMNS[column].base or column
        return tuple(dict.fromkeys(self.l2(base, method, decoding.name) for decoding in DECODINGS))

    def best(self, column: str, method: str, decoding: str) -> tuple[float, float]:
        """(l2, kappa); kappa is 0 where nothing is weak."""
        if not COLUMNS[column].weak:
            return self.l2(column, method, decoding), 0.0
        l2 = self.l2(COLUMNS[column].base, method, decoding)
        if not self._effort.n_folds:
            return l2, 1.0
        return l2, min(KAPPAS, key=lambda kappa: self.held_out(column, method, decoding, l2, kappa))

    def l2(self, column: str, method: str, decoding: str) -> float:
        """Of least held-out loss; by the number of masks between 14 and all where it was not searched for."""
        if not self._effort.n_folds:
            return METHODS[method].quick_l2
        if column in SEARCHED:
            return min(METHODS[method].l2s, key=lambda l2: self.held_out(column, method, decoding, l2, 0.0))
        few, many = (np.log(self.l2(c, method, decoding)) for c in SEARCHED)
        where = float(np.clip(np.log((COLUMNS[column].n_masks or N_SMALL) / 14) / np.log(N_SMALL / 14), 0, 1))
        return float(f"{np.exp(few + where * (many - few)):.2g}")

    def held_out(self, column: str, method: str, decoding: str, l2: float, kappa: float) -> float:
        """The mean over draws."""
        draws = range(1 if COLUMNS[column].n_masks is None else self._effort.n_draws)
        tasks = [Task(column, method, draw, (), True) for draw in draws]
        return float(np.mean([self._results[task.key(l2, kappa)]["losses"][decoding] for task in tasks]))
