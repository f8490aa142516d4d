"""Learning: time to an error on OCR, the cost of a step, variance times cost of the two estimators."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pycrfsuite
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from benchmarks.core import superpixel_like
from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import (
    AdaptiveStep,
    BalancedHamming,
    BinaryGraph,
    Chain,
    DoubleSGD,
    Example,
    GraphModel,
    Hamming,
    LogLikelihood,
    MarginalLogLikelihood,
    Model,
    Objective,
    PlainStep,
    Potentials,
    SequenceModel,
    Structure,
    StructuredPredictor,
    gumbel_noise,
    perturb,
    potts,
)
from perturbmap.data import Dataset
from perturbmap.data.labels import encode_labels
from perturbmap.datasets import load_ocr
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem
from perturbmap.support.blas import one_blas_thread
from tests.test_learning import box, superpixels

LETTERS = list("abcdefghijklmnopqrstuvwxyz")


@cache
def ocr_fold_0() -> tuple[list[Floats], list[np.ndarray], list[Floats], list[np.ndarray]]:
    """Train on fold 0, test on the others; the pixels of a letter have unit length."""
    X, y, folds = load_ocr()
    X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in X]
    train, test = np.flatnonzero(folds == 0), np.flatnonzero(folds != 0)
    return [X[i] for i in train], [y[i] for i in train], [X[i] for i in test], [y[i] for i in test]


def letter_error(predicted: list[np.ndarray], truth: list[np.ndarray]) -> float:
    return float(np.mean(np.concatenate(predicted) != np.concatenate(truth)))


def chosen_predictor(objective: Objective) -> StructuredPredictor:
    """Penalty and first step by cross-validation on the training words."""
    train, y, _, _ = ocr_fold_0()
    est = StructuredPredictor(
        objective=objective,
        solver=DoubleSGD(n_passes=20),
        task_loss=Hamming(),
        classes=LETTERS,
        random_state=0,
    )
    # Shuffled: the words are sorted, and a run of them would hold words that occur nowhere else.
    folds = KFold(3, shuffle=True, random_state=0)
    grid = {"l2": [1e-4, 3e-4, 1e-3], "solver__step": [PlainStep(1.0), PlainStep(3.0), AdaptiveStep()]}
    search = GridSearchCV(est, grid, cv=folds, refit=False).fit(train, y)
    print(f"  {type(objective).__name__}: {search.best_params_}, by cross-validation on the training words")
    best: StructuredPredictor = clone(est).set_params(**search.best_params_)
    return best


def time_to_error() -> Iterator[Line]:
    """Seconds of training that reach 19.5 % test error, against crfsuite's L-BFGS on the pixels themselves."""
    train, y, test, truth = ocr_fold_0()

    def attributes(word: Floats) -> list[dict[str, float]]:
        letters: list[dict[str, float]] = [{str(j): 1.0 for j in np.flatnonzero(row)} | {"bias": 1.0} for row in word]
        letters[0]["first"] = letters[-1]["last"] = 1.0
        return letters

    trainer = pycrfsuite.Trainer(verbose=False)
    for x, labels in zip(train, y, strict=True):
        trainer.append(attributes(x), labels.tolist())
    trainer.set_params({"c1": 0, "c2": 1.0, "feature.possible_states": True, "feature.possible_transitions": True})
    ours = {
        "Algorithm 1": chosen_predictor(LogLikelihood()),
        "Algorithm 2": chosen_predictor(MarginalLogLikelihood()),
    }
    seconds: dict[str, list[float]] = {"peer": [], "Algorithm 1": [], "Algorithm 2": []}
    errors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.crfsuite")
        for _ in range(5):
            start = time.perf_counter()
            trainer.train(path)
            seconds["peer"].append(time.perf_counter() - start)
            for name, est in ours.items():
                start = time.perf_counter()
                est.fit(train, y)
                seconds[name].append(time.perf_counter() - start)
                errors[name] = letter_error(est.predict(test), truth)
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        errors["peer"] = letter_error([np.array(tagger.tag(attributes(x))) for x in test], truth)
    peer = float(np.median(seconds["peer"]))
    for name in ours:
        ratio = float(np.median(seconds[name])) / peer if errors[name] <= 0.195 else float("inf")
        yield Line(
            f"OCR fold 0, {name}: time to 19.5 % (reaches {errors[name]:.1%}) over the peer's",
            f"python-crfsuite, {peer:.2f} s, {errors['peer']:.1%}",
            ratio,
            0.5,
            at_least=False,
        )


