"""Are the probabilities right? Pinned and corrected ones of the test images, beside how often they came true."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perturbmap.experiments.horses.experiment import Experiment
from perturbmap.experiments.horses.findings import Cell
from perturbmap.experiments.horses.learning import calibrations_of, learned_model
from perturbmap.experiments.report import COLOURS
from perturbmap.inference import CONVERGING, PINNED, LabelPrior
from perturbmap.potentials import Floats, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = {"PINNED": PINNED, "CONVERGING": CONVERGING}
_N_BINS = 10
# Probabilities below this count as this: one superpixel alone is not to decide.
_SMALLEST = 1e-6


@dataclass(frozen=True)
class Reliability:
    """Superpixels in ten groups, from those that are least to those that are most probably horse.

    probability : (n_groups,), the mean probability of horse in each, over the area
    share : (n_groups,), how much of the area is horse
    log_loss : the mean surprise at the truth over the area, in bits
    """

    probability: Floats
    share: Floats
    log_loss: float

    @classmethod
    def of(cls, q: Floats, is_horse: Mask, sizes: Floats) -> Reliability:
        """What probabilities of horse are worth; groups are of equal width, and empty ones are left out."""
        group = np.minimum((q * _N_BINS).astype(int), _N_BINS - 1)
        area, expected, found = (
            np.bincount(group, weights, _N_BINS) for weights in (sizes, sizes * q, sizes * is_horse)
        )
        there = area > 0
        surprise = -np.log2(np.maximum(np.where(is_horse, q, 1 - q), _SMALLEST))
        loss = float(np.average(surprise, weights=sizes))
        return cls(expected[there] / area[there], found[there] / area[there], loss)


def reliabilities(cell: Cell, experiment: Experiment) -> dict[tuple[str, bool], Reliability]:
    """Of one model on the test images, by the name of the marginals and whether they are calibrated."""
    horses, run = experiment.horses, cell.runs[0]
    test = horses.parts["test"]
    data, truth = horses.data.take(test), horses.labels[horses.sites(test)]
    known = (truth >= 0) & (data.sizes > 0)
    w, prior = np.array(run["weights"]), LabelPrior(*np.array(run["prior"]))
    calibrations = calibrations_of(run["calibrations"])
    learned = learned_model(horses, cell.method, w, prior, calibrations, experiment.effort, experiment.seed)
    found = {}
    for name, method in METHODS.items():
        for is_calibrated in (True, False):
            model = learned if is_calibrated else replace(learned, calibration=None)
            q = model.marginals(data, method=method)[known, 1]
            found[name, is_calibrated] = Reliability.of(q, truth[known] == 1, data.sizes[known])
    return found


def draw_reliabilities(axes: Axes, found: dict[tuple[str, bool], Reliability]) -> None:
    """How often horse was there against how probable it was; the diagonal is right."""
    axes.plot([0, 1], [0, 1], color="#888", linewidth=1)
    for (name, is_calibrated), one in found.items():
        axes.plot(
            one.probability,
            one.share,
            "o-" if is_calibrated else "o--",
            color=COLOURS[list(METHODS).index(name)],
            markersize=4,
            linewidth=1.8 if is_calibrated else 1,
            label=f"{name}{'' if is_calibrated else ', not calibrated'}: {one.log_loss:.3f} bits",
        )
    axes.set_xlabel("probability of horse")
    axes.set_ylabel("share of the area that is horse")
    axes.set_aspect("equal")
    axes.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=1)
