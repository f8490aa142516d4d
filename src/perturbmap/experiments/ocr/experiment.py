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
from dataclasses import dataclass, replace
from functools import wraps
from importlib.metadata import version
from typing import Any, TypeVar, cast

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from perturbmap.data import Dataset
from perturbmap.datasets import OCR
from perturbmap.estimator import FitInterruptedWarning, StructuredPredictor
from perturbmap.experiments.ocr.closer_look import LETTERS, N_PERTURBATIONS, Curve, compare_marginals, shown_words
from perturbmap.experiments.ocr.plan import METHODS
from perturbmap.experiments.results import Results
from perturbmap.inference import EXACT, decode, marginals
from perturbmap.models import SequenceModel
from perturbmap.potentials import Floats
from perturbmap.structures import Chain
from perturbmap.support.progress import Progress
from perturbmap.task_losses import Hamming

HALF_DECADE = 10**0.5
#: Test words on which marginals are compared.
N_COMPARED = {"small": 500, "large": 500, "quick": 100}


_Work = TypeVar("_Work", bound=Callable[..., Any])


def _alone(work: _Work) -> _Work:
    """The same work, in one thread of BLAS; it keeps its passes, and a fit that Ctrl-C has cut short is no result."""

    @wraps(work)
    def done(*arguments: Any) -> Any:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the report says how far they got
            warnings.simplefilter("error", FitInterruptedWarning)
            try:
                return work(*arguments)
            except FitInterruptedWarning:
                raise KeyboardInterrupt from None

    return cast(_Work, done)


@dataclass(frozen=True)
class Experiment:
    """The data, scaled, and what all runs have in common."""

    ocr: OCR
    X: list[Floats]
    seed: int
    n_jobs: int
    quick: bool

    @property
    def fingerprint(self) -> str:
        """A digest of the data and of what the methods are: results with another do not mix."""
        digest = hashlib.blake2b(f"{version('perturbmap')} {METHODS}".encode(), digest_size=8)
        for part in (*self.ocr.X, *self.ocr.y, self.ocr.folds):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    @classmethod
    def make(cls, ocr: OCR, *, seed: int, n_jobs: int, quick: bool) -> Experiment:
        """Scales the letters to unit length."""
        X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in ocr.X]
        return cls(ocr, X, seed, n_jobs, quick)

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
        """Fills in what is missing of the results: choices of l2, folds, and a closer look at the first fold.

        Each choice and each fold has one thread: two processes of one thread take less time than one of two. How many
        processes there are changes no result.
        """
        tasks = [(p, m, f) for p in protocols for m in methods for f in folds]
        missing = [task for task in tasks if run_name(*task) not in results]
        progress.start(len(tasks), len(tasks) - len(missing))
        n_jobs = max(1, min(self.n_jobs, len(missing)))
        told = progress if n_jobs == 1 else Progress()  # how far other processes are, nobody knows
        bare = replace(self, ocr=self.ocr._replace(X=[]))
        with Parallel(n_jobs, return_as="generator_unordered") as pool:
            searched = dict.fromkeys((p, m) for p, m, _ in missing if choice_name(p, m) not in results)
            if searched:
                progress.begin(f"l2 of {len(searched)} methods")
            for name, choice in pool(delayed(bare._choose)(p, m, folds[0], told) for p, m in searched):
                results[name] = choice
            looked_at: set[str] = set()

            def fold_of(protocol: str, method: str, fold: int) -> Any:
                l2, look = results[choice_name(protocol, method)]["l2"], look_name(protocol, method)
                closer = look not in results and look not in looked_at
                looked_at.add(look)
                return delayed(bare._run_fold)(protocol, method, fold, l2, closer, told)

            for protocol, method, fold, entries in pool(fold_of(*task) for task in missing):
                results.update(entries)
                progress.begin(_title(protocol, method, fold))
                progress.finish(entries[run_name(protocol, method, fold)]["error"])

    def _estimator(self, protocol: str, method: str, l2: float) -> StructuredPredictor:
        return StructuredPredictor(
            SequenceModel(),
            Chain(1),
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

    @_alone
    def _choose(self, protocol: str, method: str, fold: int, progress: Progress) -> tuple[str, dict[str, Any]]:
        """The l2 of least error on held-out words, by its name; neighbours are tried until both are worse."""
        progress.begin(f"{protocol} {METHODS[method].name}: l2")
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
        choice = {
            "l2": best,
            "tried": [[l2, errors[l2]] for l2 in sorted(errors)],
            "fold": fold,
            "seconds": time.perf_counter() - start,
        }
        return choice_name(protocol, method), choice

    # One fold.

    @_alone
    def _run_fold(
        self, protocol: str, method: str, fold: int, l2: float, closer: bool, progress: Progress
    ) -> tuple[str, str, int, dict[str, dict[str, Any]]]:
        """What goes into the table, and with ``closer``, a closer look, by their names."""
        progress.begin(_title(protocol, method, fold))
        train, test = self.ocr.split(protocol, fold)
        X, y = self._words(test)
        data, truth = Dataset.from_examples(X), np.searchsorted(LETTERS, np.concatenate(y)).astype(np.int32)

        structure = Chain(1)

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
        entries = {run_name(protocol, method, fold): entry}
        if not closer:
            return protocol, method, fold, entries
        rng = np.random.default_rng(self.seed)
        some = rng.permutation(test)[: N_COMPARED[self._plan(protocol)]]
        X, y = self._words(some)
        f = est.potentials(X)
        look = {
            "fold": fold,
            "n_compared": len(some),
            "curve": curve.points,
            "marginals": compare_marginals(f, np.searchsorted(LETTERS, np.concatenate(y)), self.seed),
            "examples": shown_words(est, f, X, y, some),
        }
        return protocol, method, fold, {look_name(protocol, method): look, **entries}


def _title(protocol: str, method: str, fold: int) -> str:
    return f"{protocol} {METHODS[method].name}: fold {fold}"


def choice_name(protocol: str, method: str) -> str:
    """The name of the entry of the choice of l2."""
    return f"{protocol}/{method}/l2"


def run_name(protocol: str, method: str, fold: int) -> str:
    """The name of the entry of a fold."""
    return f"{protocol}/{method}/{fold}"


def look_name(protocol: str, method: str) -> str:
    """The name of the entry of the closer look."""
    return f"{protocol}/{method}/look"