def make_problem(
    X: list[Floats] | list[Example],
    y: list[np.ndarray],
    classes: list[str] | list[int],
    model: Model,
    structure: Structure,
    objective: Objective,
    l2: float,
) -> Problem:
    data = Dataset.from_examples(X)
    targets = objective.targets(encode_labels(y, data, classes))
    return Problem(data, targets, len(classes), model, structure, objective, l2, seed=0)


def learned(problem: Problem, n_passes: float) -> Floats:
    solver = DoubleSGD(n_passes=n_passes, batch_size=8)
    return solver.run(problem, solver.start(problem)).average


def ocr_problem(objective: Objective) -> Problem:
    train, y, _, _ = ocr_fold_0()
    return make_problem(train, y, LETTERS, SequenceModel(), Chain(n_threads=1), objective, 3e-4)


def ocr_step() -> Iterator[Line]:
    """One gradient of 16 words, at the learned weights."""
    two, one = ocr_problem(MarginalLogLikelihood()), ocr_problem(LogLikelihood())
    w = learned(two, 10)
    words = np.arange(16)

    def steps(problem: Problem) -> None:
        for draw in range(100):
            problem.value_and_grad(w, words, draw)

    ours, theirs = interleaved([partial(steps, two), partial(steps, one)])
    yield Line(
        "OCR, one step of Algorithm 2, batch of 16: time over Algorithm 1's",
        "ourselves",
        ours / theirs,
        1.5,
        at_least=False,
    )


@cache
def superpixel_examples() -> tuple[list[Example], list[np.ndarray]]:
    """60 planar graphs of 150 sites, 1,969 features per site and 100 per edge; a few of them know the labels."""
    signal = np.random.default_rng(5).normal(size=1969)
    signal *= 0.06 / np.linalg.norm(signal)
    examples, labels = [], []
    for i in range(60):
        rng = np.random.default_rng(1000 + i)
        edges = superpixel_like(150, 0.5, 1, seed=i)[0].edges
        smooth = Potentials(rng.normal(0, 1.0, (150, 2)), potts(0.6), edges)
        y = BinaryGraph().argmax(perturb(smooth, gumbel_noise(smooth, i)[0]))
        features = (2 * y - 1)[:, None] * signal + rng.normal(0, 0.6 / np.sqrt(1969), (150, 1969))
        same = y[edges[:, 0]] == y[edges[:, 1]]
        similar = rng.random((len(edges), 100)) * np.where(same, 1.0, 0.6)[:, None] / 10
        examples.append(Example(features.astype(np.float32), edges, similar.astype(np.float32)))
        labels.append(y)
    return examples, labels


def superpixel_problem(objective: Objective) -> Problem:
    X, y = superpixel_examples()
    return make_problem(X, y, [0, 1], GraphModel(), BinaryGraph(n_threads=1), objective, 0.03)


def variance_times_time(name: str, make: Callable[[Objective], Problem], size: int, bar: float) -> Iterator[Line]:
    """The paper's estimator over ours, at the learned weights: above 1, ours is the one to use."""
    ours, papers = make(MarginalLogLikelihood()), make(MarginalLogLikelihood(integrate_noise=False))
    w = learned(ours, 40)
    indices = np.arange(size)

    def gradients(problem: Problem) -> np.ndarray:
        return np.array([problem.value_and_grad(w, indices, draw)[1] for draw in range(200)])

    seconds = interleaved([partial(gradients, ours), partial(gradients, papers)], repeats=5)
    variances = [gradients(problem).var(axis=0).sum() for problem in (ours, papers)]
    ratio = (variances[1] * seconds[1]) / (variances[0] * seconds[0])
    yield Line(
        f"{name}, a gradient of Algorithm 2: variance x time, noise integrated out",
        "the paper's estimator",
        ratio,
        bar,
    )


