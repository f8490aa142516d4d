"""Any graph, any number of labels, any tables: fusion and forest moves, with an upper bound."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.potentials import Labels, Potentials
from perturbmap.structures.base import Maximum, check_given
from perturbmap.structures.compiled import CompiledStructure, Kernels
from perturbmap.structures.parallel_edges import ParallelEdges
from perturbmap.support.checks import check_count
from perturbmap.support.threads import threads


@final
class Graph(CompiledStructure):
    """Any graph, up to 65,535 labels, any tables: attraction, repulsion, edges with a direction.

    The search is approximate. It ends at a labelling that no fusion move (taking over part of another labelling) and
    no forest move (the best labels of a forest, the others held) improves (``graph_search.hpp``): the maximum where
    two labels attract each other and where the graph is a forest, near it elsewhere. `maximise_with_bound` says how
    near: a bound that equals the value proves that it is the maximum.

    effort : how often the search climbs where it need not be exact: once, then again from what was found, shaken. The
        score never falls with it; the time is about proportional to it

    -inf in the unary potentials forbids a label. Tables are finite: a large negative number stands for a pair that is
    not wanted, since whether any labelling avoids all such pairs can be as hard to say as which one is best.

    Pinned values (`Pinned`) are scores of labellings with the pin, and so estimates from below; all come from about
    the work of one maximisation.

    >>> f = pm.Potentials([[0, 2, 1], [1, 0, 1], [0, 0, 1]], pm.potts(0.8, 3), edges=[(0, 1), (1, 2), (2, 0)])
    >>> labels, values, bounds = pm.Graph().maximise_with_bound(f)
    >>> labels, values, bounds
    (array([2, 2, 2], dtype=int32), array([5.4]), array([5.4]))
    >>> repulsive = pm.Potentials(np.zeros((3, 3)), -pm.potts(1.0, 3), edges=[(0, 1), (1, 2), (2, 0)])
    >>> sorted(pm.Graph().argmax(repulsive).tolist())
    [0, 1, 2]
    """

    is_plain = True
    is_exact = False
    kernels: ClassVar[Kernels] = Kernels(_core.search_maximise, _core.search_pin, _core.search_moments)

    def __init__(self, n_threads: int | None = None, *, effort: int = 1) -> None:
        self.n_threads = n_threads
        self.effort = effort

    @property
    def options(self) -> tuple[int, ...]:
        """See `CompiledStructure.options`: how often the search climbs."""
        return (check_count("effort", self.effort, at_most=2**31 - 1),)

    @property
    def allows_every_labelling(self) -> bool:
        return True

    def maximise_with_bound(self, f: Potentials, given: ArrayLike | None = None) -> Maximum:
        """See `Structure.maximise_with_bound`; the bound is by tree-reweighted messages."""
        labels, values = self.maximise(f, given)
        known = check_given(f, given)
        bounds = np.empty((len(f.stack), len(f)))
        batch = self.check(f, known).merged.to_core(known)
        _core.search_bound(batch, np.ascontiguousarray(values.reshape(bounds.shape)), bounds, threads(self.n_threads))
        # The labels have been found: that their score is a bit more than the bound is rounding.
        return Maximum(labels, values, np.maximum(bounds.reshape(values.shape), values))

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """All potentials fit; parallel edges count together."""
        return ParallelEdges.merge(f) if f.n_edges else ParallelEdges.keep(f)
