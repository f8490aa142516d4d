"""The function f(y) that everything maximises, as arrays, for a ragged batch of examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap import _core
from perturbmap.potentials.graphs import check_edges, check_order
from perturbmap.potentials.layout import Layout, chain_edges, offsets_of, read_only
from perturbmap.potentials.moments import Moments
from perturbmap.potentials.types import Floats, Labels, Offsets
from perturbmap.support.checks import as_floats

_FORBID = (
    " To forbid pairs of labels, use Chain(allowed=...) or Tree(allowed=...), and a large negative number with other "
    "structures; a label alone is forbidden by -inf in unary."
)


@final
class Potentials:
    """``f(y) = sum_d unary[d, y_d] + sum_e pairwise[e, y_i, y_j]`` with ``(i, j) = edges[e]``.

    Potentials are the scores of labellings y, which have a label y_d for every site d: higher is better.

    unary : (n_sites, n_labels), the score of each label at each site; -inf forbids a label at a site
    pairwise : (n_labels, n_labels) or (n_edges, n_labels, n_labels), optional; the scores of pairs of labels, in one
        table for all edges, or in one for each edge; rows are the labels of ``edges[:, 0]``
    edges : (n_edges, 2) integers, or a graph that `graph_edges` takes, optional; left out, consecutive sites are
        joined: a chain. Edges that repeat add up

    This makes one example. ``Potentials.batch`` joins examples of any sizes; ``f[i]`` and ``f[i:j]`` take
    examples out again. In a batch, sites and edges lie one after another and ``site_offsets`` and
    ``edge_offsets`` say where each example begins; ``edges`` counts sites through the whole batch.

    ``unary`` may have a leading axis: copies that share everything else, as perturbations do. Results then
    have the same leading axis.

    Contiguous float64 arrays are taken as they are, not copied: do not change them afterwards.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0], [0.0, 0.2]], pm.potts(1.0))
    >>> f.score([1, 1, 0])
    array([2.])
    >>> both = pm.Potentials.batch([f, pm.Potentials([[1.0, 0.0]])])
    >>> both
    Potentials(2 examples, 4 sites, 2 labels, 2 edges)
    >>> both.split(pm.Chain().argmax(both))
    [array([1, 1, 1], dtype=int32), array([0], dtype=int32)]
    """

    __slots__ = ("layout", "pairwise", "unary")

    #: Which sites and edges are whose, and the random stream of each example.
    layout: Layout
    unary: Floats
    pairwise: Floats | None

    def __init__(self, unary: ArrayLike, pairwise: ArrayLike | None = None, edges: Any = None) -> None:
        u = as_floats("unary", unary, may_forbid=True)
        if u.ndim not in (2, 3) or u.shape[-1] == 0:
            raise ValueError(
                f"unary must have shape (n_sites, n_labels) with at least one label, but it has shape {u.shape}."
            )
        n_sites, n_labels = u.shape[-2:]
        tables = None
        e = np.empty((0, 2), dtype=np.int32) if edges is None else check_edges(edges, n_sites)
        if pairwise is None:
            if len(e):
                raise ValueError("edges were given without pairwise: pass the pairwise tables too.")
        else:
            if edges is None:
                e = chain_edges(offsets_of([n_sites]))
            tables = as_floats("pairwise", pairwise, _FORBID)
            if tables.ndim == 3 and not isinstance(edges, np.ndarray):
                check_order(edges, "pairwise")
            _check_tables(tables, len(e), n_labels)
        self._set(Layout.one_example(n_sites, e), u, tables)

    def _set(self, layout: Layout, unary: Floats, pairwise: Floats | None) -> Potentials:
        self.layout = layout
        self.unary = read_only(unary)
        self.pairwise = None if pairwise is None else read_only(pairwise)
        return self

    @classmethod
    def on(cls, layout: Layout, unary: ArrayLike, pairwise: ArrayLike | None = None) -> Potentials:
        """Potentials of the examples of a layout, for instance of a batch of a `Dataset`: how a model makes them.

        ``unary`` has a row for each site and ``pairwise`` is one table or has one for each edge, as above; without it
        no sites are joined. The examples keep their random streams, so that their noise does not depend on what else
        is in the batch.

        >>> from perturbmap.potentials import Layout
        >>> pm.Potentials.on(Layout.of_counts([3, 1]), np.zeros((4, 2)), pm.potts(1.0))
        Potentials(2 examples, 4 sites, 2 labels, 2 edges)
        """
        u = as_floats("unary", unary, may_forbid=True)
        if u.ndim not in (2, 3) or u.shape[-1] == 0 or u.shape[-2] != layout.n_sites:
            raise ValueError(f"unary must have shape ({layout.n_sites}, n_labels), but it has shape {u.shape}.")
        if pairwise is None:
            return cls.trusted(layout.without_edges() if layout.n_edges else layout, u, None)
        tables = as_floats("pairwise", pairwise, _FORBID)
        _check_tables(tables, layout.n_edges, u.shape[-1])
        return cls.trusted(layout, u, tables)

    @classmethod
    def trusted(cls, layout: Layout, unary: Floats, pairwise: Floats | None) -> Potentials:
        """Makes potentials as `on` does, from contiguous arrays that are known to fit: nothing is checked."""
        return object.__new__(cls)._set(layout, unary, pairwise)

    @classmethod
    def batch(cls, examples: Sequence[Potentials]) -> Potentials:
        """One batch made of many examples, which must have the same number of labels.

        The examples get the random streams 0, 1, 2, ...; parts of the batch taken by ``f[i:j]`` keep them.
        """
        if not all(isinstance(f, Potentials) for f in examples):
            raise TypeError("examples must be a sequence of Potentials.")
        if len(examples) == 0:
            raise ValueError("examples is empty, so the number of labels is unknown; use f[:0] for an empty batch.")
        if len({f.unary.shape[:-2] + f.unary.shape[-1:] for f in examples}) > 1:
            counts = sorted({f.n_labels for f in examples})
            raise ValueError(f"examples must have the same number of labels and copies, but have {counts} labels.")
        tables = [f.pairwise for f in examples if f.pairwise is not None and f.n_edges]
        pairwise: Floats | None
        if not tables:
            pairwise = next((f.pairwise for f in examples if f.pairwise is not None), None)
            if pairwise is not None and pairwise.ndim == 3:
                pairwise = pairwise[:0]
        elif all(t.ndim == 2 and np.array_equal(t, tables[0]) for t in tables):
            pairwise = tables[0]
        else:
            pairwise = np.concatenate([f.tables for f in examples if f.n_edges])
        layout = Layout.join([f.layout for f in examples])
        return cls.trusted(layout, np.concatenate([f.unary for f in examples], axis=-2), pairwise)

    @property
    def edges(self) -> Labels:
        """The sites of each edge, counted through the whole batch, ``(n_edges, 2)``."""
        return self.layout.edges

    @property
    def site_offsets(self) -> Offsets:
        """Where the sites of each example begin, ``(n_examples + 1,)``."""
        return self.layout.site_offsets

    @property
    def edge_offsets(self) -> Offsets:
        """Where the edges of each example begin, ``(n_examples + 1,)``."""
        return self.layout.edge_offsets

    @property
    def n_sites(self) -> int:
        """The number of sites of all examples together."""
        return int(self.unary.shape[-2])

    @property
    def n_labels(self) -> int:
        """The number of labels, K, the same for all sites."""
        return int(self.unary.shape[-1])

    @property
    def stack(self) -> Floats:
        """The unary potentials with all copies on one leading axis, ``(n_copies, n_sites, n_labels)``."""
        u = self.unary
        return u[None] if u.ndim == 2 else u.reshape(math.prod(u.shape[:-2]), *u.shape[-2:])

    @property
    def n_edges(self) -> int:
        """The number of edges of all examples together."""
        return self.layout.n_edges

    @property
    def is_shared(self) -> bool:
        """Whether all edges share one table."""
        return self.pairwise is not None and self.pairwise.ndim == 2

    @property
    def tables(self) -> Floats:
        """The pairwise tables, one for each edge, shape ``(n_edges, n_labels, n_labels)``."""
        if self.pairwise is None:
            return np.empty((0, self.n_labels, self.n_labels))
        return np.broadcast_to(self.pairwise, (self.n_edges, self.n_labels, self.n_labels))

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int | slice) -> Potentials:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                raise ValueError(
                    "a batch can be sliced with step 1 only: take others as Potentials.batch([f[n] for n in ...])."
                )
            last = max(first, last)
        else:
            first = range(len(self))[index]
            last = first + 1
        sites, edges = self.layout.sites(first, last), self.layout.edges_between(first, last)
        pairwise = self.pairwise if self.pairwise is None or self.is_shared else self.pairwise[edges]
        unary = np.ascontiguousarray(self.unary[..., sites, :])
        return Potentials.trusted(self.layout.cut(first, last), unary, pairwise)

    def __repr__(self) -> str:
        copies = "".join(f"{n} copies, " for n in self.unary.shape[:-2])
        return (
            f"Potentials({len(self)} examples, {copies}{self.n_sites} sites, {self.n_labels} labels, "
            f"{self.n_edges} edges)"
        )

    def with_unary(self, unary: ArrayLike) -> Potentials:
        """The same potentials with another ``unary``, for instance a perturbed one; it may add a leading axis."""
        u = as_floats("unary", unary, may_forbid=True)
        if u.shape[-2:] != self.unary.shape[-2:]:
            raise ValueError(f"unary must have shape (..., {self.n_sites}, {self.n_labels}), not {u.shape}.")
        return Potentials.trusted(self.layout, u, self.pairwise)

    def scaled(self, factor: float) -> Potentials:
        """All scores multiplied by a positive number: the best labelling stays the same, probabilities change."""
        pairwise = None if self.pairwise is None else factor * self.pairwise
        return Potentials.trusted(self.layout, factor * self.unary, pairwise)

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Parts of an array over sites, ``(n_sites, ...)``, one part for each example."""
        return self.layout.split(values)

    def score(self, labels: ArrayLike) -> Floats:
        """f(y) for each example, shape ``(..., n_examples)``, of labels ``(..., n_sites)``."""
        y = self.check_labels("labels", labels, unknown=False)
        lead = self.unary.shape[:-2]
        if y.shape[:-1][y.ndim - 1 - len(lead) :] != lead:
            raise ValueError(f"labels must have shape (..., {', '.join(map(str, (*lead, self.n_sites)))}).")
        rows = y.reshape(math.prod(y.shape[:-1]), self.n_sites)
        values = np.empty((len(rows), len(self)))
        _core.score(self.to_core(), rows, values)
        return values.reshape(*y.shape[:-1], len(self))

    def indicators(self, labels: ArrayLike, weight: ArrayLike = 1.0) -> Moments:
        """``weight``, one number or one for each example, times the indicators of labels ``(n_sites,)``.

        Several labellings, ``(n, n_sites)`` with weights that broadcast to ``(n, n_examples)``, are summed over. See
        `Moments`.
        """
        y = self.check_labels("labels", labels, unknown=False)
        rows = y.reshape(-1, self.n_sites) if self.n_sites else y.reshape(math.prod(y.shape[:-1]), 0)
        each = np.asarray(weight, dtype=np.float64)
        if each.shape != (len(rows), len(self)):
            try:
                each = np.broadcast_to(each, (len(rows), len(self)))
            except ValueError:
                raise ValueError(
                    f"weight must be one number or one for each example, {len(self)}, but has shape {each.shape}."
                ) from None
        each = np.ascontiguousarray(each)
        unary = np.zeros((self.n_sites, self.n_labels))
        tables = np.zeros((1 if self.is_shared else self.n_edges, self.n_labels, self.n_labels))
        _core.indicators(self.to_core(), rows, each, unary, tables)
        return Moments(unary, None if self.pairwise is None else tables.reshape(self.pairwise.shape))

    def to_core(self, given: Labels | None = None) -> _core.Batch:
        """The arrays as the kernels take them."""
        layout = self.layout
        return _core.Batch(self.unary, layout.edges, self.pairwise, layout.site_offsets, layout.edge_offsets, given)

    def check_labels(self, name: str, labels: ArrayLike, *, unknown: bool) -> Labels:
        """Integer labels, one for each site; with ``unknown``, -1 stands for a label that is not known."""
        y = np.asarray(labels)
        if y.shape[-1:] != (self.n_sites,) or (unknown and y.ndim != 1):
            raise ValueError(f"{name} must have one label for each site, shape ({self.n_sites},), but has {y.shape}.")
        low = -1 if unknown else 0
        if y.dtype == np.int32 and y.flags.c_contiguous and _core.are_labels(y, low, self.n_labels):
            return y
        if y.size and y.dtype.kind not in "iu":
            raise ValueError(f"{name} must hold integers, but its dtype is {y.dtype}.")
        if y.size and (y.min() < low or y.max() >= self.n_labels):
            bad = y[(y < low) | (y >= self.n_labels)].flat[0]
            hint = " or -1 where it is not known" if unknown else ""
            raise ValueError(f"{name} must be labels 0..{self.n_labels - 1}{hint}, but holds {bad}.")
        return np.ascontiguousarray(y, dtype=np.int32)


def _check_tables(tables: Floats, n_edges: int, n_labels: int) -> None:
    per_edge, shared = (n_edges, n_labels, n_labels), (n_labels, n_labels)
    if tables.shape != per_edge and tables.shape != shared:
        raise ValueError(
            f"pairwise must have shape {shared} (shared by all edges) or {per_edge} (one table for each edge), "
            f"but it has shape {tables.shape}."
        )
