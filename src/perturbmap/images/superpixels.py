"""Superpixels: an image cut into small connected regions, which are the sites of a graph."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from skimage.color import rgb2lab
from skimage.measure import label
from skimage.segmentation import slic

from perturbmap.potentials import Labels
from perturbmap.support.checks import check_count, check_number


@final
@dataclass(frozen=True, eq=False)
class Superpixels:
    """An image cut into superpixels: a map of regions 0..D-1, none empty, each connected.

    map : (height, width), the region of each pixel
    edges : (n_edges, 2), pairs i < j of regions that share a side of a pixel, sorted, each once
    areas : (D,), in pixels; they sum to height * width
    """

    map: Labels
    edges: Labels
    areas: NDArray[np.int64]

    @classmethod
    def from_map(cls, regions: Any) -> Superpixels:
        """Makes it from any map of integers: parts of a region that do not touch become regions of their own."""
        array = np.asarray(regions)
        if array.ndim != 2 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(
                f"regions must be a map (height, width) of integers, but is of {array.dtype} and {array.shape}."
            )
        joined = label(array.astype(np.int64) - int(array.min()) + 1, connectivity=1, background=0)
        relabelled = np.ascontiguousarray(joined - 1, dtype=np.int32)
        return cls(relabelled, adjacency(relabelled), np.bincount(relabelled.ravel()))

    def __len__(self) -> int:
        return len(self.areas)

    def supports(self) -> list[sp.csr_array]:
        """Three matrices (D, D) of 0 and 1: a region itself, with its neighbours, and with their neighbours too."""
        n = len(self)
        i, j = self.edges[:, 0], self.edges[:, 1]
        here = np.arange(n)
        rows, columns = np.concatenate([here, i, j]), np.concatenate([here, j, i])
        near = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
        far = sp.csr_array(near @ near)
        far.data[:] = 1.0
        return [sp.csr_array(sp.identity(n)), near, far]


def segment(image: NDArray[np.float32], n_superpixels: int = 150, compactness: float = 10.0) -> Superpixels:
    """Cuts an image into about ``n_superpixels`` regions, by SLIC (Achanta et al., 2012) in Lab colours.

    The same image gives the same regions each time. The greater ``compactness``, the squarer they are; the smaller,
    the closer they follow the colours. The scraps that SLIC leaves are joined by `join_scraps`: if they were joined
    in the order of pixels, as scikit-image does it, a strong texture might swallow the whole image.
    """
    n = check_count("n_superpixels", n_superpixels)
    compactness = check_number("compactness", compactness)
    pixels = np.asarray(image, dtype=np.float64)
    raw = slic(pixels, n, compactness, sigma=1, enforce_connectivity=False, start_label=0, channel_axis=-1)
    return join_scraps(Superpixels.from_map(raw), rgb2lab(pixels), smallest=raw.size / n / 4)


def join_scraps(regions: Superpixels, colours: NDArray[np.float64], smallest: float) -> Superpixels:
    """Joins every region below this area, the smallest first, to the neighbour of the most similar mean colour."""
    areas = regions.areas.tolist()
    sums = [np.bincount(regions.map.ravel(), weights=channel) for channel in colours.reshape(-1, colours.shape[2]).T]
    totals = np.stack(sums, axis=1)
    neighbours: list[set[int]] = [set() for _ in areas]
    for i, j in regions.edges.tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    home = list(range(len(areas)))
    waiting = [(area, i) for i, area in enumerate(areas) if area < smallest]
    heapq.heapify(waiting)
    while waiting:
        area, i = heapq.heappop(waiting)
        if home[i] != i or area != areas[i] or not neighbours[i]:
            continue  # it has been joined or has grown since, or it is the whole image
        near = sorted(neighbours[i])
        means = totals[near] / np.array([areas[j] for j in near])[:, None]
        j = near[int(((means - totals[i] / area) ** 2).sum(axis=1).argmin())]
        home[i], areas[j] = j, areas[j] + area
        totals[j] += totals[i]
        for k in neighbours[i]:
            neighbours[k].remove(i)
            if k != j:
                neighbours[k].add(j)
                neighbours[j].add(k)
        if areas[j] < smallest:
            heapq.heappush(waiting, (areas[j], j))
    for i in range(len(home)):
        while home[i] != home[home[i]]:
            home[i] = home[home[i]]
    return Superpixels.from_map(np.array(home)[regions.map])


def adjacency(regions: Labels) -> Labels:
    """Pairs i < j of regions that meet in the 4-neighbourhood, sorted, each once: (n_edges, 2)."""
    n, numbers = int(regions.max(initial=0)) + 1, []
    for one, other in ((regions[:, :-1], regions[:, 1:]), (regions[:-1], regions[1:])):
        meets = one != other
        a, b = one[meets].astype(np.int64), other[meets].astype(np.int64)
        numbers.append(np.minimum(a, b) * n + np.maximum(a, b))
    return np.stack(np.divmod(np.unique(np.concatenate(numbers)), n), axis=1).astype(np.int32)


def paint(regions: Labels | Superpixels, values: Any) -> NDArray[Any]:
    """Puts values of superpixels, one (or one row) for each, on their pixels: (height, width, ...)."""
    where = regions.map if isinstance(regions, Superpixels) else np.asarray(regions)
    array = np.asarray(values)
    n = int(where.max()) + 1
    if array.ndim == 0 or len(array) != n:
        raise ValueError(f"values must be one for each superpixel, {n}, but has shape {array.shape}.")
    return np.asarray(array[where])


def stretch(values: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """The picture ``values`` in another size (height, width), by the nearest pixel: numbers are never mixed."""
    if values.shape == shape:
        return values
    rows, columns = (((np.arange(n) + 0.5) * m / n).astype(np.intp) for n, m in zip(shape, values.shape, strict=True))
    return np.asarray(values[rows[:, None], columns])
