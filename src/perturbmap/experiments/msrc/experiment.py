"""Photos cut into classes, by the same unaries with edges and without.

Classes.    Twenty-one; horse and mountain, of a handful of photos, count as void, as they do in papers on these data.
            Void is neither learned nor judged.
Unaries.    Probabilities by a linear classifier of histograms, on a logarithmic scale; by cross-validation where it
            has learned.
Edges.      Between superpixels that touch; similarities of their histograms, with weights that are not negative.
Choices.    l2 by the photos of validation: the greatest sum of accuracy and mean class accuracy, by the best
            labelling.
Loss.       One minus mean class accuracy: missing a pixel costs one over the area of its class in the photos of
            train. The structured SVM and the weighted likelihood learn by it.
Decodings.  The best labelling, and that of least expected loss under pinned marginals, which are calibrated on the
            photos of validation.
Judging.    Pixels of the test photos, against the label maps: the share that is right, and its mean over classes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from perturbmap.experiments.msrc.data import PARTS, Photo
from perturbmap.experiments.msrc.learning import Judged, Model, best_labels, calibrate, learn, loss_aware_labels
from perturbmap.experiments.msrc.plan import METHODS, Effort
from perturbmap.experiments.results import Results, fingerprint_of
from perturbmap.inference import LabelPrior
from perturbmap.inference.decoding import Decoding
from perturbmap.support.progress import Progress
from perturbmap.support.workers import delayed

Photos = Sequence[Photo]
Job = Callable[[], dict[str, Any]]


def learned_name(method: str, l2: float) -> str:
    """The name of the entry of a model and what the photos of validation say of it."""
    return f"learned/{method}/l2 {l2:g}"


def outcome_name(method: str) -> str:
    """The name of the entry of a method's test."""
    return f"tested/{method}"


@dataclass(frozen=True)
class Experiment:
    """The photos of each part, with log-probabilities in context, and what all runs have in common.

    fingerprint_of_data : what tells these photos from others
    """

    classes: list[str]
    parts: dict[str, list[Photo]]
    fingerprint_of_data: str
    effort: Effort
    seed: int
    n_jobs: int

    @property
    def fingerprint(self) -> str:
        """A digest of the data and of what the methods are: results with another do not mix."""
        return fingerprint_of(METHODS, self.effort, self.fingerprint_of_data)

    def run(self, results: Results, methods: Sequence[str], progress: Progress) -> None:
        """Fills in what is missing of the results: a model for every l2, then the test of the chosen ones."""
        common = len(self.classes), self.effort, self.seed
        train, held, test = (self.parts[part] for part in PARTS)
        searches = [(m, l2) for m in methods for l2 in self.effort.l2s(m)]
        progress.start(len(searches) + len(methods), 0)
        with Parallel(self.n_jobs, return_as="generator_unordered") as pool:
            jobs: dict[str, Job] = {
                learned_name(m, l2): partial(_learn, m, l2, train, held, *common) for m, l2 in searches
            }
            self._do(results, jobs, pool, progress)
            chosen = {m: self.chosen(results, m) for m in methods}
            models = {m: self.model(results, m, l2) for m, l2 in chosen.items()}
            jobs = {outcome_name(m): partial(_test, models[m], l2, held, test, *common) for m, l2 in chosen.items()}
            self._do(results, jobs, pool, progress)

    def chosen(self, results: Results, method: str) -> float:
        """The l2 that validation finds best; the greater of equals."""

        def score(l2: float) -> tuple[float, float]:
            entry = results[learned_name(method, l2)]
            return entry["accuracy"] + entry["class_accuracy"], l2

        return max(self.effort.l2s(method), key=score)

    def model(self, results: Results, method: str, l2: float) -> Model:
        """The model that was learned."""
        entry = results[learned_name(method, l2)]
        return Model(
            method, np.array(entry["weights"]), LabelPrior(*np.array(entry["prior"])), np.array(entry["costs"])
        )

    def _do(self, results: Results, jobs: dict[str, Job], pool: Parallel, progress: Progress) -> None:
        missing = {name: job for name, job in jobs.items() if name not in results}
        for _ in range(len(jobs) - len(missing)):
            progress.finish(None)
        for name, entry in pool(delayed(_work)(name, job) for name, job in missing.items()):
            progress.begin(name)
            results[name] = entry
            progress.finish(1 - entry["accuracy"])


def _work(name: str, job: Job) -> tuple[str, dict[str, Any]]:
    """A job, in a process of its own, and the name of the entry that it makes."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # steps are what they are given; the report says so
        return name, job()


def _learn(
    method: str, l2: float, train: Photos, held: Photos, n_classes: int, effort: Effort, seed: int
) -> dict[str, Any]:
    """Learns, and judges the best labelling of photos that were held out."""
    start = time.perf_counter()
    model = learn(method, l2, train, n_classes, effort, seed)
    seconds = time.perf_counter() - start
    judged = Judged.of(best_labels(model, held, n_classes), held)
    return {
        "accuracy": judged.accuracy,
        "class_accuracy": judged.class_accuracy,
        "seconds": seconds,
        "weights": model.w.tolist(),
        "prior": model.prior.to_array().tolist(),
        "costs": model.costs.tolist(),
    }


def _test(
    model: Model, l2: float, held: Photos, photos: Photos, n_classes: int, effort: Effort, seed: int
) -> dict[str, Any]:
    """Calibrates by photos that were held out, and judges others in both decodings."""
    calibrations = calibrate(model, held, n_classes, effort, seed)
    reader = model.reader(n_classes, calibrations, effort, seed)
    judged = {
        Decoding.MAP.name: Judged.of(best_labels(model, photos, n_classes), photos),
        Decoding.LOSS_AWARE.name: Judged.of(loss_aware_labels(reader, model, photos), photos),
    }
    return {
        "l2": l2,
        "accuracy": judged[Decoding.MAP.name].accuracy,
        "calibrations": [part.to_array().tolist() for part in calibrations if part is not None],
        "judged": {name: one.to_json() for name, one in judged.items()},
    }
