"""Features computed once: on disk, checked when read, computed again where damaged."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Example
from perturbmap.images.features import DescribedImage, ImageFeatures
from perturbmap.images.parallel import for_each
from perturbmap.images.reading import Path_, as_paths
from perturbmap.images.superpixels import Superpixels
from perturbmap.support.damage import DAMAGE, parse_json
from perturbmap.support.files import write_atomically
from perturbmap.support.npy import load_array, parse_array
from perturbmap.support.progress import Progress, as_progress

FORMAT_VERSION = 1
ARRAYS = ("features", "edges", "edge_features", "map")
CHECKS = "checksums.json"


@final
class FeatureCache:
    """A folder that keeps the features of images, so that they are computed only once.

    folder : the folder; it is made if it does not exist
    features : the `ImageFeatures` that describe images

    Each image has an entry, a folder named by a hash of settings, vocabularies and the file's bytes. So an image may
    move or be renamed, and other settings never collide. An entry is one ``.npy`` file per array, since those can be
    mapped into memory (members of an ``.npz`` cannot), and a file of checksums, written last. Each file is written
    atomically: a process that is killed, or works in the same folder at the same time, leaves no entry that is
    trusted and wrong.
    """

    def __init__(self, folder: str | os.PathLike[str], features: ImageFeatures) -> None:
        self.folder, self.features = Path(folder), features
        self._fingerprint = features.fingerprint()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self.folder, os.W_OK):
            raise PermissionError(f"folder must be one that can be written to, but {self.folder} cannot.")

    def load(
        self, paths: Iterable[Path_], *, n_jobs: int = 1, progress: bool | Progress = True, mmap: bool = True
    ) -> dict[Path, DescribedImage]:
        """The described images by path, in the order of ``paths``; broken files are left out with a warning.

        What the folder lacks is computed in ``n_jobs`` processes and kept, each as soon as it is done. With ``mmap``,
        features stay on disk until they are looked at, for as many images as half the process's limit of open files
        allows (a map keeps its file open); those of the others are read.
        """
        files = as_paths(paths)
        n_maps = _maps_left() if mmap else 0
        bar = as_progress(progress)
        bar.begin("features of images")
        try:
            entries = {path: self.entry(path) for path in files}
            found: dict[Path, DescribedImage] = {}
            for entry in dict.fromkeys(entries.values()):
                described = _read(entry, self.features, mmap=len(found) < n_maps)
                if described is not None:
                    found[entry] = described
            missing = {entry: path for path, entry in entries.items() if entry not in found}
            n_done, n_all = len(found), len(found) + len(missing)
            bar.advance(n_done / n_all)
            targets = list(missing)
            jobs = [(self.features, path, entry) for entry, path in missing.items()]
            for n, _ in for_each(_compute, jobs, n_jobs):
                n_done += 1
                bar.advance(n_done / n_all, note=f"{n_done} of {n_all}")
                described = _read(targets[n], self.features, mmap=len(found) < n_maps)
                if described is None:
                    raise OSError(f"{targets[n]} was written but cannot be read back: is the disk full or broken?")
                found[targets[n]] = described
        finally:
            if bar is not progress:
                bar.close()
        return {path: found[entry] for path, entry in entries.items() if entry in found}

    def entry(self, path: Path_) -> Path:
        """The folder of an image's entry, whether the folder exists or not."""
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
        return self.folder / hashlib.sha256(f"{self._fingerprint} {content}".encode()).hexdigest()[:40]


def _compute(features: ImageFeatures, path: Path, entry: Path) -> None:
    """Describes the image and writes its entry."""
    described = features.describe(path)
    x, regions = described.example, described.superpixels
    values = (x.features, x.edges, x.edge_features, regions.map.astype(np.min_scalar_type(len(regions) - 1)))
    entry.mkdir(exist_ok=True)
    checksums = {}
    for name, array in zip(ARRAYS, values, strict=True):
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        content = buffer.getvalue()
        checksums[name] = zlib.crc32(content)
        _write(entry / f"{name}.npy", content)
    text = json.dumps({"format_version": FORMAT_VERSION, "checksums": checksums})
    _write(entry / CHECKS, text.encode())


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda file: file.write(content))


def _read(entry: Path, features: ImageFeatures, mmap: bool) -> DescribedImage | None:
    """The entry, or None where it is not there, not whole, or not one that these features could have made."""
    try:
        checks = parse_json((entry / CHECKS).read_bytes())
        if checks["format_version"] != FORMAT_VERSION:
            return None
        arrays = []
        for name in ARRAYS:
            content = (entry / f"{name}.npy").read_bytes()
            if zlib.crc32(content) != checks["checksums"][name]:
                return None
            arrays.append(parse_array(content))
        described = _described(features, *arrays)
        if not mmap:
            return described
        on_disk = load_array(entry / "features.npy", mapped=True)
        return replace(described, example=replace(described.example, features=on_disk))
    except DAMAGE:
        return None


def _described(
    of: ImageFeatures, features: NDArray[Any], edges: NDArray[Any], edge_features: NDArray[Any], map: NDArray[Any]
) -> DescribedImage:
    """The image of these arrays; ValueError where they do not go together, whoever wrote them."""
    n = len(features)
    _check(features, np.float32, (n, of.n_features))
    _check(edges, np.int32, (len(edges), 2), 0, n - 1)
    _check(edge_features, np.float32, (len(edges), of.n_edge_features))
    _check(map, np.min_scalar_type(n - 1), map.shape, 0, n - 1)
    areas = np.bincount(map.ravel(), minlength=n)
    if map.ndim != 2 or not areas.all() or (edges[:, 0] >= edges[:, 1]).any():
        raise ValueError("the map must show every region, and edges must join two of them.")
    example = Example(features, edges, edge_features, sizes=areas.astype(np.float64))
    return DescribedImage(example, Superpixels(map.astype(np.int32), edges, areas))


def _check(
    array: NDArray[Any], dtype: Any, shape: tuple[int, ...], low: float = -np.inf, high: float = np.inf
) -> None:
    """Raises ValueError unless the array has this type and shape, and lies between the limits."""
    if array.dtype != dtype or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"there must be finite numbers, {dtype} of shape {shape}.")
    if array.size and not low <= array.min() <= array.max() <= high:
        raise ValueError(f"numbers must be from {low} to {high}.")


def _maps_left() -> int:
    """How many files may still be mapped, so that half of the limit of open files is left for others."""
    try:
        import resource

        return max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - len(os.listdir("/dev/fd")))
    except (ImportError, OSError):
        return 0  # a system that does not say: everything is read
