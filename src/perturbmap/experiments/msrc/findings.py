"""What the results of the MSRC experiment say: accuracies, and differences with errors paired over photos."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perturbmap.experiments.differences import PairedDifference
from perturbmap.experiments.msrc.experiment import Experiment, learned_name, outcome_name
from perturbmap.experiments.msrc.learning import Judged
from perturbmap.experiments.msrc.plan import BASE, DECODINGS, METHODS
from perturbmap.experiments.results import Results
from perturbmap.potentials import Floats

MEASURES = {"accuracy": "accuracy", "class_accuracy": "mean class accuracy"}


@dataclass(frozen=True, eq=False)
class Cell:
    """A method read in one way, judged on the test photos.

    totals : (n_photos, n_classes), the pixels of each class
    """

    method: str
    decoding: str
    l2: float
    seconds: float
    judged: Judged
    totals: Floats

    def value(self, measure: str) -> float:
        """The accuracy or the mean class accuracy, in per cent."""
        return float(100 * getattr(self.judged, measure))

    def influence(self, measure: str) -> Floats:
        """By how much each photo raises the measure, to first order, in per cent: (n_photos,); they sum to zero.

        Both measures are means of ratios ``sum_n right[n, k] / sum_n totals[n, k]``, of all classes together or of
        each; photo n adds ``(right[n, k] - ratio[k] totals[n, k]) / sum_n totals[n, k]`` to one.
        """
        right, totals = self.judged.right, self.totals
        if measure == "accuracy":
            right, totals = right.sum(axis=1, keepdims=True), totals.sum(axis=1, keepdims=True)
        there = totals.sum(axis=0) > 0
        right, totals = right[:, there], totals[:, there]
        whole = totals.sum(axis=0)
        return np.asarray(100 * ((right - right.sum(axis=0) / whole * totals) / whole).mean(axis=1))

    @property
    def by_class(self) -> Floats:
        """The share of each class's pixels that are right, in per cent; NaN for a class that no photo shows."""
        totals = self.totals.sum(axis=0)
        right = 100 * self.judged.right.sum(axis=0)
        return np.asarray(np.divide(right, totals, out=np.full_like(totals, np.nan), where=totals > 0))


@dataclass(frozen=True)
class Difference(PairedDifference):
    """The difference of two cells in one measure, in points, and its standard error over photos, paired."""

    @classmethod
    def of(cls, a: Cell, b: Cell, measure: str) -> Difference:
        """The difference a - b."""
        d = a.influence(measure) - b.influence(measure)
        error = np.sqrt((d**2).sum() * len(d) / max(1, len(d) - 1))
        return cls(a.value(measure) - b.value(measure), float(error))

    @property
    def text(self) -> str:
        """The difference with its standard error."""
        return f"{self.mean:+.1f} ± {self.error:.1f}"


@dataclass(frozen=True)
class Findings:
    """The cells of an experiment by method and decoding; of a part of it, those that are there."""

    results: Results
    experiment: Experiment

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """The cells by method and decoding."""
        totals = np.array([photo.pixels.sum(axis=0) for photo in self.experiment.parts["test"]])
        found = {}
        for method in self.methods:
            entry = self.results[outcome_name(method)]
            seconds = self.results[learned_name(method, entry["l2"])]["seconds"]
            for decoding, counts in entry["judged"].items():
                judged = Judged(*(np.array(counts[name], dtype=np.float64) for name in ("confusion", "right")))
                found[method, decoding] = Cell(method, decoding, entry["l2"], seconds, judged, totals)
        return found

    @property
    def methods(self) -> list[str]:
        """The methods that were tested."""
        return [method for method in METHODS if outcome_name(method) in self.results]

    def best(self, measure: str) -> Cell:
        """The cell of the greatest value."""
        return max(self.cells.values(), key=lambda cell: cell.value(measure))

    def gains(self) -> dict[tuple[str, str, str], Difference]:
        """What each method has over the unaries alone in the same decoding: by method, decoding and measure."""
        return {
            (method, decoding, measure): Difference.of(cell, self.cells[BASE, decoding], measure)
            for (method, decoding), cell in self.cells.items()
            for measure in MEASURES
            if method != BASE and (BASE, decoding) in self.cells
        }

    def lead(self, method: str, measure: str) -> tuple[Cell, Cell, Difference] | None:
        """The best cell of a method, the best of all others, and their difference; None where either is missing."""
        ours = [cell for cell in self.cells.values() if cell.method == method]
        others = [cell for cell in self.cells.values() if cell.method != method]
        if not ours or not others:
            return None
        a, b = (max(some, key=lambda cell: cell.value(measure)) for some in (ours, others))
        return a, b, Difference.of(a, b, measure)


def decodings() -> dict[str, str]:
    """The names of decodings as a reader knows them."""
    names = {"MAP": "MAP", "LOSS_AWARE": "loss-aware"}
    return {decoding.name: names[decoding.name] for decoding in DECODINGS}
