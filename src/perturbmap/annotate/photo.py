"""A photo that is ready to be marked: its superpixels and colours, computed once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from skimage.color import rgb2lab

from perturbmap.annotate.palette import N_CELLS, Cells, cells_of
from perturbmap.estimator import StructuredPredictor
from perturbmap.images import (
    DescribedImage,
    FeatureCache,
    ImageFeatures,
    Segmenter,
    Superpixels,
    read_image,
    segment,
)
from perturbmap.images.reading import Path_, Pixels, reduce_image
from perturbmap.images.superpixels import stretch
from perturbmap.potentials import Floats

WORKING_SIDE = 400  # pixels of the longer side, as the segmenter's features have it
SUREST = 1e-3  # the least probability of a segmenter that is believed
MOST_FINE_PIXELS = 2_100_000  # of the size in which outlines are found


@final
@dataclass(frozen=True, eq=False)
class Photo:
    """A photo with all that an answer needs and that no mark changes.

    path, shape : its file, and (rows, columns) at full size
    image : (rows, columns, 3) at working size, RGB in [0, 1]
    regions : its superpixels, at working size
    colours : (n_regions, 3), the mean Lab colour of each
    centres : (n_regions, 2), its mean row and column, as shares of the longer side
    shares : (n_regions, n_cells), sparse, which share of a superpixel has a colour of which cell (`palette`)
    fine_lab, fine_cells : Lab colours and cells of the pixels, in the size in which the outline is found
    """

    path: Path
    shape: tuple[int, int]
    image: Pixels
    regions: Superpixels
    colours: Floats
    centres: Floats
    shares: sp.csr_array
    fine_lab: Pixels
    fine_cells: Cells
    cache: Path | None = None
    _described: dict[str, DescribedImage] = field(default_factory=dict, repr=False)
    _learned: list[tuple[StructuredPredictor, Floats]] = field(default_factory=list, repr=False)

    @property
    def working_shape(self) -> tuple[int, int]:
        """The rows and columns of the working size, in which superpixels are found and doubt is shown."""
        return self.image.shape[0], self.image.shape[1]

    @property
    def fine_shape(self) -> tuple[int, int]:
        """The rows and columns of the size in which the outline is found: the full size, where that is small."""
        return self.fine_cells.shape[0], self.fine_cells.shape[1]

    def describe(self, features: ImageFeatures) -> DescribedImage:
        """The photo as an example of a segmenter with these features; computed when it is asked for first.

        It takes about a second then, less where the cache has it, so that a program calls this before it is needed.
        The last description is kept.
        """
        key = features.fingerprint()
        found = self._described.get(key)
        if found is None:
            if self.cache is None:
                found = features.describe(self.path)
            else:
                found = FeatureCache(self.cache, features).load([self.path], progress=False, mmap=False)[self.path]
            self._described.clear()
            self._described[key] = found
        return found

    def learned(self, segmenter: Segmenter) -> Floats:
        """The segmenter's ``log P(label)`` of each superpixel, (n_regions, n_labels); those of the last one are kept.

        Its superpixels are spread over ours by their pixels. As with `describe`, the first call takes a while.
        """
        for fitted, scores in self._learned:
            if fitted is segmenter.predictor:
                return scores
        described = self.describe(segmenter.features)
        (q,) = segmenter.predictor.predict_marginals([described.example])
        on_pixels = np.log(np.maximum(q, SUREST))[stretch(described.superpixels.map, self.working_shape)]
        scores = means(self.regions, on_pixels)
        self._learned[:] = [(segmenter.predictor, scores)]
        return scores


def prepare(path: Path_, *, n_superpixels: int = 1500, cache: str | os.PathLike[str] | None = None) -> Photo:
    """Reads a photo and finds its superpixels; about a second, four for 12 megapixels.

    n_superpixels : of the working size; more follow the outline better, and take more time
    cache : the folder in which the features of a segmenter are kept, the one of ``perturbmap segment``
    """
    full = read_image(path)
    shape = full.shape[0], full.shape[1]
    image = reduce_image(full, WORKING_SIDE)
    fine = reduce_image(full, round(max(shape) * min(1.0, (MOST_FINE_PIXELS / (shape[0] * shape[1])) ** 0.5)))
    regions = segment(image, n_superpixels)
    lab = np.asarray(rgb2lab(image), dtype=np.float32)
    fine_lab = np.asarray(rgb2lab(fine), dtype=np.float32)
    return Photo(
        Path(path),
        shape,
        image,
        regions,
        means(regions, lab),
        means(regions, np.moveaxis(np.indices(lab.shape[:2]), 0, 2) / max(lab.shape)),
        _shares(regions, cells_of(lab)),
        fine_lab,
        cells_of(fine_lab),
        None if cache is None else Path(cache),
    )


def means(regions: Superpixels, values: NDArray[Any]) -> Floats:
    """The mean of each channel over each superpixel, (n_regions, n_channels)."""
    where = regions.map.ravel()
    sums = [np.bincount(where, channel) for channel in values.reshape(-1, values.shape[2]).T]
    return np.stack(sums, axis=1) / regions.areas[:, None]


def _shares(regions: Superpixels, cells: Cells) -> sp.csr_array:
    """Each row sums to 1."""
    weights = 1.0 / regions.areas[regions.map.ravel()]
    pairs = (weights, (regions.map.ravel(), cells.ravel()))
    return sp.csr_array(sp.coo_array(pairs, shape=(len(regions), N_CELLS)))
