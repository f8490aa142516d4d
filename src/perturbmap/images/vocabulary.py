"""Visual words: the centres of clusters of descriptors, so that descriptors can be counted."""

from __future__ import annotations

import os
import warnings
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from perturbmap.support import archive
from perturbmap.support.blas import one_blas_thread
from perturbmap.support.checks import check_count

KIND = "vocabulary"
CHUNK = 8192  # rows; fixed, since the rounding of a product may depend on its size


@final
class Vocabulary:
    """Typical descriptors, called words: the rows of ``words``, (n_words, n_columns), float32.

    A descriptor stands for what an image looks like around a point, and is replaced by its nearest word.
    """

    def __init__(self, words: Any) -> None:
        array = np.ascontiguousarray(words, dtype=np.float32)
        if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
            raise ValueError(
                f"words must be a matrix of finite numbers, one row for each word, but has shape {array.shape}."
            )
        self.words = array

    @classmethod
    def learn(cls, name: str, descriptors: Any, n_words: int, seed: int) -> Vocabulary:
        """Learns by mini-batch k-means (Sculley, 2010), one start; a seed gives the same bits on one machine."""
        from sklearn.cluster import MiniBatchKMeans  # takes long to load, and those who find words do not need it
        from sklearn.exceptions import ConvergenceWarning

        n_words = check_count(f"n_{name}_words", n_words)
        X = np.asarray(descriptors, dtype=np.float32)
        if len(X) < n_words:
            raise ValueError(
                f"n_{name}_words must be at most the number of descriptors to learn from, {len(X)}, but is "
                f"{n_words}: give more images or n_samples, or ask for fewer words."
            )
        means = MiniBatchKMeans(n_words, batch_size=4096, max_iter=30, n_init=1, random_state=seed)
        with threadpool_limits(1), warnings.catch_warnings():
            # Fewer distinct descriptors than words, as in a drawing of five colours: words repeat, the first counts.
            warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(X)
        return cls(means.cluster_centers_)

    def __len__(self) -> int:
        return len(self.words)

    def assign(self, descriptors: Any) -> NDArray[np.int32]:
        """The nearest word of each descriptor, the first of equals: the shape of descriptors, less the last axis."""
        X = np.asarray(descriptors, dtype=np.float32)
        if X.ndim < 2 or X.shape[-1] != self.words.shape[1]:
            raise ValueError(f"descriptors must have {self.words.shape[1]} columns, but has shape {X.shape}.")
        rows = X.reshape(-1, X.shape[-1])
        found = np.empty(len(rows), dtype=np.int32)
        turned = np.ascontiguousarray(self.words.T)
        half = 0.5 * (self.words**2).sum(axis=1)  # |x - c|^2 = |x|^2 - 2 (x . c - |c|^2 / 2)
        with one_blas_thread():
            for start in range(0, len(rows), CHUNK):
                found[start : start + CHUNK] = (rows[start : start + CHUNK] @ turned - half).argmax(axis=1)
        return found.reshape(X.shape[:-1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the words to a file, without pickle; see `load`."""
        archive.write(path, KIND, {}, {"words": self.words})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """The vocabulary that `save` wrote to a file; ValueError for a damaged, forged or foreign file."""
        return archive.load(path, KIND, [], ["words"], lambda about, arrays: cls(arrays["words"]))
