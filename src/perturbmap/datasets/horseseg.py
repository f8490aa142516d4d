"""HorseSeg (Kolesnikov, Guillaumin, Ferrari and Lampert 2014): loaders of both layouts, for those who have its files.

``horseSeg_*.mat``      MATLAB 7.3: cells of patterns and labels, with edge features and superpixel sizes.
``horse-features.bin``  The original release: HDF5, one data set per image and quantity, no edge features, no sizes.

HDF5 shows MATLAB's arrays with their axes reversed: ``features``, 1969 x D there, is (D, 1969) here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Example


class Segmentation(NamedTuple):
    """Images as superpixels, the sites: examples X, labels y (0: background, 1: foreground, -1: not known), names."""

    X: list[Example]
    y: list[NDArray[np.int32]]
    names: list[str]


def load_horseseg_mat(path: str | os.PathLike[str], part: str = "train") -> Segmentation:
    """Loads the examples and labels of a HorseSeg file ``horseSeg_*.mat``, its "train" or its "test" part."""
    if part not in ("train", "test"):
        raise ValueError(f'part must be "train" or "test", but is {part!r}.')
    X, y, names = [], [], []
    with _open(path) as file:
        patterns, labels = (_cells(file, f"{name}_{part}", path) for name in ("patterns", "labels"))
        if len(patterns) != len(labels):
            raise ValueError(f"{path} has {len(patterns)} patterns_{part}, but {len(labels)} labels_{part}.")
        for n, (pattern, label) in enumerate(zip(patterns, labels, strict=True)):
            with _naming(path, f"patterns_{part}{{{n + 1}}}"):
                features = np.asarray(pattern["features"], dtype=np.float32)
                edges = _integers(pattern["edge_structure"]).reshape(-1, 2)
                edge_features = np.asarray(pattern["features_pairwise"], dtype=np.float32).reshape(len(edges), -1)
                sizes = np.asarray(label["superpixel_size"], dtype=np.float64).ravel()
                X.append(Example(features, edges, edge_features, sizes=sizes))
                y.append(_labels(label["labels"], len(features)))
                names.append(_text(pattern["image_file"]))
    return Segmentation(X, y, names)


def load_horseseg_features(path: str | os.PathLike[str]) -> Segmentation:
    """Loads all images of a HorseSeg file ``horse-features.bin``, in the order of their numbers.

    The superpixel maps are in other files, so that all sizes are one here, and there are no edge features. To add
    both, make each `Example` anew.
    """
    X, y, names = [], [], []
    with _open(path) as file:
        numbers = sorted(key.rsplit("_", 1)[1] for key in file if key.startswith("superpixel_count_"))
        if not numbers:
            raise ValueError(f"{path} has no data set superpixel_count_000000: it is not a horse-features.bin.")
        for number in numbers:
            with _naming(path, f"image {number}"):
                n_sites = int(np.asarray(file[f"superpixel_count_{number}"]).ravel()[0])
                n_edges = int(np.asarray(file[f"edge_count_{number}"]).ravel()[0])
                features = np.asarray(file[f"features_{number}"], dtype=np.float32).reshape(n_sites, -1)
                edges = _pairs(_integers(file[f"edge_structure_{number}"]), n_edges)
                X.append(Example(features, edges))
                y.append(_labels(file[f"labels_{number}"], n_sites))
                names.append(_text(file[f"image_name_{number}"]))
    return Segmentation(X, y, names)


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[Any]:
    try:
        import h5py
    except ModuleNotFoundError:
        raise ModuleNotFoundError("HorseSeg's files need h5py: pip install 'perturbmap[images]'.") from None
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} is damaged, or is not an HDF5 file ({error}).") from None
    with file:
        yield file


@contextmanager
def _naming(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turns whatever is wrong inside into an error that says where."""
    try:
        yield
    except (KeyError, ValueError, TypeError, OSError, IndexError) as error:
        raise ValueError(f"{path}: {what} is not as HorseSeg has it ({error}).") from None


def _cells(file: Any, name: str, path: str | os.PathLike[str]) -> list[Any]:
    """The structs that a cell array refers to."""
    if name not in file:
        raise ValueError(f"{path} has no variable {name}; it has {', '.join(sorted(file)) or 'none'}.")
    with _naming(path, name):
        return [file[reference] for reference in np.asarray(file[name]).ravel()]


def _integers(values: Any) -> NDArray[np.int64]:
    array = np.asarray(values)
    if not np.array_equal(array, np.round(array)):
        raise ValueError("site numbers must be whole")
    return array.astype(np.int64)


def _pairs(values: NDArray[np.int64], n_edges: int) -> NDArray[np.int64]:
    """One row for each edge, whichever axis the file has the two ends on."""
    if values.ndim == 2 and values.shape == (2, n_edges) and n_edges != 2:
        return values.T
    return values.reshape(n_edges, 2)


def _labels(values: Any, n_sites: int) -> NDArray[np.int32]:
    array = np.asarray(values).ravel()
    if array.shape != (n_sites,):
        raise ValueError(f"{len(array)} labels for {n_sites} superpixels")
    return np.where((array == 0) | (array == 1), array, -1).astype(np.int32)


def _text(values: Any) -> str:
    """MATLAB's characters are numbers; HDF5's are bytes."""
    array = np.asarray(values)
    if array.dtype.kind in "ui":
        return "".join(chr(c) for c in array.ravel())
    value = array.ravel()[0] if array.ndim else array.item()
    return value.decode() if isinstance(value, bytes) else str(value)
