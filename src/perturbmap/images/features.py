"""Images as examples: histograms of visual words on superpixels, similarities along the edges between them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.data import Example
from perturbmap.images import descriptors
from perturbmap.images.parallel import for_each
from perturbmap.images.reading import Path_, Pixels, as_paths, read_image, reduce_image
from perturbmap.images.superpixels import Superpixels, segment
from perturbmap.images.vocabulary import Vocabulary
from perturbmap.potentials import Labels
from perturbmap.support import archive
from perturbmap.support.checks import check_count, check_number
from perturbmap.support.description import from_json, to_json
from perturbmap.support.progress import Progress, as_progress

KIND = "image features"
FEATURES_VERSION = 2  # to be raised with every change of what an image's features are: caches know it
KINDS = ("position", "colour", "sift")
SCALES = 2.0 ** np.arange(-5, 6)  # of the chi-squared distances along an edge


# From one descriptor to the next, and of a cell of one: beyond this, no image has more than a few.
_MOST_PIXELS = 256


@final
@dataclass(frozen=True, eq=False)
class DescribedImage:
    """An image as an example, with the superpixels that are its sites."""

    example: Example
    superpixels: Superpixels


@final
class ImageFeatures:
    """Features of superpixels after Kolesnikov et al. (ECCV 2014), in the order of their HorseSeg data.

    An image is cut into superpixels, small regions of similar colour, which are the sites of an `Example`. What each
    pixel looks like, its position, colour and texture (SIFT descriptors), is replaced by the nearest of some typical
    values, called words; features are histograms of words. ``fit`` learns the words, from training images only;
    ``transform`` makes an `Example` whose sizes are areas.

    A superpixel has a constant 1, then for position (16 words), colour (128) and SIFT (512) the histogram of words
    over itself, over itself and its neighbours, and over their neighbours too, each of sum 1 before its square root
    is taken: 1 + 3 * (16 + 128 + 512) = 1,969 features. An edge has a constant 1, then for each of those nine
    histograms exp(-2^k chi2), k = -5..5: 100 features.

    n_superpixels, compactness : how many superpixels, and how square they are, see `segment`
    max_side : larger images are looked at in this size, in pixels of the longer side; None: as they are
    sift_step : pixels between two SIFT descriptors
    sift_cell_sizes : pixels of the sides of the 4 x 4 cells of a descriptor; all sizes share one vocabulary
    n_position_words, n_colour_words, n_sift_words : the number of words of each kind
    n_samples : how many descriptors of each kind the words are learned from, over all images
    seed : the seed of the sampling and of k-means
    """

    def __init__(
        self,
        n_superpixels: int = 150,
        *,
        compactness: float = 10.0,
        max_side: int | None = None,
        n_position_words: int = 16,
        n_colour_words: int = 128,
        n_sift_words: int = 512,
        sift_step: int = 4,
        sift_cell_sizes: Iterable[int] = (4, 8),
        n_samples: int = 100_000,
        seed: int = 0,
    ) -> None:
        self.n_superpixels = check_count("n_superpixels", n_superpixels)
        self.compactness = check_number("compactness", compactness)
        self.max_side = None if max_side is None else check_count("max_side", max_side)
        self.n_position_words = check_count("n_position_words", n_position_words)
        self.n_colour_words = check_count("n_colour_words", n_colour_words)
        self.n_sift_words = check_count("n_sift_words", n_sift_words)
        self.sift_step = check_count("sift_step", sift_step, _MOST_PIXELS)
        self.sift_cell_sizes = tuple(check_count("sift_cell_sizes", size, _MOST_PIXELS) for size in sift_cell_sizes)
        if not self.sift_cell_sizes or any(size % 2 for size in self.sift_cell_sizes):
            raise ValueError(f"sift_cell_sizes must be even numbers of pixels, but is {self.sift_cell_sizes}.")
        self.n_samples = check_count("n_samples", n_samples)
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise ValueError(f"seed must be an integer from 0 to 2**32 - 1, but is {seed!r}.")
        self.seed = int(seed)
        self.vocabularies_: dict[str, Vocabulary] | None = None

    @property
    def n_features(self) -> int:
        """The number of features of a superpixel."""
        return 1 + 3 * (self.n_position_words + self.n_colour_words + self.n_sift_words)

    @property
    def n_edge_features(self) -> int:
        """The number of features of an edge."""
        return 1 + 3 * len(KINDS) * len(SCALES)

    def fit(self, paths: Iterable[Path_], *, n_jobs: int = 1, progress: bool | Progress = True) -> ImageFeatures:
        """Learns the three vocabularies from these images; broken ones are left out with a warning.

        An image's share of the samples is drawn with a random stream of its own, so that the result does not depend
        on ``n_jobs``, the number of processes.
        """
        files = as_paths(paths)
        bar = as_progress(progress)
        n_each = -(-self.n_samples // len(files))
        found: dict[int, dict[str, Pixels]] = {}
        bar.begin("looking at images")
        try:
            jobs = [(self, path, n_each, (self.seed, n)) for n, path in enumerate(files)]
            for n, samples in for_each(sample_descriptors, jobs, n_jobs):
                found[n] = samples
                bar.advance(0.9 * len(found) / len(files))
            if not found:
                raise ValueError(f"paths must hold an image that can be read, but all {len(files)} are broken.")
            learned = {}
            for k, kind in enumerate(KINDS):
                rows = np.concatenate([found[n][kind] for n in sorted(found)])
                learned[kind] = Vocabulary.learn(kind, rows, getattr(self, f"n_{kind}_words"), self.seed)
                bar.advance(0.9 + 0.1 * (k + 1) / len(KINDS))
        finally:
            if bar is not progress:
                bar.close()
        self.vocabularies_ = learned
        return self

    def superpixels(self, path: Path_) -> Superpixels:
        """The image's superpixels, sites of its example; `paint` puts predictions back on its pixels."""
        return segment(self._read(path), self.n_superpixels, self.compactness)

    def transform(self, path: Path_) -> Example:
        """The image as an `Example`, with features in float32."""
        return self.describe(path).example

    def describe(self, path: Path_) -> DescribedImage:
        """The image as an example, and its superpixels, for about the time of `transform` alone."""
        words = self._fitted()
        image = self._read(path)
        regions = segment(image, self.n_superpixels, self.compactness)
        supports = regions.supports()
        histograms = []
        for kind, grids in self._descriptors(image).items():
            counts: Any = 0
            for grid in grids:
                on_pixels = words[kind].assign(grid)
                if kind == "sift":
                    on_pixels = descriptors.spread(on_pixels, self.sift_step, *image.shape[:2])
                counts = counts + _counts(regions.map, on_pixels, len(regions), len(words[kind]))
            histograms += [_shares(support, counts) for support in supports]
        ones = np.ones((len(regions), 1))
        example = Example(
            np.concatenate([ones, *map(np.sqrt, histograms)], axis=1, dtype=np.float32),
            regions.edges,
            describe_edges(histograms, regions.edges),
            sizes=regions.areas.astype(np.float64),
        )
        return DescribedImage(example, regions)

    def _read(self, path: Path_) -> Pixels:
        image = read_image(path)
        return image if self.max_side is None else reduce_image(image, self.max_side)

    def _descriptors(self, image: Pixels) -> dict[str, list[Pixels]]:
        """The descriptors of each kind, on one grid or more."""
        return {
            "position": [descriptors.positions(*image.shape[:2])],
            "colour": [descriptors.colours(image)],
            "sift": [descriptors.dense_sift(image, self.sift_step, size) for size in self.sift_cell_sizes],
        }

    def _fitted(self) -> dict[str, Vocabulary]:
        if self.vocabularies_ is None:
            raise ValueError("this ImageFeatures has no vocabularies yet: call fit on training images, or load.")
        return self.vocabularies_

    def settings(self) -> dict[str, Any]:
        """The parameters that decide what is computed, by name."""
        names = ("n_superpixels", "compactness", "sift_step", "sift_cell_sizes", "n_samples", "seed")
        settings = {name: to_json(getattr(self, name)) for name in names}
        return settings if self.max_side is None else {**settings, "max_side": self.max_side}

    def fingerprint(self) -> str:
        """A digest of all that features depend on but the pixels: settings, words, libraries that cut and decode."""
        libraries = {name: version(name) for name in ("scikit-image", "pillow")}
        text = json.dumps([FEATURES_VERSION, self.settings(), libraries], sort_keys=True)
        digest = hashlib.sha256(text.encode())
        for kind, vocabulary in self._fitted().items():
            digest.update(f"{kind} {vocabulary.words.shape}".encode())
            digest.update(vocabulary.words.tobytes())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes settings and vocabularies to one file, without pickle."""
        archive.write(path, KIND, *self.contents())

    def contents(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """Returns what `save` writes, as JSON and arrays; `from_contents` is the way back."""
        arrays = {kind: vocabulary.words for kind, vocabulary in self._fitted().items()}
        return {"settings": self.settings()}, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ImageFeatures:
        """The features that `save` wrote, with their vocabularies; ValueError for a damaged or forged file."""
        return archive.load(path, KIND, ["settings"], KINDS, cls.from_contents)

    @classmethod
    def from_contents(cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ImageFeatures:
        """The features whose `contents` these are."""
        words = {kind: Vocabulary(arrays[kind]) for kind in KINDS}
        n_words: dict[str, Any] = {f"n_{kind}_words": len(words[kind]) for kind in KINDS}
        made = cls(**{name: from_json(value) for name, value in about["settings"].items()}, **n_words)
        made.vocabularies_ = words
        return made


def sample_descriptors(
    features: ImageFeatures, path: Path_, n_samples: int, seed: tuple[int, ...]
) -> dict[str, NDArray[np.float32]]:
    """Some descriptors of each kind of one image."""
    rng = np.random.default_rng(seed)
    chosen = {}
    for kind, grids in features._descriptors(features._read(path)).items():
        rows = np.concatenate([grid.reshape(-1, grid.shape[-1]) for grid in grids])
        chosen[kind] = rows[rng.permutation(len(rows))[:n_samples]]
    return chosen


def _counts(regions: Labels, words: NDArray[np.int32], n_regions: int, n_words: int) -> NDArray[np.float64]:
    """How many pixels of each region have each word: (n_regions, n_words)."""
    both = regions.ravel().astype(np.int64) * n_words + words.ravel()
    return np.bincount(both, minlength=n_regions * n_words).reshape(n_regions, n_words).astype(np.float64)


def _shares(support: sp.csr_array, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Histograms over the support, each of sum 1; none is empty, since every pixel has a word."""
    total = np.asarray(support @ counts)
    return np.asarray(total / total.sum(axis=1, keepdims=True))


def describe_edges(histograms: list[NDArray[np.float64]], edges: Labels) -> NDArray[np.float32]:
    """Features of edges, by how similar the histograms at their ends are: 1, then exp(-2^k chi2) for each, k = -5..5.

    The distance of two histograms is chi2(p, q) = 1/2 sum (p - q)^2 / (p + q), in [0, 1].
    """
    columns = [np.ones((len(edges), 1))]
    for p in histograms:
        a, b = p[edges[:, 0]], p[edges[:, 1]]
        both = a + b
        chi2 = 0.5 * np.divide((a - b) ** 2, both, out=np.zeros_like(both), where=both > 0).sum(axis=1)
        columns.append(np.exp(-SCALES * chi2[:, None]))
    return np.concatenate(columns, axis=1, dtype=np.float32)
