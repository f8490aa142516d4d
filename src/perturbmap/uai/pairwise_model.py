"""A factor graph as potentials: factors over one and two variables, the rest reduced away by what is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap.potentials import Floats, Labels, Potentials, offsets_of
from perturbmap.structures import Structure
from perturbmap.uai.factor_graph import FactorGraph
from perturbmap.uai.fitting_structure import fitting_structure, sites_to_exchange
from perturbmap.uai.reduction import Reduced, Scope, reduce_factors

#: Above the range of the Gumbel noise: of 52 random bits, it lies between -4.2 and 36.2.
NOISE_RANGE = 41.0

#: exp(-NEVER) is zero in double precision, whatever it is multiplied by.
NEVER = 1500.0

#: Numbers that the padded arrays may hold: one gigabyte; and so many times what the model says, but some megabytes at
#: least, so that a short file takes little.
MAX_NUMBERS, MAX_PADDING, FEW_NUMBERS = 2**27, 1000, 2**22


@final
@dataclass(frozen=True, eq=False)
class PairwiseModel:
    """``P(y) = exp f(y) / Z`` with f as `Potentials`, site d standing for variable d.

    `read` makes it from a UAI file.

    graph : the factors of the file
    evidence : the label of each observed variable, ``{variable: label}``
    potentials : f, natural logarithms, over the labels that evidence and zeros leave to each variable
    given : (n_variables,), 0 where one label alone is left and -1 elsewhere: pass it to inference as ``given``, so
        that sites that are known get no noise
    label_of : (n_variables, n_labels), the variable's label that a site's label stands for; -1 where there is none

    Labels of sites are the possible labels of their variable in order, or in reverse, where only that makes the graph
    attractive. ``labels`` and ``marginals`` translate results back.
    """

    graph: FactorGraph
    evidence: Mapping[int, int]
    potentials: Potentials
    given: Labels
    label_of: Labels

    @classmethod
    def of(cls, graph: FactorGraph, evidence: Mapping[int, int] | None = None) -> PairwiseModel:
        """The model given evidence, ``{variable: label}``; a factor may then have at most two unknown variables."""
        observed = dict(evidence or {})
        _check_evidence(graph, observed)
        reduced = reduce_factors(graph, observed)
        label_of = _label_numbers(reduced.labels, _most_numbers(graph))
        f = _potentials(graph, reduced, label_of >= 0)
        exchanged = sites_to_exchange(f)
        if exchanged.any():
            f = _exchange(f, exchanged)
            label_of = np.where(exchanged[:, None], label_of[:, ::-1], label_of)
        given = np.where((label_of >= 0).sum(axis=1) == 1, 0, -1).astype(np.int32)
        return cls(graph, observed, f, given, label_of)

    def structure(self) -> Structure:
        """`Chain`, `Tree`, `BinaryGraph` or `Graph`, whichever fits first: all but the last are exact."""
        return fitting_structure(self.potentials)

    def labels(self, y: ArrayLike) -> Labels:
        """Translates labels of sites, ``(..., n_variables)``, to labels of the variables."""
        sites = self.potentials.check_labels("y", y, unknown=False)
        return self.label_of[np.arange(len(self.label_of)), sites]

    def marginals(self, q: ArrayLike) -> list[Floats]:
        """Translates marginals of sites, ``(n_variables, n_labels)``, to an array for each variable, over its labels.

        Labels that evidence or zeros exclude have probability zero.
        """
        values = np.asarray(q, dtype=np.float64)
        if values.shape != self.label_of.shape:
            raise ValueError(f"q must have shape {self.label_of.shape}, but has shape {values.shape}.")
        offsets = offsets_of(self.graph.cardinalities)
        flat = np.zeros(offsets[-1])
        site, label = np.nonzero(self.label_of >= 0)
        flat[offsets[site] + self.label_of[site, label]] = values[site, label]
        return np.split(flat, offsets[1:-1])


def _check_evidence(graph: FactorGraph, evidence: Mapping[int, int]) -> None:
    n = len(graph.cardinalities)
    for v, label in evidence.items():
        if not 0 <= v < n:
            raise ValueError(f"evidence must be of variables 0..{n - 1}, but observes variable {v}.")
        if not 0 <= label < graph.cardinalities[v]:
            raise ValueError(
                f"evidence must be labels that a variable has, but variable {v}, which has the labels "
                f"0..{graph.cardinalities[v] - 1}, is observed to have {label}."
            )
    if sum(graph.cardinalities) > _most_numbers(graph):
        raise ValueError(
            f"the variables have {sum(graph.cardinalities):.1g} labels in all; the limit is "
            f"{_most_numbers(graph):.1g} for a model with so few numbers in its tables."
        )


def _most_numbers(graph: FactorGraph) -> int:
    """How many numbers the padded arrays of a model may hold."""
    n_said = len(graph.cardinalities) + sum(factor.table.size for factor in graph.factors)
    return min(MAX_NUMBERS, max(FEW_NUMBERS, MAX_PADDING * n_said))


def _label_numbers(labels: list[NDArray[np.intp]], most: int) -> Labels:
    counts = np.array([len(some) for some in labels])
    if counts.size * counts.max() > most:
        raise ValueError(_too_large(int(counts.argmax()), int(counts.max()), most))
    numbers = np.full((len(labels), counts.max()), -1, dtype=np.int32)
    numbers[np.arange(counts.max()) < counts[:, None]] = np.concatenate(labels)
    return numbers


def _too_large(v: int, n_labels: int, most: int) -> str:
    return (
        f"the model takes more than {most * 8 / 2**30:.1g} GiB when all variables are given the {n_labels} "
        f"labels of variable {v}. Evidence for it would help."
    )


def _potentials(graph: FactorGraph, reduced: Reduced, is_label: NDArray[np.bool_]) -> Potentials:
    """Unary and pairwise tables, padded to the same number of labels, with penalties for what cannot be."""
    n, k = is_label.shape
    wide = next((scope for scope in reduced.tables if len(scope) > 2), None)
    if wide is not None:
        raise ValueError(_too_wide(graph, wide))
    edges: list[Scope] = sorted(scope for scope in reduced.tables if len(scope) == 2)
    most = _most_numbers(graph)
    if n * k + len(edges) * k * k > most:
        raise ValueError(_too_large(int(is_label.sum(axis=1).argmax()), k, most))
    unary = np.where(is_label, 0.0, -np.inf)
    pairwise = np.full((len(edges), k, k), np.nan)
    for e, scope in enumerate(edges):
        table = reduced.tables[scope]
        pairwise[e, : table.shape[0], : table.shape[1]] = table
    for scope, table in reduced.tables.items():
        if len(scope) == 1:
            unary[scope[0], : len(table)] += table
    _penalise(unary, pairwise, n, k)
    unary[0] += reduced.tables.get((), 0.0)
    return Potentials(unary, pairwise, np.array(edges, dtype=np.int32).reshape(-1, 2)) if edges else Potentials(unary)


def _penalise(unary: Floats, pairwise: Floats, n: int, k: int) -> None:
    """Replaces -inf by ``top - penalty``, top being the largest entry of its table, and NaN by top; in place.

    Let R be the sum over all tables of top - lowest finite entry. A possible labelling scores at least sum(top) - R,
    an impossible one at most sum(top) - penalty; noise changes their difference by less than n * NOISE_RANGE; there
    are at most k^n impossible ones. So with

        penalty = 2 R + n (NOISE_RANGE + log k) + NEVER

    none ever wins, perturbed or not, and all of them together have less than exp(-NEVER) of the probability of any
    possible one: nothing in double precision. The second R makes an entry with a penalty outweigh the three others
    of a binary table, so that the table's sign is that of its zeros. A penalty is no larger than that so that sums
    with one, as in a cut, keep the digits of the other numbers.
    """
    tables = [unary[:, None, :], pairwise]
    tops = [np.where(np.isfinite(t), t, -np.inf).max(axis=(1, 2), initial=-np.inf, keepdims=True) for t in tables]
    lows = [np.where(np.isfinite(t), t, np.inf).min(axis=(1, 2), initial=np.inf, keepdims=True) for t in tables]
    ranges = sum(float((top - low).sum()) for top, low in zip(tops, lows, strict=True))
    penalty = 2 * ranges + n * (NOISE_RANGE + np.log(k)) + NEVER
    for table, top in zip(tables, tops, strict=True):
        table[...] = np.where(np.isnan(table), top, np.where(np.isneginf(table), top - penalty, table))


def _exchange(f: Potentials, exchanged: NDArray[np.bool_]) -> Potentials:
    """The two labels of some sites exchanged."""
    unary = np.where(exchanged[:, None], f.unary[:, ::-1], f.unary)
    first, second = (exchanged[f.edges[:, side], None, None] for side in (0, 1))
    tables = np.where(first, f.tables[:, ::-1, :], f.tables)
    return Potentials(unary, np.where(second, tables[:, :, ::-1], tables), f.edges)


def _too_wide(graph: FactorGraph, wide: Scope) -> str:
    a = next(a for a, factor in enumerate(graph.factors) if set(wide) <= set(factor.scope))
    return (
        f"factor {a} (counted from 0) joins more than two variables that are not known: "
        f"{', '.join(map(str, wide[:6]))}{', ...' if len(wide) > 6 else ''}. Evidence must leave at most two."
    )
