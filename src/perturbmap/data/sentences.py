"""Sentences as rows of one sparse matrix, which are cut out when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from perturbmap.data.dataset import Dataset, StoredExamples
from perturbmap.data.sparse_rows import SparseMatrix, SparseRows
from perturbmap.potentials import Layout, offsets_of


@final
class Sentences(StoredExamples):
    """Chains whose features are the rows of one CSR matrix, in order: as X, and as a list of their matrices.

    matrix : (n_tokens, n_features), a CSR matrix of finite numbers; ones are not kept
    counts : the number of tokens of each sentence

    >>> import scipy.sparse as sp
    >>> from perturbmap.data.sentences import Sentences
    >>> [part.shape for part in Sentences(sp.csr_array(np.eye(5)), [2, 3])]
    [(2, 5), (3, 5)]
    """

    def __init__(self, matrix: sp.csr_array, counts: Any) -> None:
        self._matrix, self._offsets = SparseMatrix.joined([matrix]), offsets_of(counts)
        self._dtype = matrix.dtype

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        return f"Sentences({len(self)} of {self._matrix.shape[0]} tokens, {self._matrix.shape[1]} features)"

    def __getitem__(self, index: Any) -> Any:
        """The matrix of a sentence, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        return self._matrix[self._offsets[n] : self._offsets[n + 1]].astype(self._dtype, copy=False)

    def __iter__(self) -> Iterator[sp.csr_array]:
        return (self[n] for n in range(len(self)))

    @cached_property
    def dataset(self) -> Dataset:
        """All sentences as one data set; their numbers are not copied."""
        offsets: NDArray[np.int64] = self._offsets
        rows = SparseRows(self._matrix, offsets[:-1], offsets[1:])
        return Dataset(Layout.of_counts(np.diff(offsets)), rows, None, None, np.ones(int(offsets[-1])))
