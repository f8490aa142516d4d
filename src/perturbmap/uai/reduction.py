"""Factors conditional on evidence: labels that cannot be are struck out, variables that are known drop out.

Evidence, zeros of factors and numbers of labels are one thing here: a variable has the labels that are left to it,
and a variable with one label left has no part in any table. Logarithms are natural throughout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Mask
from perturbmap.uai.factor_graph import FactorGraph

Scope = tuple[int, ...]


class Reduced(NamedTuple):
    """Tables of logarithms by scope, ascending variables, over the labels that are left, each scope once.

    ``labels[v]`` are the labels that are left of variable v, in order: they number the rows of its tables.
    """

    tables: dict[Scope, Floats]
    labels: list[NDArray[np.intp]]


def reduce_factors(graph: FactorGraph, evidence: Mapping[int, int]) -> Reduced:
    """All that the factors say once the evidence is known.

    A label stays only while every table it appears in has, for it, an entry above -inf among the labels of the
    others (generalised arc consistency). On a forest of pairs that leaves a labelling of positive probability, and
    so it does for two labels and attractive pairs, whose zeros lie off the diagonal: all variables may have the same
    label. There, Z = 0 is always found here.
    """
    labels = [np.arange(n) for n in graph.cardinalities]
    keep = {v: np.arange(graph.cardinalities[v]) == label for v, label in evidence.items()}
    with np.errstate(divide="ignore"):
        tables = _merge(((factor.scope, np.log(factor.table)) for factor in graph.factors), keep)
    while True:
        for v, mask in keep.items():
            labels[v] = labels[v][mask]
        keep = _strike_out(tables)
        if not keep:
            return Reduced(tables, labels)
        tables = _merge(tables.items(), keep)


def _merge(terms: Iterable[tuple[Scope, Floats]], keep: Mapping[int, Mask]) -> dict[Scope, Floats]:
    """Tables restricted to the labels to keep, without axes of one label, added up where they have the same scope."""
    merged: dict[Scope, Floats] = {}
    for scope, table in terms:
        for axis, v in enumerate(scope):
            if v in keep:
                table = table.compress(keep[v], axis)
        if 1 in table.shape:
            scope = tuple(v for v, n in zip(scope, table.shape, strict=True) if n > 1)
            table = table.reshape([n for n in table.shape if n > 1])
        if any(a > b for a, b in pairwise(scope)):
            order = sorted(range(len(scope)), key=scope.__getitem__)
            scope, table = tuple(scope[k] for k in order), table.transpose(order)
        merged[scope] = merged[scope] + table if scope in merged else table
    if merged.get((), 0.0) == -np.inf:
        raise ValueError(
            "no labelling has a positive probability (Z = 0): some factor is zero whatever is not known."
        )
    return merged


def _strike_out(tables: Mapping[Scope, Floats]) -> dict[int, Mask]:
    """The labels to keep, of variables that lose some."""
    with_zeros: dict[Scope, Mask] = {
        scope: table > -np.inf for scope, table in tables.items() if scope and table.min() == -np.inf
    }
    at: dict[int, list[Scope]] = {}
    for scope in with_zeros:
        for v in scope:
            at.setdefault(v, []).append(scope)
    keep: dict[int, Mask] = {}
    queue, queued = deque(with_zeros), set(with_zeros)
    while queue:
        scope = queue.popleft()
        queued.discard(scope)
        possible = with_zeros[scope]
        for axis, v in enumerate(scope):
            others = tuple(k for k in range(possible.ndim) if k != axis)
            supported: Mask = np.asarray(possible.any(axis=others))
            if v in keep:
                supported &= keep[v]
            if not supported.any():
                raise ValueError(
                    "no labelling has a positive probability (Z = 0): zeros of factors leave no label to variable "
                    f"{v}."
                )
            if supported.all() or (v in keep and np.array_equal(supported, keep[v])):
                continue
            keep[v] = supported
            for other in at[v]:
                shape = [-1 if u == v else 1 for u in other]
                with_zeros[other] = np.logical_and(with_zeros[other], supported.reshape(shape))
                if other not in queued:
                    queued.add(other)
                    queue.append(other)
            possible = with_zeros[scope]
    return keep
