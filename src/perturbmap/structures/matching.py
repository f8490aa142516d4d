"""Matchings: every site gets a label of its own."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from perturbmap import _core
from perturbmap.potentials import Labels, Potentials
from perturbmap.structures.base import InfeasibleError
from perturbmap.structures.compiled import CompiledStructure, Kernels
from perturbmap.structures.parallel_edges import ParallelEdges
from perturbmap.support.threads import threads


@final
class Matching(CompiledStructure):
    """Assignments of n sites to n of K >= n labels, no label twice; unary potentials only.

    The best labelling is found as an assignment problem, whose prices (dual variables) give those of all pins too
    (`Pinned`; ``assignment.hpp``). Which of several tied matchings is found is not specified, but it is always the
    same.

    >>> f = pm.Potentials([[3.0, 2.0, 0.0], [3.0, 1.0, 0.0]])
    >>> pm.Matching().maximise(f)
    (array([1, 0], dtype=int32), array([5.]))
    >>> pm.Matching().argmax(f, given=[0, -1])
    array([0, 1], dtype=int32)
    """

    kernels: ClassVar[Kernels] = Kernels(_core.assignment_maximise, _core.assignment_pin, _core.assignment_moments)

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads

    @property
    def sweeps(self) -> Any:
        """The kernel for Gibbs sampling, by exchanges of labels; see `Structure.sweeps`."""
        return _core.swaps

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """Raises ValueError where there are edges, too few labels, or one label given twice."""
        if f.n_edges:
            raise ValueError("Matching takes unary potentials only: leave pairwise and edges out.")
        sizes = f.layout.site_counts
        if sizes.size and sizes.max() > f.n_labels:
            raise ValueError(
                f"Matching needs at least as many labels as sites, but an example has {sizes.max()} sites and "
                f"there are {f.n_labels} labels."
            )
        if given is not None:
            example = f.layout.repeat(np.arange(len(f)))
            keys = (example * f.n_labels + given)[given >= 0]
            used, counts = np.unique(keys, return_counts=True)
            if (counts > 1).any():
                n, label = divmod(int(used[counts > 1][0]), f.n_labels)
                sites = np.flatnonzero((example == n) & (given == label)) - f.site_offsets[n]
                raise InfeasibleError(
                    f"given contradicts itself: sites {sites.tolist()} of example {n} are all matched to label "
                    f"{label}, which one site alone can have."
                )
        if np.isneginf(f.unary).any():
            self._check_possible(f, given)
        return ParallelEdges.keep(f)

    def _check_possible(self, f: Potentials, given: Labels | None) -> None:
        """Raises `InfeasibleError` where forbidden labels leave no matching."""
        labels = np.empty(f.stack.shape[:-1], dtype=np.int32)
        values = np.empty((len(labels), len(f)))
        self.kernels.maximise(f.to_core(given), labels, values, threads(self.n_threads))
        impossible = np.flatnonzero(np.isneginf(values).any(axis=0))
        if impossible.size:
            raise InfeasibleError(
                f"the labels that unary forbids (-inf) and those given leave no matching of example {impossible[0]}."
            )
