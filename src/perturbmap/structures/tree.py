"""Chains and trees: dynamic programming, with exact sums besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.structures.base import ExactStructure, check_given, threads
from perturbmap.structures.compiled import (
    CompiledStructure,
    Kernels,
    empty_moments,
    finish_moments,
    to_core,
)
from perturbmap.structures.parallel_edges import ParallelEdges


class _Forest(CompiledStructure, ExactStructure):
    kernels: ClassVar[Kernels] = Kernels(_core.tree_maximise, _core.tree_pin, _core.tree_moments)

    def log_partition(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Floats, Moments]:
        """See `ExactStructure.log_partition`; exact."""
        known = check_given(f, given)
        problem = self.check(f, known)
        unary, tables = empty_moments(problem.merged)
        values = np.empty((len(unary), len(f)))
        _core.tree_sum(to_core(problem.merged, known), values, unary, tables, threads(self.n_threads))
        moments = problem.spread(finish_moments(problem.merged, unary, tables))
        return values.reshape(*f.unary.shape[:-2], len(f)), moments


@final
@dataclass(frozen=True)
class Chain(_Forest):
    """Up to 65,535 labels, consecutive sites joined: words, sentences, signals.

    Ties go to the smallest label, from the first site on.
    """

    n_threads: int | None = None

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """The edges must join consecutive sites."""
        if f.n_edges and not f.is_chain():
            raise ValueError(
                "Chain needs edges between consecutive sites, in order: (0, 1), (1, 2), ... Leave edges out to get "
                "them, or use Tree for other forests."
            )
        return ParallelEdges.keep(f)


@final
@dataclass(frozen=True)
class Tree(_Forest):
    """Up to 65,535 labels, any forest. The smallest site of each tree is its root.

    Ties go to the smallest label, from the roots down.
    """

    n_threads: int | None = None

    def check(self, f: Potentials, given: Labels | None) -> ParallelEdges:
        """The edges, parallel ones taken together, must not close a cycle (which the kernel finds)."""
        return ParallelEdges.merge(f) if f.n_edges else ParallelEdges.keep(f)
