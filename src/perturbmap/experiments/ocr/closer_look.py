"""A closer look at one fold: the error along its fit, its marginals beside the exact ones, and some of its words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.estimator import StructuredPredictor
from perturbmap.inference import COUNTED, EXACT, INTEGRATED, PINNED, decode, marginals
from perturbmap.potentials import Floats, Potentials
from perturbmap.structures import Chain
from perturbmap.support.progress import Progress

LETTERS = list("abcdefghijklmnopqrstuvwxyz")
N_SHOWN = 9
N_PERTURBATIONS = 100
N_BINS = 10


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


def compare_marginals(f: Potentials, truth: NDArray[np.intp], seed: int) -> dict[str, Any]:
    """How far each kind of marginals is from the exact ones, and how well calibrated."""
    exact = marginals(Chain(1), f, method=EXACT).mean
    kinds = {}
    for name, method in {"EXACT": EXACT, "PINNED": PINNED, "INTEGRATED": INTEGRATED, "COUNTED": COUNTED}.items():
        q = marginals(Chain(1), f, method=method, n_perturbations=N_PERTURBATIONS, rng=seed).mean
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
            "reliability": [[float(c / n), float(r / n), int(n)] for c, r, n in zip(*sums, counts, strict=True) if n],
        }
    return kinds


def shown_words(
    est: StructuredPredictor, f: Potentials, X: list[Floats], y: list[NDArray[np.str_]], words: NDArray[np.intp]
) -> list[dict[str, Any]]:
    """A few words, about half of them with mistakes: what was predicted, and the three most probable letters."""
    predicted = f.split(Chain(1).argmax(f))
    spelled = ["".join(np.array(LETTERS)[labels]) for labels in predicted]
    truth = ["".join(letters) for letters in y]
    lengths_fit = [n for n in range(len(words)) if 5 <= len(truth[n]) <= 10]
    wrong = [n for n in lengths_fit if spelled[n] != truth[n]][: N_SHOWN // 2]
    right = [n for n in lengths_fit if spelled[n] == truth[n]][: N_SHOWN - len(wrong)]
    shown = []
    for n in sorted(wrong + right):
        q = est.predict_marginals([X[n]])[0]
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