def superpixel_step(name: str, at_start: bool) -> Iterator[Line | str]:
    """All pins and a whole step, against every pin from scratch: built and solved by our own cuts."""
    problem = superpixel_problem(MarginalLogLikelihood())
    zeros = np.zeros(problem.model.n_weights(problem.data, 2))
    w = zeros if at_start else learned(problem, 40)
    indices = np.arange(32)
    batch, targets = problem.batch(indices)
    f = problem.model.potentials(w, batch, 2)
    structure = problem.structure
    noise = gumbel_noise(f, 0)[0]
    perturbed = perturb(f, noise)
    weights = np.ones(f.unary.shape)
    free = structure.argmax(perturbed)

    def pins() -> None:
        structure.pinned(perturbed).moments(weights)

    def needed_pins() -> None:
        # The paper's estimator: the pins of the true labels that the maximiser does not satisfy.
        structure.pinned(perturbed, pins=targets.label_weights != 0).moments(targets.label_weights)

    pinned_examples = []
    for n in range(len(f)):
        one, labels = perturbed[n], f.split(free)[n]
        for d in range(one.n_sites):
            unary = one.unary.copy()
            unary[d, labels[d]] -= 1e6
            pinned_examples.append(one.with_unary(unary))
    every_pin = Potentials.batch(pinned_examples)

    def from_scratch() -> None:
        structure.argmax(perturbed)
        structure.argmax(every_pin)  # each an example of its own: built and solved

    def features() -> None:
        moments = problem.objective.value_and_grad(f, targets, structure, noise)[1]
        problem.model.apply(w, batch, 2)[1](moments)

    def objective() -> None:
        problem.objective.value_and_grad(f, targets, structure, noise)

    draws = iter(range(10**9))
    with one_blas_thread():
        ours, needed, scratch, both, alone, step = interleaved(
            [
                pins,
                needed_pins,
                from_scratch,
                features,
                objective,
                lambda: problem.value_and_grad(w, indices, next(draws)),
            ],
            15,
            time.process_time,
        )
    share = (both - alone) / step
    yield (
        f"superpixels {name}: a step of 32 graphs takes {step * 1e3:.2f} ms: cuts and pins {ours / step:.0%}, "
        f"features {share:.0%}, the rest {1 - ours / step - share:.0%}"
    )
    yield Line(
        f"superpixels {name}: all pins of 32 graphs", "ourselves, each pin built and solved", scratch / ours, 25
    )
    yield Line(
        f"superpixels {name}: the needed pins of 32 graphs",
        "ourselves, each pin built and solved",
        scratch / needed,
        25,
    )
    whole = (step - ours + scratch) / step
    yield Line(f"superpixels {name}: a whole step", "ourselves, each pin built and solved", whole, 8)


def partial_labels() -> Iterator[Line]:
    """Boxed examples beside ten labelled ones: the balanced loss under the two readings of a known label."""
    losses: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, y = superpixels(210, 300, rng)
        test, truth = superpixels(150, 300, rng)
        for conditional in losses:
            est = StructuredPredictor(
                GraphModel(),
                BinaryGraph(),
                MarginalLogLikelihood(BalancedHamming(), conditional=conditional),
                l2=0.1,
                solver=DoubleSGD(n_passes=10, step=PlainStep(0.3)),
                random_state=0,
            ).fit(X, [*y[:10], *map(box, y[10:])])
            losses[conditional].append(1 - est.score(test, truth))
    yield Line(
        f"boxes, loss of the unconditional reading ({np.mean(losses[False]):.1%}) under the conditional one's",
        f"conditional reading ({np.mean(losses[True]):.1%})",
        float(np.mean(losses[True]) / np.mean(losses[False])),
        1,
    )


BENCHMARKS = [
    Benchmark("learning ocr error", time_to_error),
    Benchmark("learning ocr step", ocr_step),
    Benchmark("learning variance chain", partial(variance_times_time, "chain (OCR)", ocr_problem, 16, 3)),
    Benchmark("learning variance graph", partial(variance_times_time, "superpixel graph", superpixel_problem, 4, 1)),
    Benchmark("learning partial labels", partial_labels),
    Benchmark("learning superpixels start", partial(superpixel_step, "at the start", True)),
    Benchmark("learning superpixels learned", partial(superpixel_step, "at the learned weights", False)),
]
