"""What the galleries of reports have in common: which images are shown, and how they get onto a page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perturbmap.experiments.report import image
from perturbmap.potentials import Floats

#: Colours of pixels, (height, width, 3), from 0 to 1.
Picture = NDArray[np.float64]


def pick(losses: Floats, n_best: int, n_between: int) -> dict[str, list[int]]:
    """The best, evenly spaced ones, and as many of the worst; none twice."""
    order = np.argsort(losses, kind="stable").tolist()
    n_ends = min(n_best, len(order) // 3)
    best, rest, worst = order[:n_ends], order[n_ends : len(order) - n_ends], order[len(order) - n_ends :]
    n_spaced = min(n_between, len(rest))
    spaced = ((np.arange(n_spaced) + 0.5) * len(rest) / max(1, n_spaced)).astype(int)
    return {"The best": best, "In between, evenly spaced": [rest[i] for i in spaced], "The worst": worst}


def uri(picture: Picture) -> str:
    """A picture as the text of a link that holds it."""
    return image((255 * picture.clip(0, 1)).round().astype(np.uint8))
