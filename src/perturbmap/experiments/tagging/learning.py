"""One run of the tagging experiment: a tagger is learned in a process of its own, weighed, and judged."""

from __future__ import annotations

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from perturbmap.estimator import StructuredPredictor
from perturbmap.experiments.tagging.data import Corpus, Known, Tokens
from perturbmap.experiments.tagging.plan import METHODS, Effort
from perturbmap.models import SequenceModel
from perturbmap.potentials import Floats
from perturbmap.structures import Chain
from perturbmap.task_losses import Hamming

N_BINS = 10
_STATUS = "/proc/self/status"


@final
@dataclass(frozen=True)
class Job:
    """What is learned: the data, the features and the known tags, the method and its penalty.

    kappa : the weight of sentences that are not fully labelled
    """

    folder: Path
    method: str
    features: str
    known: str
    c2: float
    kappa: float
    effort: Effort
    seed: int
    n_threads: int | None


class Tagger(ABC):
    """What is asked of a tagger, ours or another."""

    @abstractmethod
    def learn(self, X: list[Tokens], y: Known) -> None:
        """Learns from the features of words, and from what is known of their tags."""

    @abstractmethod
    def predict(self, X: list[Tokens]) -> list[list[str]]:
        """The tags of each sentence."""

    @abstractmethod
    def marginals(self, X: list[Tokens]) -> Floats:
        """The probabilities of the tags of all words, ``(n_words, n_tags)``, in the order of the corpus."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Writes all that tagging needs."""


@final
class OurTagger(Tagger):
    """A `StructuredPredictor` that is fitted to tokens."""

    def __init__(self, job: Job, tags: list[str], n_labelled: int) -> None:
        objective = METHODS[job.method].objective
        assert objective is not None
        self._predictor = StructuredPredictor(
            SequenceModel(),
            Chain(job.n_threads),
            objective,
            l2=2 * job.c2 / n_labelled,
            solver=job.effort.solver(objective),
            unlabelled_weight=job.kappa,
            task_loss=Hamming(),
            n_perturbations=job.effort.n_perturbations,
            classes=tags,
            random_state=job.seed,
        )

    def learn(self, X: list[Tokens], y: Known) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # passes are what they are given; the report says so
            self._predictor.fit(X, y)

    def predict(self, X: list[Tokens]) -> list[list[str]]:
        return [labels.tolist() for labels in self._predictor.predict(X)]

    def marginals(self, X: list[Tokens]) -> Floats:
        return np.concatenate(self._predictor.predict_marginals(X))

    def save(self, path: Path) -> None:
        self._predictor.save(path)


@final
class Crfsuite(Tagger):
    """python-crfsuite, by L-BFGS until its own test of convergence."""

    def __init__(self, job: Job, tags: list[str], folder: Path) -> None:
        self._c2, self._tags, self._path = job.c2, tags, folder / "crfsuite"

    def learn(self, X: list[Tokens], y: Known) -> None:
        import pycrfsuite

        trainer = pycrfsuite.Trainer(algorithm="lbfgs", params={"c1": 0.0, "c2": self._c2}, verbose=False)
        for x, tags in zip(X, y, strict=True):
            trainer.append(x, tags)
        trainer.train(str(self._path))
        self._tagger = pycrfsuite.Tagger()
        self._tagger.open(str(self._path))

    def predict(self, X: list[Tokens]) -> list[list[str]]:
        return [self._tagger.tag(x) for x in X]

    def marginals(self, X: list[Tokens]) -> Floats:
        known = set(self._tagger.labels())
        rows = []
        for x in X:
            self._tagger.set(x)
            rows += [
                [self._tagger.marginal(tag, d) if tag in known else 0.0 for tag in self._tags] for d in range(len(x))
            ]
        return np.array(rows)

    def save(self, path: Path) -> None:
        path.write_bytes(self._path.read_bytes())


def run(job: Job) -> dict[str, Any]:
    """Learns, and judges by the sentences of dev and of test; the choice of anything looks at dev alone."""
    corpus = Corpus.load(job.folder, job.effort.n_train)
    X, y = corpus.training_set(job.features, job.known)
    n_labelled = sum(tags is not None and None not in tags for tags in y)
    with TemporaryDirectory() as folder:
        tagger: Tagger = (
            Crfsuite(job, corpus.tags, Path(folder))
            if METHODS[job.method].objective is None
            else OurTagger(job, corpus.tags, n_labelled)
        )
        forget_peak_memory()
        before, start = memory("VmRSS"), time.perf_counter()
        tagger.learn(X, y)
        seconds, peak = time.perf_counter() - start, memory("VmHWM")
        path = Path(folder) / "tagger"
        tagger.save(path)
        n_bytes = path.stat().st_size
        judged = {
            part: _right(tagger.predict(corpus.tokens(part, job.features)), corpus, part) for part in ("dev", "test")
        }
        entry = {
            "accuracy": float(np.concatenate(judged["dev"]).mean()),
            "right": [int(right.sum()) for right in judged["test"]],
            "seconds": seconds,
            "memory": None if before is None or peak is None else {"before": before, "peak": peak},
            "bytes": n_bytes,
        }
        if METHODS[job.method].has_probabilities:
            entry["reliability"] = _reliability(tagger.marginals(corpus.tokens("test", job.features)), corpus)
    return entry


def _right(predicted: Sequence[Sequence[str]], corpus: Corpus, part: str) -> list[NDArray[np.bool_]]:
    """Whether the tag of each word is right, for each sentence."""
    pairs = zip(predicted, corpus.parts[part].tags, strict=True)
    return [np.array([a == b for a, b in zip(ours, true, strict=True)], dtype=bool) for ours, true in pairs]


def _reliability(q: Floats, corpus: Corpus) -> dict[str, Any]:
    """How often the most probable tags are right, beside how probable they are said to be; and the logarithmic loss.

    bins : for each tenth of the probabilities that occurs, their mean, how many of the tags are right, and how many
        there are
    """
    number = {tag: k for k, tag in enumerate(corpus.tags)}
    truth = np.array([number.get(tag, -1) for tags in corpus.parts["test"].tags for tag in tags])
    confidence, right = q.max(axis=1), q.argmax(axis=1) == truth
    bins = np.minimum((N_BINS * confidence).astype(int), N_BINS - 1)
    counts = np.bincount(bins, minlength=N_BINS)
    said, found = (np.bincount(bins, weights=x, minlength=N_BINS) for x in (confidence, right))
    of_truth = np.where(truth >= 0, q[np.arange(len(q)), truth], 0.0)
    return {
        "calibration_error": float(np.abs(said - found).sum() / len(truth)),
        "log_loss": float(-np.log(np.maximum(of_truth, 1e-6)).mean()),
        "bins": [[float(s / n), float(f / n), int(n)] for s, f, n in zip(said, found, counts, strict=True) if n],
    }


def memory(name: str) -> float | None:
    """The memory of this process in megabytes, as Linux names it: VmRSS now, VmHWM at most; None elsewhere."""
    if not os.path.exists(_STATUS):
        return None
    with open(_STATUS, encoding="ascii") as lines:
        return next((float(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)


def forget_peak_memory() -> None:
    """From now on, VmHWM is that of what follows; where this cannot be asked for, it is that of all."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
