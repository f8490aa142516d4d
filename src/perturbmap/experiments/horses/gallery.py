"""Figure 1 of the paper, for a page of test images: the image, its truth, the marginals and cuts of each method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from skimage.segmentation import find_boundaries

from perturbmap.experiments.exhibits import Picture, pick, uri
from perturbmap.experiments.horses.data import Horses
from perturbmap.experiments.horses.experiment import Experiment
from perturbmap.experiments.horses.findings import Cell, Findings
from perturbmap.experiments.horses.learning import calibrations_of, read
from perturbmap.experiments.horses.plan import DECODINGS
from perturbmap.images import read_image
from perturbmap.inference import Decoding, LabelPrior
from perturbmap.potentials import Floats, Labels

LONGEST_SIDE = 220
N_BEST, N_BETWEEN = 4, 5
#: Missed foreground, false foreground, outline of the loss-aware cut.
MISSED, FALSE, OUTLINE = "#e8380d", "#0072b2", "#f0e442"
COLOUR_MAP = "magma"


@dataclass(frozen=True)
class Panel:
    """What a method makes of an image."""

    method: str
    losses: dict[str, float]
    heat: str
    cut: str


@dataclass(frozen=True)
class Exhibit:
    """An image and what the methods make of it."""

    name: str
    image: str
    truth: str
    panels: list[Panel]


@dataclass(frozen=True)
class Gallery:
    """Some images, by the loss of one method; ``shown`` is the cell of every method.

    Over the area of all test images, ``shares`` has the mean probability of horse by each method; ``true_share`` is
    how much of it there is.
    """

    ordered_by: Cell
    shown: list[Cell]
    shares: dict[str, float]
    true_share: float
    groups: dict[str, list[Exhibit]]

    @property
    def scale(self) -> list[str]:
        """The colours of marginals from 0 to 1."""
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        return [to_hex(colour) for colour in colormaps[COLOUR_MAP](np.linspace(0, 1, 9))]


def hang(findings: Findings, experiment: Experiment) -> Gallery | None:
    """Reads the test images once more, by the weights learned on "small"; None where there are none."""
    test = experiment.horses.parts["test"]
    shown = [cell for method in findings.methods if (cell := _shown(findings, method)) is not None]
    if not shown:
        return None
    ordered_by = next((cell for cell in shown if cell.method == "weighted"), shown[-1])
    groups = pick(ordered_by.images([0])[0], N_BEST, N_BETWEEN)
    readings = []
    for cell in shown:
        w, prior = (np.array(cell.runs[0][name]) for name in ("weights", "prior"))
        # All of them, although few are shown: the noise is then that of the losses.
        how = calibrations_of(cell.runs[0]["calibrations"]), test, experiment.effort, experiment.seed
        readings.append(read(experiment.horses, cell.method, w, LabelPrior(*prior), *how))
    data, truth = experiment.horses.data.take(test), experiment.horses.labels[experiment.horses.sites(test)]
    offsets, judged = data.layout.site_offsets, np.where(truth >= 0, data.sizes, 0.0)
    shares = {c.method: float(np.average(q, weights=judged)) for c, (_, q) in zip(shown, readings, strict=True)}

    def exhibit(n: int) -> Exhibit:
        wall = _Wall.of(experiment.horses, int(test[n]))
        sites = slice(*offsets[n : n + 2])
        panels = []
        for cell, (labels, q) in zip(shown, readings, strict=True):
            losses = {d.name: 100 * cell.runs[0]["images"][d.name][n] for d in DECODINGS}
            cut, aware = (labels[d.name][sites] for d in (Decoding.MAP, Decoding.LOSS_AWARE))
            panels.append(Panel(cell.method, losses, uri(wall.heat(q[sites])), uri(wall.cut(cut, aware))))
        return Exhibit(experiment.horses.files[test[n]].stem, uri(wall.photo), uri(wall.cut(wall.truth)), panels)

    exhibits = {name: [exhibit(n) for n in group] for name, group in groups.items() if group}
    return Gallery(ordered_by, shown, shares, float(np.average(truth == 1, weights=judged)), exhibits)


def _shown(findings: Findings, method: str) -> Cell | None:
    """One model per method: that of the decoding chosen by held-out loss, or else that of the best labelling."""
    cell = findings.chosen("small", method) or findings.cells.get(("small", method, Decoding.MAP.name))
    return cell if cell is not None and "weights" in cell.runs[0] else None


@dataclass(frozen=True, eq=False)
class _Wall:
    """Where one image hangs: at the size it is shown in, with its superpixels and their true labels."""

    photo: Picture
    regions: Labels
    truth: Labels

    @classmethod
    def of(cls, horses: Horses, n: int) -> _Wall:
        pixels, regions = read_image(horses.files[n]), horses.regions[n].map
        scale = min(1.0, LONGEST_SIDE / max(regions.shape))
        size = (max(1, round(scale * regions.shape[1])), max(1, round(scale * regions.shape[0])))
        photo = Image.fromarray((255 * pixels).round().astype(np.uint8)).resize(size, Image.Resampling.LANCZOS)
        y, x = (((np.arange(n) + 0.5) * m / n).astype(int) for n, m in zip(size[::-1], regions.shape, strict=True))
        sites = horses.data.layout.sites(n)
        return cls(np.asarray(photo) / 255, regions[np.ix_(y, x)], horses.labels[sites])

    def _paint(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.asarray(values[self.regions])

    def heat(self, q: Floats) -> Picture:
        """Marginals of the foreground, with the outline of the truth."""
        from matplotlib import colormaps

        picture = np.asarray(colormaps[COLOUR_MAP](self._paint(q))[..., :3])
        picture[self._outline(self.truth)] = 1.0
        return picture

    def cut(self, labels: Labels, other: Labels | None = None) -> Picture:
        """What is cut out stays, the rest fades; mistakes are tinted, and the other labelling is outlined."""
        grey = self.photo.mean(axis=2, keepdims=True)
        picture = np.where(self._paint(labels == 1)[..., None], self.photo, 0.3 * grey + 0.7)
        for is_wrong, colour in (
            ((labels == 0) & (self.truth == 1), MISSED),
            ((labels == 1) & (self.truth == 0), FALSE),
        ):
            picture[self._paint(is_wrong)] = 0.4 * picture[self._paint(is_wrong)] + 0.6 * _rgb(colour)
        if other is not None:
            picture[self._outline(other)] = _rgb(OUTLINE)
        return picture

    def _outline(self, labels: Labels) -> NDArray[np.bool_]:
        return np.asarray(find_boundaries(self._paint(labels == 1), mode="inner"))


def _rgb(colour: str) -> Picture:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
