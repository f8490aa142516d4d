"""Table 2 of the paper: handwritten words, five ways to learn, two sizes of the training set.

Protocol.  "small": train on one fold, test on the nine others; "large": the other way round. Ten folds, per-letter
           error pooled over a fold's test letters; mean and standard deviation over folds. Words are read by their
           best labelling, as in the paper, and besides by the most probable letter at each place (exact marginals).
Features.  The 128 pixels of a letter, scaled to unit length; a bias and marks at both ends are the model's own.
l2.        Chosen once per method and protocol, on words held out from the training words of the first fold that is
           run, in steps of a half decade until both neighbours are worse.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from perturbmap.data import Dataset
from perturbmap.datasets import OCR
from perturbmap.estimator import FitInterruptedWarning, StructuredPredictor
from perturbmap.experiments.ocr.plan import METHODS
from perturbmap.experiments.results import Results
from perturbmap.inference import COUNTED, EXACT, INTEGRATED, PINNED, decode, marginals
from perturbmap.models import SequenceModel
from perturbmap.potentials import Floats, Potentials
from perturbmap.structures import Chain
from perturbmap.support.progress import Progress
from perturbmap.support.threads import threads
from perturbmap.task_losses import Hamming

LETTERS = list("abcdefghijklmnopqrstuvwxyz")
HALF_DECADE = 10**0.5
#: Test words on which marginals are compared, and words shown.
N_COMPARED = {"small": 500, "large": 500, "quick": 100}
N_SHOWN = 9
N_PERTURBATIONS = 100
N_BINS = 10


@dataclass(frozen=True)
class Experiment:
    """The data, scaled, and what all runs have in common."""

    ocr: OCR
    X: list[Floats]
    seed: int
    n_threads: int | None
    quick: bool

    @property
    def fingerprint(self) -> str:
        """A digest of the data and of what the methods are: results with another do not mix."""
        digest = hashlib.blake2b(f"{version('perturbmap')} {METHODS}".encode(), digest_size=8)
        for part in (*self.ocr.X, *self.ocr.y, self.ocr.folds):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    @classmethod
    def make(cls, ocr: OCR, *, seed: int, n_threads: int | None, quick: bool) -> Experiment:
        """Scales the letters to unit length."""
        X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in ocr.X]
        return cls(ocr, X, seed, n_threads, quick)

    def _plan(self, protocol: str) -> str:
        """The key of what is done for a protocol: a quick look does the same for both."""
        return "quick" if self.quick else protocol

    def run(
        self,
        results: Results,
        methods: Sequence[str],
        protocols: Sequence[str],
        folds: Sequence[int],
        progress: Progress,
    ) -> None:
        """Fills in what is missing of the results: choices of l2, folds, and a closer look at the first fold."""
        tasks = [(p, m, f) for p in protocols for m in methods for f in folds]
        missing = [task for task in tasks if run_name(*task) not in results]
        progress.start(len(tasks), len(tasks) - len(missing))
        with threadpool_limits(threads(self.n_threads)), warnings.catch_warnings():
            # Passes are what they are given; the report says how far they got.
            warnings.simplefilter("ignore", ConvergenceWarning)
            # A fit that Ctrl-C has cut short is no result.
            warnings.simplefilter("error", FitInterruptedWarning)
            for protocol, method, fold in missing:
                name = f"{protocol} {METHODS[method].name}"
                try:
                    if choice_name(protocol, method) not in results:
                        progress.begin(f"{name}: l2")
                        results[choice_name(protocol, method)] = self._choose(protocol, method, folds[0], progress)
                    progress.begin(f"{name}: fold {fold}")
                    l2 = results[choice_name(protocol, method)]["l2"]
                    closer = look_name(protocol, method) not in results
                    entry, look = self._run_fold(protocol, method, fold, l2, closer, progress)
                except FitInterruptedWarning:
                    raise KeyboardInterrupt from None
                if look is not None:
                    results[look_name(protocol, method)] = look
                results[run_name(protocol, method, fold)] = entry
                progress.finish(entry["error"])

    def _estimator(self, protocol: str, method: str, l2: float) -> StructuredPredictor:
        return StructuredPredictor(
            SequenceModel(),
            Chain(self.n_threads),
            METHODS[method].objective,
            l2=l2,
            solver=METHODS[method].solvers[self._plan(protocol)],
            task_loss=Hamming(),
            n_perturbations=N_PERTURBATIONS,
            classes=LETTERS,
            random_state=self.seed,
        )

    def _words(self, indices: NDArray[np.intp]) -> tuple[list[Floats], list[NDArray[np.str_]]]:
        return [self.X[i] for i in indices], [self.ocr.y[i] for i in indices]

    # The choice of l2.

    def _choose(self, protocol: str, method: str, fold: int, progress: Progress) -> dict[str, Any]:
        """The l2 of least error on held-out words; neighbours are tried until both are worse."""
        train, _ = self.ocr.split(protocol, fold)
        # Shuffled: the words are sorted, and a run of them would hold words that occur nowhere else.
        splits = list(KFold(5, shuffle=True, random_state=self.seed).split(train))
        splits = splits if protocol == "small" and not self.quick else splits[:1]
        errors: dict[float, float] = {}

        def error(l2: float) -> float:
            if l2 not in errors:
                wrong = []
                for number, (rest, held) in enumerate(splits):

                    def advance(info: dict[str, Any], number: int = number) -> None:
                        fraction = (number + info["iteration"] / info["n_iter"]) / len(splits)
                        progress.advance(fraction, note=f"try {l2:.1e}")

                    est = self._estimator(protocol, method, l2)
                    est.fit(*self._words(train[rest]), callback=advance)
                    X, y = self._words(train[held])
                    wrong.append(np.concatenate(est.predict(X)) != np.concatenate(y))
                errors[l2] = float(np.mean(np.concatenate(wrong)))
            return errors[l2]

        start = time.perf_counter()
        best, least = None, METHODS[method].first_l2[self._plan(protocol)]
        while best != least:
            best = least
            least = min((float(f"{best * step:.2g}") for step in (1, HALF_DECADE, 1 / HALF_DECADE)), key=error)
        return {
            "l2": best,
            "tried": [[l2, errors[l2]] for l2 in sorted(errors)],
            "fold": fold,
            "seconds": time.perf_counter() - start,
        }

    # One fold.

    def _run_fold(
        self, protocol: str, method: str, fold: int, l2: float, closer: bool, progress: Progress
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """What goes into the table, and with ``closer``, a closer look."""
        train, test = self.ocr.split(protocol, fold)
        X, y = self._words(test)
        data, truth = Dataset.from_examples(X), np.searchsorted(LETTERS, np.concatenate(y)).astype(np.int32)

        structure = Chain(self.n_threads)

        def error_of(w: Floats) -> float:
            return float(np.mean(structure.argmax(SequenceModel().potentials(w, data, len(LETTERS))) != truth))

        curve = Curve(error_of if closer else None, progress)
        start = time.perf_counter()
        est = self._estimator(protocol, method, l2).fit(*self._words(train), callback=curve)
        seconds = time.perf_counter() - start - curve.looking
        q = marginals(structure, SequenceModel().potentials(est.coef_, data, len(LETTERS)), method=EXACT).mean
        entry = {
            "error": error_of(est.coef_),
            "error_by_marginals": float(np.mean(decode(q) != truth)),
            "seconds": seconds,
            "iterations": est.n_iter_,
        }
        if not closer:
            return entry, None
        rng = np.random.default_rng(self.seed)
        some = rng.permutation(test)[: N_COMPARED[self._plan(protocol)]]
        f = est.potentials(self._words(some)[0])
        return entry, {
            "fold": fold,
            "n_compared": len(some),
            "curve": curve.points,
            "marginals": self._compare_marginals(f, some),
            "examples": self._examples(est, f, some),
        }

    def _compare_marginals(self, f: Potentials, words: NDArray[np.intp]) -> dict[str, Any]:
        """How far each kind of marginals is from the exact ones, and how well calibrated."""
        truth = np.searchsorted(LETTERS, np.concatenate(self._words(words)[1]))
        exact = marginals(Chain(self.n_threads), f, method=EXACT).mean
        kinds = {}
        for name, method in {"EXACT": EXACT, "PINNED": PINNED, "INTEGRATED": INTEGRATED, "COUNTED": COUNTED}.items():
            q = marginals(
                Chain(self.n_threads), f, method=method, n_perturbations=N_PERTURBATIONS, rng=self.seed
            ).mean
            confidence, right = q.max(axis=1), decode(q) == truth
            bins = np.minimum((N_BINS * confidence).astype(int), N_BINS - 1)
            counts = np.bincount(bins, minlength=N_BINS)
            sums = [np.bincount(bins, weights=x, minlength=N_BINS) for x in (confidence, right)]
            kinds[name] = {
                "distance": float(0.5 * np.abs(q - exact).sum(axis=1).mean()),
                "largest_distance": float(0.5 * np.abs(q - exact).sum(axis=1).max()),
                "error": float(1 - right.mean()),
                "confidence": float(confidence.mean()),
                "calibration_error": float(np.abs(sums[0] - sums[1]).sum() / len(truth)),
                "reliability": [
                    [float(c / n), float(r / n), int(n)] for c, r, n in zip(*sums, counts, strict=True) if n
                ],
            }
        return kinds

    def _examples(self, est: StructuredPredictor, f: Potentials, words: NDArray[np.intp]) -> list[dict[str, Any]]:
        """A few words, about half of them with mistakes: what was predicted, and the three most probable letters."""
        predicted = f.split(Chain(self.n_threads).argmax(f))
        spelled = ["".join(np.array(LETTERS)[labels]) for labels in predicted]
        truth = ["".join(self.ocr.y[i]) for i in words]
        lengths_fit = [n for n in range(len(words)) if 5 <= len(truth[n]) <= 10]
        wrong = [n for n in lengths_fit if spelled[n] != truth[n]][: N_SHOWN // 2]
        right = [n for n in lengths_fit if spelled[n] == truth[n]][: N_SHOWN - len(wrong)]
        shown = []
        for n in sorted(wrong + right):
            q = est.predict_marginals([self.X[words[n]]])[0]
            top = np.argsort(-q, axis=1)[:, :3]
            shown.append(
                {
                    "word": int(words[n]),
                    "predicted": spelled[n],
                    "truth": truth[n],
                    "likely": [[[LETTERS[k], float(row[k])] for k in best] for row, best in zip(q, top, strict=True)],
                }
            )
        return shown


class Curve:
    """Follows a fit: error against seconds and passes, the time for looking left out."""

    def __init__(self, error_of: Callable[[Floats], float] | None, progress: Progress) -> None:
        self._error_of, self._progress = error_of, progress
        self.points: list[dict[str, float]] = []
        self.looking = 0.0

    def __call__(self, info: dict[str, Any]) -> None:
        """See the callback of `StructuredPredictor.fit`."""
        start = time.perf_counter()
        error = None
        if self._error_of is not None:
            error = self._error_of(info["coef"])
            point = {"seconds": info["seconds"] - self.looking, "passes": info["passes"]}
            self.points.append({**point, "error": error})
        self._progress.advance(info["iteration"] / info["n_iter"], error)
        self.looking += time.perf_counter() - start


def choice_name(protocol: str, method: str) -> str:
    """The name of the entry of the choice of l2."""
    return f"{protocol}/{method}/l2"


def run_name(protocol: str, method: str, fold: int) -> str:
    """The name of the entry of a fold."""
    return f"{protocol}/{method}/{fold}"


def look_name(protocol: str, method: str) -> str:
    """The name of the entry of the closer look."""
    return f"{protocol}/{method}/look"
