"""What the results of the tagging experiment say: accuracies, and differences with errors paired over sentences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from perturbmap.experiments.differences import PairedDifference
from perturbmap.experiments.results import Results
from perturbmap.experiments.tagging.data import KNOWN
from perturbmap.experiments.tagging.experiment import Experiment, entry_name
from perturbmap.experiments.tagging.learning import Job
from perturbmap.experiments.tagging.plan import METHODS, OURS
from perturbmap.potentials import Floats


@final
@dataclass(frozen=True, eq=False)
class Cell:
    """A tagger, judged by the test sentences.

    right, n_words : (n_sentences,), the words whose tag is right, and all
    """

    job: Job
    entry: dict[str, Any]
    right: Floats
    n_words: Floats

    @property
    def accuracy(self) -> float:
        """The words whose tag is right, in per cent."""
        return float(100 * self.right.sum() / self.n_words.sum())

    @property
    def seconds(self) -> float:
        """From names and tags to weights."""
        return float(self.entry["seconds"])

    @property
    def megabytes(self) -> float | None:
        """The memory that learning has added; None where the system does not tell."""
        memory = self.entry["memory"]
        return None if memory is None else float(memory["peak"] - memory["before"])

    @property
    def file_megabytes(self) -> float:
        """The size of the tagger's file."""
        return float(self.entry["bytes"]) / 1e6

    @property
    def calibration_error(self) -> float | None:
        """How far said probabilities are from how often they are right, in points; None for a margin."""
        found = self.entry.get("reliability")
        return None if found is None else 100 * float(found["calibration_error"])

    @property
    def log_loss(self) -> float | None:
        """The mean of minus the logarithm of the probability of the right tag; None for a margin."""
        found = self.entry.get("reliability")
        return None if found is None else float(found["log_loss"])


@final
@dataclass(frozen=True)
class Difference(PairedDifference):
    """The difference of two accuracies in points, and its standard error over sentences, paired."""

    @classmethod
    def of(cls, a: Cell, b: Cell) -> Difference:
        """The difference a - b; its error is that of a ratio of sums over sentences."""
        d, n_words = a.right - b.right, a.n_words
        ratio, n = d.sum() / n_words.sum(), len(d)
        error = np.sqrt(((d - ratio * n_words) ** 2).sum() * n / max(1, n - 1)) / n_words.sum()
        return cls(float(100 * ratio), float(100 * error))

    @property
    def text(self) -> str:
        """The difference with its standard error."""
        return f"{self.mean:+.2f} ± {self.error:.2f}"


@final
@dataclass(frozen=True)
class Findings:
    """The taggers that were chosen; of a part of the experiment, those that are there."""

    results: Results
    experiment: Experiment

    @cached_property
    def methods(self) -> dict[str, Cell]:
        """By method, the tagger that learned from all tags."""
        return {m: cell for m in METHODS if (cell := self._cell(m, "all")) is not None}

    @cached_property
    def known(self) -> dict[str, Cell]:
        """By what was known, the tagger of our method."""
        found = {known: self._cell(OURS, known) for known in ("tenth", "none", "some", "all")}
        return {known: cell for known, cell in found.items() if cell is not None and known in KNOWN}

    def _cell(self, method: str, known: str) -> Cell | None:
        try:
            job = self.experiment.chosen(self.results, method, known)
        except KeyError:
            return None
        entry = self.results[entry_name(job)]
        n_words = np.array([len(tags) for tags in self.experiment.corpus.parts["test"].tags], dtype=np.float64)
        return Cell(job, entry, np.array(entry["right"], dtype=np.float64), n_words)

    def over(self, base: str) -> dict[str, Difference]:
        """What each other method has over one, if that was run."""
        cells = self.methods
        return {m: Difference.of(cells[m], cells[base]) for m in cells if base in cells and m != base}

    def over_the_tenth(self) -> dict[str, Difference]:
        """What is gained by all that is known beside the labelled tenth."""
        cells = self.known
        return {k: Difference.of(cells[k], cells["tenth"]) for k in cells if "tenth" in cells and k != "tenth"}
