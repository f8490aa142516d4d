"""The function f(y) that everything maximises, as arrays, for a ragged batch of examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap import _core
from perturbmap.checks import as_floats
from perturbmap.graphs import check_edges, check_order

Floats = NDArray[np.float64]
Labels = NDArray[np.int32]
Mask = NDArray[np.bool_]


class Moments(NamedTuple):
    """Weighted sums of the indicators of labellings, array by array in the shape of ``f``.

    Where ``f`` shares a table between edges, examples or perturbed copies, the moments are summed over them:
    ``moments`` is the gradient of a weighted sum of scores with respect to the arrays of ``f``.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> f.indicators([1, 0]).unary
    array([[0., 1.],
           [1., 0.]])
    >>> f.indicators([1, 0]).pairwise
    array([[0., 0.],
           [1., 0.]])
    """

    unary: Floats
    pairwise: Floats | None


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


_FORBID = " To forbid a label, use a large negative number, or `given` to fix one."


def chain_edges(site_offsets: NDArray[np.int64]) -> Labels:
    """Edges between consecutive sites of each example."""
    starts = np.arange(site_offsets[-1] - 1, dtype=np.int32)
    inside = np.ones(starts.size, dtype=bool)
    inside[site_offsets[1:-1][(site_offsets[1:-1] > 0) & (site_offsets[1:-1] < site_offsets[-1])] - 1] = False
    starts = starts[inside]
    return np.stack([starts, starts + np.int32(1)], axis=1)


@final
class Potentials:
    """``f(y) = sum_d unary[d, y_d] + sum_e pairwise[e, y_i, y_j]`` with ``(i, j) = edges[e]``.

    unary : (n_sites, n_labels)
    pairwise : (n_labels, n_labels) or (n_edges, n_labels, n_labels), optional; one table for all edges, or one an
        edge; rows are the labels of ``edges[:, 0]``
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

    __slots__ = ("edge_offsets", "edges", "pairwise", "site_offsets", "streams", "unary")

    unary: Floats
    pairwise: Floats | None
    edges: Labels
    site_offsets: NDArray[np.int64]
    edge_offsets: NDArray[np.int64]
    #: The random stream of each example: what makes noise independent of how examples are batched.
    streams: NDArray[np.uint64]

    def __init__(self, unary: ArrayLike, pairwise: ArrayLike | None = None, edges: Any = None) -> None:
        u = as_floats("unary", unary, _FORBID)
        if u.ndim not in (2, 3) or u.shape[-1] == 0:
            raise ValueError(
                f"unary must have shape (n_sites, n_labels) with at least one label, but it has shape {u.shape}."
            )
        n_sites, n_labels = u.shape[-2:]
        site_offsets = np.array([0, n_sites], dtype=np.int64)
        tables = None
        e = np.empty((0, 2), dtype=np.int32) if edges is None else check_edges(edges, n_sites)
        if pairwise is None:
            if len(e):
                raise ValueError("edges were given without pairwise: pass the pairwise tables too.")
        else:
            if edges is None:
                e = chain_edges(site_offsets)
            tables = as_floats("pairwise", pairwise, _FORBID)
            if tables.ndim == 3:
                check_order(edges, "pairwise")
            per_edge, shared = (len(e), n_labels, n_labels), (n_labels, n_labels)
            if tables.shape not in (per_edge, shared):
                raise ValueError(
                    f"pairwise must have shape {shared} (shared by all edges) or {per_edge} (one table an edge), "
                    f"but it has shape {tables.shape}."
                )
        self._set(
            u,
            tables,
            e,
            site_offsets,
            np.array([0, len(e)], dtype=np.int64),
            np.zeros(1, dtype=np.uint64),
        )

    def _set(
        self,
        unary: Floats,
        pairwise: Floats | None,
        edges: Labels,
        site_offsets: NDArray[np.int64],
        edge_offsets: NDArray[np.int64],
        streams: NDArray[np.uint64],
    ) -> Potentials:
        self.unary = _read_only(unary)
        self.pairwise = None if pairwise is None else _read_only(pairwise)
        self.edges = _read_only(edges)
        self.site_offsets = _read_only(site_offsets)
        self.edge_offsets = _read_only(edge_offsets)
        self.streams = _read_only(streams)
        return self

    @classmethod
    def _trusted(cls, *arrays: Any) -> Potentials:
        return object.__new__(cls)._set(*arrays)

    @classmethod
    def batch(cls, examples: Sequence[Potentials]) -> Potentials:
        """One batch from many; their number of labels must agree.

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
        sizes = np.concatenate([np.diff(f.site_offsets) for f in examples])
        edge_counts = np.concatenate([np.diff(f.edge_offsets) for f in examples])
        starts = np.cumsum([0, *(f.n_sites for f in examples)])
        return cls._trusted(
            np.concatenate([f.unary for f in examples], axis=-2),
            pairwise,
            np.concatenate([f.edges + np.int32(s) for f, s in zip(examples, starts[:-1], strict=True)]),
            np.concatenate([[0], np.cumsum(sizes)]),
            np.concatenate([[0], np.cumsum(edge_counts)]),
            np.arange(sizes.size, dtype=np.uint64),
        )

    @property
    def n_sites(self) -> int:
        """Of all examples together."""
        return int(self.unary.shape[-2])

    @property
    def n_labels(self) -> int:
        """K, the same for all sites."""
        return int(self.unary.shape[-1])

    @property
    def stack(self) -> Floats:
        """The unary potentials with all copies on one leading axis, ``(n_copies, n_sites, n_labels)``."""
        u = self.unary
        return u[None] if u.ndim == 2 else u.reshape(math.prod(u.shape[:-2]), *u.shape[-2:])

    @property
    def n_edges(self) -> int:
        """Of all examples together."""
        return len(self.edges)

    @property
    def is_shared(self) -> bool:
        """Whether all edges share one table."""
        return self.pairwise is not None and self.pairwise.ndim == 2

    @property
    def tables(self) -> Floats:
        """The pairwise tables, one an edge, shape ``(n_edges, n_labels, n_labels)``."""
        if self.pairwise is None:
            return np.empty((0, self.n_labels, self.n_labels))
        return np.broadcast_to(self.pairwise, (self.n_edges, self.n_labels, self.n_labels))

    def is_chain(self) -> bool:
        """Whether the edges join the consecutive sites of each example, in order, and nothing else."""
        n_chains = int(np.count_nonzero(self.site_offsets[1:] > self.site_offsets[:-1]))
        first, second = self.edges[:, 0], self.edges[:, 1]
        return (
            self.n_edges == self.n_sites - n_chains
            and bool((second == first + 1).all())
            and bool((first[1:] > first[:-1]).all())
        )

    def __len__(self) -> int:
        return len(self.streams)

    def __getitem__(self, index: int | slice) -> Potentials:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                raise ValueError("a batch can be sliced with step 1 only.")
            last = max(first, last)
        else:
            first = range(len(self))[index]
            last = first + 1
        sites = slice(int(self.site_offsets[first]), int(self.site_offsets[last]))
        edges = slice(int(self.edge_offsets[first]), int(self.edge_offsets[last]))
        pairwise = self.pairwise if self.pairwise is None or self.is_shared else self.pairwise[edges]
        return Potentials._trusted(
            np.ascontiguousarray(self.unary[..., sites, :]),
            pairwise,
            self.edges[edges] - np.int32(sites.start),
            self.site_offsets[first : last + 1] - sites.start,
            self.edge_offsets[first : last + 1] - edges.start,
            self.streams[first:last],
        )

    def __repr__(self) -> str:
        copies = "".join(f"{n} copies, " for n in self.unary.shape[:-2])
        return (
            f"Potentials({len(self)} examples, {copies}{self.n_sites} sites, {self.n_labels} labels, "
            f"{self.n_edges} edges)"
        )

    def with_unary(self, unary: Floats) -> Potentials:
        """The same with other unary potentials, for instance perturbed ones; may add a leading axis."""
        if unary.shape[-2:] != self.unary.shape[-2:]:
            raise ValueError(f"unary must have shape (..., {self.n_sites}, {self.n_labels}), not {unary.shape}.")
        return Potentials._trusted(
            np.ascontiguousarray(unary, dtype=np.float64),
            self.pairwise,
            self.edges,
            self.site_offsets,
            self.edge_offsets,
            self.streams,
        )

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Parts of an array over sites, ``(n_sites, ...)``, one an example."""
        if len(values) != self.n_sites:
            raise ValueError(f"values must have one row a site, {self.n_sites}, but has {len(values)}.")
        return np.split(values, self.site_offsets[1:-1]) if len(self) else []

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
        """``weight``, one number or one an example, times the indicators of labels ``(n_sites,)``.

        Of several labellings, ``(n, n_sites)`` with weights that broadcast to ``(n, n_examples)``, the sum.
        """
        y = self.check_labels("labels", labels, unknown=False)
        rows = y.reshape(-1, self.n_sites) if self.n_sites else y.reshape(math.prod(y.shape[:-1]), 0)
        each = np.asarray(weight, dtype=np.float64)
        try:
            each = np.ascontiguousarray(np.broadcast_to(each, (len(rows), len(self))))
        except ValueError:
            raise ValueError(
                f"weight must be one number or one an example, {len(self)}, but has shape {each.shape}."
            ) from None
        unary = np.zeros((self.n_sites, self.n_labels))
        tables = np.zeros((1 if self.is_shared else self.n_edges, self.n_labels, self.n_labels))
        _core.indicators(self.to_core(), rows, each, unary, tables)
        return Moments(unary, None if self.pairwise is None else tables.reshape(self.pairwise.shape))

    def to_core(self, given: Labels | None = None) -> _core.Batch:
        """The arrays as the kernels take them."""
        k = self.n_labels
        tables = np.zeros((0, k, k)) if self.pairwise is None else self.pairwise.reshape(-1, k, k)
        return _core.Batch(
            self.stack, self.edges, tables, self.is_shared, self.site_offsets, self.edge_offsets, given
        )

    def check_labels(self, name: str, labels: ArrayLike, *, unknown: bool) -> Labels:
        """Integer labels, one a site; with ``unknown``, -1 stands for a label that is not known."""
        y = np.asarray(labels)
        if y.shape[-1:] != (self.n_sites,) or (unknown and y.ndim != 1):
            raise ValueError(f"{name} must have one label a site, shape ({self.n_sites},), but has {y.shape}.")
        if y.size and not np.issubdtype(y.dtype, np.integer):
            raise ValueError(f"{name} must hold integers, but its dtype is {y.dtype}.")
        low = -1 if unknown else 0
        if y.size and (y.min() < low or y.max() >= self.n_labels):
            bad = y[(y < low) | (y >= self.n_labels)].flat[0]
            hint = " or -1 where it is not known" if unknown else ""
            raise ValueError(f"{name} must be labels 0..{self.n_labels - 1}{hint}, but holds {bad}.")
        return np.ascontiguousarray(y, dtype=np.int32)
