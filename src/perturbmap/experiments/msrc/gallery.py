"""Test photos with their true classes, what methods make of them, and how sure these are."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from perturbmap.experiments.exhibits import Picture, pick, uri
from perturbmap.experiments.msrc.data import Msrc, Photo
from perturbmap.experiments.msrc.experiment import Experiment, outcome_name
from perturbmap.experiments.msrc.findings import Findings
from perturbmap.experiments.msrc.learning import best_labels, calibrations_of, probabilities
from perturbmap.images import read_image
from perturbmap.images.superpixels import stretch
from perturbmap.inference.decoding import Decoding
from perturbmap.potentials import Floats, Labels

LONGEST_SIDE = 240
N_BEST, N_BETWEEN = 3, 5
#: The methods that are shown, where they are there; photos are in the order of the last one's accuracy.
SHOWN = ("unaries", "perturb-map", "weighted")
COLOUR_MAP = "magma"
_COLOURS = {
    "grass": (0.36, 0.68, 0.23),
    "tree": (0.10, 0.40, 0.20),
    "sky": (0.60, 0.83, 0.97),
    "water": (0.13, 0.40, 0.75),
    "road": (0.55, 0.52, 0.55),
    "building": (0.62, 0.20, 0.16),
    "face": (0.97, 0.75, 0.62),
    "body": (0.90, 0.45, 0.20),
}


@dataclass(frozen=True)
class Panel:
    """What a method makes of a photo: its best labelling, and the probabilities of the labels there."""

    method: str
    accuracy: float
    labels: str
    heat: str


@dataclass(frozen=True)
class Exhibit:
    """A photo, its true classes, and what methods make of it."""

    name: str
    image: str
    truth: str
    classes: list[str]
    panels: list[Panel]


def colours(classes: Sequence[str]) -> Floats:
    """A colour for each class, (n_classes, 3): its own where a reader expects one, others with hues far apart."""
    golden = (5**0.5 - 1) / 2
    spread = [colorsys.hls_to_rgb(k * golden % 1, (0.5, 0.36, 0.68)[k % 3], 0.75) for k in range(len(classes))]
    return np.array([_COLOURS.get(name, colour) for name, colour in zip(classes, spread, strict=True)])


def hexadecimal(colour: Floats) -> str:
    """A colour as a page has it."""
    return "#" + "".join(f"{round(255 * c):02x}" for c in colour)


def scale() -> list[str]:
    """The colours of probabilities from 0 to 1."""
    from matplotlib import colormaps

    return [hexadecimal(colour[:3]) for colour in colormaps[COLOUR_MAP](np.linspace(0, 1, 9))]


def hang(findings: Findings, experiment: Experiment, msrc: Msrc) -> dict[str, list[Exhibit]]:
    """The best photos, some in between, and the worst, by the accuracy of the last method shown."""
    methods = [method for method in SHOWN if method in findings.methods] or findings.methods[:1]
    test, n_classes = experiment.parts["test"], len(experiment.classes)
    cells = {method: findings.cells[method, Decoding.MAP.name] for method in methods}
    totals = np.maximum(1.0, cells[methods[-1]].totals.sum(axis=1))
    right = {method: 100 * cell.judged.right.sum(axis=1) / totals for method, cell in cells.items()}
    groups = pick(-right[methods[-1]], N_BEST, N_BETWEEN)
    numbers = [n for group in groups.values() for n in group]
    photos = [test[n] for n in numbers]
    found: dict[str, tuple[list[Labels], list[Floats]]] = {}
    for method in methods:
        entry = findings.results[outcome_name(method)]
        model = experiment.model(findings.results, method, entry["l2"])
        reader = model.reader(n_classes, calibrations_of(entry["calibrations"]), experiment.effort, experiment.seed)
        found[method] = best_labels(model, photos, n_classes), probabilities(reader, model, photos)
    palette = colours(experiment.classes)

    def exhibit(n: int) -> Exhibit:
        at, photo = numbers.index(n), test[n]
        wall = _Wall.of(photo, msrc)
        panels = []
        for method, (labels, q) in found.items():
            y = labels[at]
            heat = q[at][np.arange(len(y)), y]
            panels.append(Panel(method, right[method][n], uri(wall.labels(palette[y])), uri(wall.heat(heat))))
        present = [experiment.classes[k] for k in np.argsort(-photo.pixels.sum(axis=0)) if photo.pixels[:, k].any()]
        return Exhibit(photo.file.stem, uri(wall.photo), uri(wall.truth(palette)), present, panels)

    return {name: [exhibit(n) for n in group] for name, group in groups.items() if group}


@dataclass(frozen=True, eq=False)
class _Wall:
    """Where one photo hangs: at the size it is shown in, with its superpixels and its label map (-1 is void)."""

    photo: Picture
    regions: Labels
    classes: Labels

    @classmethod
    def of(cls, photo: Photo, msrc: Msrc) -> _Wall:
        regions, classes = msrc.superpixels[photo.file].map, msrc.label_map(photo)
        share = min(1.0, LONGEST_SIDE / max(regions.shape))
        height, width = (max(1, round(share * side)) for side in regions.shape)
        pixels = Image.fromarray((255 * read_image(photo.file)).round().astype(np.uint8))
        shown = np.asarray(pixels.resize((width, height), Image.Resampling.LANCZOS)) / 255
        return cls(shown, stretch(regions, (height, width)), stretch(classes, (height, width)))

    def labels(self, colour: Floats) -> Picture:
        """The colours of superpixels, through which the photo shines."""
        return self._tinted(colour[self.regions])

    def truth(self, palette: Floats) -> Picture:
        """The colours of the label map; void is black."""
        return self._tinted(np.concatenate([palette, np.zeros((1, 3))])[self.classes])

    def _tinted(self, colour: Picture) -> Picture:
        return np.asarray(0.7 * colour + 0.3 * self.photo.mean(axis=2, keepdims=True))

    def heat(self, q: Floats) -> Picture:
        """Probabilities of superpixels by a colour map."""
        from matplotlib import colormaps

        return np.asarray(colormaps[COLOUR_MAP](q[self.regions])[..., :3])
