"""From many image files to a store: more than memory holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import tee
from pathlib import Path
from typing import Any

from perturbmap.data import Example
from perturbmap.data.store.writing import SHARD_BYTES, write_store
from perturbmap.images.cache import FeatureCache
from perturbmap.images.features import DescribedImage
from perturbmap.images.reading import Path_, as_paths
from perturbmap.support.progress import as_progress

# Images that are described, or fetched from the cache, at a time.
_CHUNK = 64


def store_images(
    folder: str | os.PathLike[str],
    files: Iterable[Path_],
    cache: FeatureCache,
    labels: Callable[[Path, DescribedImage], Any] | None = None,
    *,
    n_labels: int = 2,
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    append: bool = False,
    n_jobs: int = 1,
    progress: bool = True,
) -> list[Path]:
    """Describes images and writes them to a `Store`; returns the files that are in it, in order.

    cache : features come from it, or are computed by ``n_jobs`` processes and kept there
    labels : a function ``labels(file, image)`` that says what is known of an image, as `labels_from_mask` and
        `labels_from_boxes` do: an array of 0 to n_labels - 1, and -1 where a label is not known; or None
    n_labels : the number of labels
    dtype, shard_bytes, append : as in `write_store`

    Broken files are left out with a warning. Shuffle the files first: training shuffles the shards (parts of the
    store), and the examples inside each.
    """
    paths = as_paths(files)
    stored: list[Path] = []
    bar = as_progress(progress)
    bar.begin("storing images")

    def described() -> Iterator[tuple[Path, DescribedImage]]:
        for first in range(0, len(paths), _CHUNK):
            chunk = paths[first : first + _CHUNK]
            yield from cache.load(chunk, n_jobs=n_jobs, progress=False).items()
            bar.advance((first + len(chunk)) / len(paths))

    def pairs() -> Iterator[tuple[Example, Any]]:
        for path, image in described():
            stored.append(path)
            yield image.example, None if labels is None else labels(path, image)

    # write_store asks for an example and for its labels in turn: no more than one waits between the two.
    examples, known = (pairs(), None) if labels is None else tee(pairs())
    try:
        write_store(
            folder,
            (x for x, _ in examples),
            None if known is None else (y for _, y in known),
            classes=None if known is None else list(range(n_labels)),
            dtype=dtype,
            shard_bytes=shard_bytes,
            append=append,
        )
    finally:
        bar.close()
    return stored
