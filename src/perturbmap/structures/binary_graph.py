"""Binary labels on any graph, with attraction on every edge: minimum cuts (section 3.3 of the paper)."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.potentials import Labels, Potentials
from perturbmap.structures.base import check_given
from perturbmap.structures.compiled import CompiledStructure, Kernels
from perturbmap.structures.fixing import FixedCuts, Fixing
from perturbmap.structures.parallel_edges import ParallelEdges
from perturbmap.support.threads import threads

# Residual graphs that are kept while labels are fixed take no more memory than this.
_MOST_BYTES = 2**28


@final
class BinaryGraph(CompiledStructure):
    """Two labels, any graph, supermodular tables: ``f00 + f11 >= f01 + f10`` on every edge.

    Supermodular means that edges attract: neighbours prefer equal labels, as with `potts` of positive weights. For
    other tables there is `Graph`. One minimum cut finds the best labelling, and all pinned problems (`Pinned`) are
    read off its residual graph (``pinned_cuts.hpp``). Among tied maximisers, ``argmax`` returns the one with the
    fewest ones; a pinned maximiser differs from it in as few sites as possible.

    >>> f = pm.Potentials([[0, 2], [0.5, 0], [0.5, 0]], pm.potts(0.8), edges=[(0, 1), (1, 2), (2, 0)])
    >>> pm.BinaryGraph().maximise(f)
    (array([1, 1, 1], dtype=int32), array([4.4]))
    >>> pm.BinaryGraph().pinned(f).values
    array([[3.4, 4.4],
           [3.8, 4.4],
           [3.8, 4.4]])
    """

    is_plain = True
    kernels: ClassVar[Kernels] = Kernels(_core.graph_maximise, _core.graph_pin, _core.graph_moments)

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads

    @property
    def allows_every_labelling(self) -> bool:
        return True

    def fixing(self, f: Potentials, given: ArrayLike | None, n_rows: int) -> Fixing | None:
        """See `Structure.fixing`: a flow of one pin for each row and site, in place of a cut."""
        if FixedCuts.n_bytes(f, n_rows) > _MOST_BYTES:
            return None
        known = check_given(f, given)
        return FixedCuts(self.check(f, known).merged, known, threads(self.n_threads))

    def argmax(self, f: Potentials, given: ArrayLike | None = None) -> Labels:
        """See `Structure.argmax`; the score is not computed."""
        known = check_given(f, given)
        batch = f.to_core(known)
        if not _core.is_supermodular(batch):
            batch = self.check(f, known).merged.to_core(known)
        labels = np.empty(f.unary.shape[:-1], np.int32)
        _core.graph_argmax(batch, labels, threads(self.n_threads))
        return labels

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """Raises ValueError unless there are two labels and supermodular tables; parallel edges count together."""
        if f.unary.shape[-1] != 2:
            raise ValueError(
                f"BinaryGraph needs two labels, but unary has {f.n_labels}. "
                "Use Graph for more labels, or Chain or Tree, which are exact, where edges form no cycle."
            )
        if f.pairwise is None or _core.are_supermodular(f.pairwise) or not _not_supermodular(f).size:
            return ParallelEdges(f, f)  # which the kernel adds up by itself
        problem = ParallelEdges.merge(f)
        bad = _not_supermodular(problem.merged)
        if bad.size:
            i, j = problem.merged.edges[bad[0]].tolist()
            raise ValueError(
                f"BinaryGraph needs supermodular potentials, but {bad.size} of {problem.merged.n_edges} edges have "
                f"f00 + f11 < f01 + f10 (first: the edge between sites {i} and {j}). Keep the edge weights of one "
                "sign, as GraphModel() does, or use Graph, which takes any tables."
            )
        return problem


def _not_supermodular(f: Potentials) -> np.ndarray:
    if f.pairwise is None or f.n_edges == 0:
        return np.empty(0, dtype=np.intp)
    t = f.pairwise.reshape(-1, 4)
    coupling = (t[:, 0] - t[:, 1]) + (t[:, 3] - t[:, 2])
    # A table computed as a sum may miss zero by rounding; that much is taken for zero.
    bad = np.flatnonzero(coupling < -1e-12 * np.abs(t).max(axis=1))
    return np.arange(f.n_edges) if f.is_shared and bad.size else bad
