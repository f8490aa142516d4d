"""What the horse experiment has found, in numbers: losses, paired differences, gains; all in per cent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from perturbmap.experiments.horses.plan import COLUMNS, DECODINGS, MAIN_LOSS, METHODS, SEARCHED, Choices, Effort, Task
from perturbmap.experiments.results import Results
from perturbmap.potentials import Floats

Run = dict[str, Any]

#: The columns of the paper's tables.
TABLES = {
    "Table 3": [c for c, column in COLUMNS.items() if column.n_masks is None],
    "Table 4": [c for c, column in COLUMNS.items() if "14" in (c, column.base)],
}


def title(column: str) -> str:
    """The title of a column with that of its base: what there is to learn from."""
    about = COLUMNS[column]
    return f"{title(about.base)} {about.name.replace(', ', ' with ')}" if about.base else about.name


@dataclass(frozen=True)
class Cell:
    """A method in a column, read in one way, at the (l2, kappa) chosen for that; a run for every draw."""

    column: str
    method: str
    decoding: str
    l2: float
    kappa: float
    runs: dict[int, Run]

    def losses(self, kind: str = MAIN_LOSS) -> list[float]:
        """The losses, one for each draw."""
        return [100 * run["losses"][self.decoding][kind] for run in self.runs.values()]

    @property
    def mean(self) -> float:
        """The mean loss over draws."""
        return float(np.mean(self.losses()))

    @property
    def spread(self) -> float | None:
        """The standard deviation over draws; one has none."""
        return float(np.std(self.losses(), ddof=1)) if len(self.runs) > 1 else None

    @property
    def text(self) -> str:
        """Mean and spread as they stand in a table."""
        return f"{self.mean:.1f}" if self.spread is None else f"{self.mean:.1f} ± {self.spread:.1f}"

    @property
    def paper(self) -> float | None:
        """The paper's loss, if it has one; it reads by the best labelling alone."""
        return COLUMNS[self.column].paper.get(self.method) if self.decoding == "MAP" else None

    def images(self, draws: list[int]) -> Floats:
        """The losses of the test images, (n_draws, n_images)."""
        return 100 * np.array([self.runs[draw]["images"][self.decoding] for draw in draws])


@dataclass(frozen=True)
class Difference:
    """The difference of two cells, paired: the mean, and its standard errors over test images and over draws.

    That over images is of the mean over draws. ``needs_draws`` where the masks are drawn: one draw decides nothing.
    """

    mean: float
    over_images: float | None
    over_draws: float | None
    n_images: int
    n_draws: int
    needs_draws: bool

    @classmethod
    def of(cls, a: Cell | None, b: Cell | None) -> Difference | None:
        """The difference a - b, over the draws that both have; None without any."""
        draws = sorted(a.runs.keys() & b.runs.keys()) if a and b else []
        if a is None or b is None or not draws:
            return None
        d = a.images(draws) - b.images(draws)
        over_images, over_draws = _standard_error(d.mean(axis=0)), _standard_error(d.mean(axis=1))
        is_drawn = COLUMNS[a.column].n_masks is not None
        return cls(float(d.mean()), over_images, over_draws, d.shape[1], len(draws), is_drawn)

    @property
    def error(self) -> float | None:
        """The standard error of both together: other images and other draws."""
        errors = [e for e in (self.over_images, self.over_draws) if e is not None]
        return float(np.hypot.reduce(errors)) if errors else None

    @property
    def verdict(self) -> str:
        """Less loss is better; within the noise unless beyond it, at the 5 % level."""
        n = self.n_draws if self.needs_draws else self.n_images
        is_clear = n > 1 and self.error is not None and abs(self.mean) > student_t.ppf(0.975, n - 1) * self.error
        return "within" if not is_clear else "better" if self.mean < 0 else "worse"

    @property
    def text(self) -> str:
        """The difference with its standard error."""
        return f"{self.mean:+.1f}" if self.error is None else f"{self.mean:+.1f} ± {self.error:.1f}"


def _standard_error(values: Floats) -> float | None:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


@dataclass(frozen=True)
class Findings:
    """The results of an experiment by column, method and decoding; of a part of it, those that are there."""

    results: Results
    effort: Effort

    @cached_property
    def choices(self) -> Choices:
        """What cross-validation has found best."""
        return Choices(self.results, self.effort)

    @cached_property
    def cells(self) -> dict[tuple[str, str, str], Cell]:
        """The cells by column, method and decoding; only those with a run."""
        found = (self._cell(c, m, d.name) for c in COLUMNS for m in METHODS for d in DECODINGS)
        return {(cell.column, cell.method, cell.decoding): cell for cell in found if cell is not None}

    def _cell(self, column: str, method: str, decoding: str) -> Cell | None:
        try:
            l2, kappa = self.choices.best(column, method, decoding)
        except KeyError:  # not searched to the end
            return None
        draws = self.effort.draws(column)
        keys = {draw: Task(column, method, draw, ()).key(l2, kappa) for draw in draws}
        runs = {draw: self.results[key] for draw, key in keys.items() if key in self.results}
        return Cell(column, method, decoding, l2, kappa, runs) if runs else None

    @property
    def columns(self) -> list[str]:
        """The columns that have a cell."""
        return [c for c in COLUMNS if any(c == key[0] for key in self.cells)]

    @property
    def methods(self) -> list[str]:
        """The methods that have a cell."""
        return [m for m in METHODS if any(m == key[1] for key in self.cells)]

    def of(self, column: str, method: str) -> list[Cell]:
        """The cells of a method in a column, in both decodings."""
        return [cell for (c, m, _), cell in self.cells.items() if (c, m) == (column, method)]

    def best(self, column: str, method: str) -> Cell | None:
        """The cell at the decoding of least test loss."""
        return min(self.of(column, method), key=lambda cell: cell.mean, default=None)

    def held_out(self, column: str, method: str, decoding: str) -> float | None:
        """The loss in cross-validation, at the choice; None where it was not searched for."""
        try:
            loss = self.choices.held_out(column, method, decoding, *self.choices.best(column, method, decoding))
        except KeyError:
            return None
        return 100 * loss

    def is_searched(self, column: str, method: str) -> bool:
        """Whether both decodings have held-out losses."""
        return all(self.held_out(column, method, d.name) is not None for d in DECODINGS)

    def chosen(self, column: str, method: str) -> Cell | None:
        """The cell at the decoding of least held-out loss; where nobody searched, as with 14 masks or with all."""
        if not self.effort.is_searched:
            return None
        about, like = COLUMNS[column], column
        if column not in SEARCHED and not about.weak:
            like = SEARCHED[0] if about.n_masks is not None and about.n_masks < 45 else SEARCHED[1]
        losses = [(loss, d.name) for d in DECODINGS if (loss := self.held_out(like, method, d.name)) is not None]
        if len(losses) < len(DECODINGS):
            return None
        return self.cells.get((column, method, min(losses, key=lambda pair: pair[0])[1]))

    def gains(self) -> Iterator[tuple[Cell, Difference]]:
        """What weak labels change: columns that have some, minus their bases."""
        for (column, method, decoding), cell in self.cells.items():
            difference = Difference.of(cell, self.cells.get((COLUMNS[column].base, method, decoding)))
            if difference is not None:
                yield cell, difference
