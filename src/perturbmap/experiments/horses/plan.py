"""What the horse experiment compares: methods, columns, how much is done, and what cross-validation has chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perturbmap.experiments.horses.data import Horses
from perturbmap.experiments.results import Results
from perturbmap.inference.decoding import Decoding
from perturbmap.objectives import LogLikelihood, MarginalLogLikelihood, Objective, StructuredHinge
from perturbmap.task_losses import BalancedHamming, Hamming

LOSS = BalancedHamming()
#: The loss that is chosen by and that the tables show.
MAIN_LOSS = "balanced superpixels"
DECODINGS = (Decoding.MAP, Decoding.LOSS_AWARE)


@dataclass(frozen=True)
class Method:
    """A row of the tables: what is learned, from which l2 to choose, and which is taken without a search."""

    name: str
    objective: Objective
    l2s: tuple[float, ...]
    quick_l2: float


_PLAIN_L2S = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

METHODS: dict[str, Method] = {
    "ssvm": Method("structured SVM", StructuredHinge(LOSS), (10.0, 100.0, 1e3, 1e4), 100.0),
    "perturb-map": Method("perturb&MAP", LogLikelihood(), _PLAIN_L2S, 0.1),
    "marginal": Method("marginal perturb&MAP", MarginalLogLikelihood(Hamming()), _PLAIN_L2S, 0.1),
    "weighted": Method(
        "weighted marginal perturb&MAP", MarginalLogLikelihood(LOSS), (1e-3, 3e-3, 1e-2, 3e-2, 0.1), 1e-2
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
KAPPAS = (0.1, 1.0, 10.0)
QUICK_KAPPA = 1.0
#: The columns in which l2 is searched for: the fewest masks, and all.
SEARCHED = ("14", "small")
N_SMALL = 147


@dataclass(frozen=True)
class Effort:
    """How much is done.

    n_steps : of `DoubleSGD`, with 16 images each, where masks are learned from
    n_weak_steps : the same for all images, beginning there; half as many where masks are held out
    tolerance, max_draws : of `LBFGS`
    n_passes, n_weak_passes : passes of the structured SVM, at most, in the same way; it stops at a gap of 1 %
    n_draws : draws of 14 masks; of these, n_searched_draws in which l2 and kappa are searched for
    n_curve_draws : draws of 5, 30 and 70 masks
    n_folds : of cross-validation, by which every model is calibrated
    is_searched : whether l2 and kappa are chosen by it
    n_timed : steps of the run whose pins are timed
    """

    n_steps: int = 1_000
    n_weak_steps: int = 500
    n_passes: int = 100
    n_weak_passes: int = 40
    n_draws: int = 10
    n_searched_draws: int = 5
    n_curve_draws: int = 3
    n_folds: int = 3
    n_perturbations: int = 20
    n_timed: int = 100_000
    tolerance: float = 0.005
    max_draws: int = 16
    is_searched: bool = True

    def draws(self, column: str) -> range:
        """The draws of a column's masks."""
        n_masks = COLUMNS[column].n_masks
        return range(1 if n_masks is None else self.n_draws if n_masks == 14 else self.n_curve_draws)

    def searched_draws(self, column: str) -> range:
        """Those in which l2 is searched for; with weak labels, kappa."""
        return self.draws(column)[: self.n_searched_draws]

    def of_held_out(self) -> Effort:
        """Half the steps with weak labels where masks are held out.

        Which kappa is best, and how potentials are to be calibrated, shows long before the objective comes to rest.
        """
        return replace(self, n_weak_steps=self.n_weak_steps // 2, n_weak_passes=self.n_weak_passes // 2)


QUICK_COLUMNS = ("small", "14", "14+boxes", "14+nothing")
QUICK = Effort(
    n_steps=250,
    n_weak_steps=150,
    n_passes=20,
    n_weak_passes=20,
    n_draws=1,
    n_curve_draws=1,
    n_folds=2,
    n_timed=3_000,
    tolerance=0.05,
    max_draws=64,
    is_searched=False,
)


@dataclass(frozen=True)
class Task:
    """Models of one method in one column on one draw of the masks: one for each choice of (l2, kappa).

    is_held_out : whether a part of the masks is held out, and judged, one part after the other
    calibrations : of each, for probabilities and for decoding; a held-out task finds them. None: not known, and the
        model is read by its best labelling alone
    """

    column: str
    method: str
    draw: int
    choices: tuple[tuple[float, float], ...]
    is_held_out: bool = False
    calibrations: tuple[list[list[float]] | None, ...] = ()

    def key(self, l2: float, kappa: float) -> str:
        """The name of one among the results."""
        held_out = "held out/" if self.is_held_out else ""
        weight = f"/kappa {kappa:g}" if kappa else ""
        return f"{held_out}{self.column}/{self.method}/draw {self.draw}/l2 {l2:g}{weight}"


def possible_columns(horses: Horses, columns: Sequence[str]) -> list[str]:
    """The columns whose weak labels are there and whose masks are some of all; fewer than 14 masks only beside 14."""
    n_small = len(horses.parts["small"])

    def is_possible(column: Column) -> bool:
        needed = 0 if column.n_masks is None else max(14, column.n_masks)
        return needed < n_small and all(horses.parts[part].size for part in column.weak)

    return [name for name in columns if is_possible(COLUMNS[name])]


class Choices:
    """What cross-validation has found best, for each decoding by itself."""

    def __init__(self, results: Results, effort: Effort) -> None:
        self._results, self._effort = results, effort

    def of(self, column: str, method: str) -> tuple[tuple[float, float], ...]:
        """(l2, kappa) of both decodings, once if they are the same."""
        return tuple(dict.fromkeys(self.best(column, method, decoding.name) for decoding in DECODINGS))

    def kappas(self, column: str, method: str) -> tuple[tuple[float, float], ...]:
        """What is tried first with weak labels: every kappa, with the l2 of the masks alone, of both decodings."""
        l2s = dict.fromkeys(self.l2(COLUMNS[column].base, method, decoding.name) for decoding in DECODINGS)
        return tuple((l2, kappa) for l2 in l2s for kappa in KAPPAS)

    def smaller(self, column: str, method: str) -> tuple[tuple[float, float], ...]:
        """What is tried then: the best kappa of each decoding, with the next smaller l2."""
        found = (self._smaller(column, method, decoding.name) for decoding in DECODINGS)
        return tuple(dict.fromkeys(choice for choice in found if choice is not None))

    def _smaller(self, column: str, method: str, decoding: str) -> tuple[float, float] | None:
        """There are more examples than masks, so that a smaller penalty may do; None if there is none."""
        l2, kappa = self._best_kappa(column, method, decoding)
        at = METHODS[method].l2s.index(l2)
        return (METHODS[method].l2s[at - 1], kappa) if at else None

    def _best_kappa(self, column: str, method: str, decoding: str) -> tuple[float, float]:
        """The l2 of the masks alone, and the kappa of least held-out loss with it."""
        l2 = self.l2(COLUMNS[column].base, method, decoding)
        return l2, min(KAPPAS, key=lambda kappa: self.held_out(column, method, decoding, l2, kappa))

    def best(self, column: str, method: str, decoding: str) -> tuple[float, float]:
        """The best (l2, kappa); kappa is 0 where nothing is weak."""
        if not COLUMNS[column].weak:
            return self.l2(column, method, decoding), 0.0
        if not self._effort.is_searched:
            return METHODS[method].quick_l2, QUICK_KAPPA
        first, second = self._best_kappa(column, method, decoding), self._smaller(column, method, decoding)
        tried = [first] if second is None else [first, second]
        return min(tried, key=lambda choice: self.held_out(column, method, decoding, *choice))

    def l2(self, column: str, method: str, decoding: str) -> float:
        """The l2 of least held-out loss; by the number of masks between 14 and all where it was not searched for."""
        if not self._effort.is_searched:
            return METHODS[method].quick_l2
        if column in SEARCHED:
            return min(METHODS[method].l2s, key=lambda l2: self.held_out(column, method, decoding, l2, 0.0))
        few, many = (np.log(self.l2(c, method, decoding)) for c in SEARCHED)
        where = float(np.clip(np.log((COLUMNS[column].n_masks or N_SMALL) / 14) / np.log(N_SMALL / 14), 0, 1))
        return float(f"{np.exp(few + where * (many - few)):.2g}")

    def held_out(self, column: str, method: str, decoding: str, l2: float, kappa: float) -> float:
        """The held-out loss of a choice, its mean over the draws in which it was searched for."""
        tasks = [Task(column, method, draw, (), True) for draw in self._effort.searched_draws(column)]
        return float(np.mean([self._results[task.key(l2, kappa)]["losses"][decoding] for task in tasks]))

    def calibrate(self, column: str, method: str, draw: int) -> Task:
        """The task that calibrates what is chosen for decoding by the loss; a best labelling needs no calibration."""
        return Task(column, method, draw, (self.best(column, method, Decoding.LOSS_AWARE.name),), True)

    def test(self, column: str, method: str, draw: int) -> Task:
        """The task of what is chosen, with the calibrations of its draw, where they are known."""
        chosen = self.of(column, method)
        held_out = Task(column, method, draw, (), True)
        keys = [held_out.key(*choice) for choice in chosen]
        found = tuple(self._results[key]["calibrations"] if key in self._results else None for key in keys)
        return Task(column, method, draw, chosen, calibrations=found)
