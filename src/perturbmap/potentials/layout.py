"""Where the sites and edges of each example of a ragged batch are: what `Potentials` and `Dataset` share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap.potentials.types import Floats, Labels, Offsets


def offsets_of(counts: ArrayLike) -> Offsets:
    """Where each of some parts begins when they lie one after another, and where the last ends.

    >>> from perturbmap.potentials import offsets_of
    >>> offsets_of([2, 0, 3])
    array([0, 2, 2, 5])
    """
    each = np.asarray(counts, dtype=np.int64)
    offsets = np.zeros(each.size + 1, dtype=np.int64)
    np.cumsum(each, out=offsets[1:])
    return offsets


def ranges(offsets: Offsets, indices: NDArray[np.intp]) -> NDArray[np.intp]:
    """The positions that some of the parts cover, one part after another."""
    starts = offsets[indices]
    counts = offsets[indices + 1] - starts
    ends = counts.cumsum()
    return np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if ends.size else 0)


def chain_edges(site_offsets: Offsets) -> Labels:
    """Edges between consecutive sites of each example."""
    starts = np.arange(site_offsets[-1] - 1, dtype=np.int32)
    inside = np.ones(starts.size, dtype=bool)
    inside[site_offsets[1:-1][(site_offsets[1:-1] > 0) & (site_offsets[1:-1] < site_offsets[-1])] - 1] = False
    starts = starts[inside]
    return np.stack([starts, starts + np.int32(1)], axis=1)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, through which nobody writes by mistake."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.setflags(False)  # type: ignore[call-arg]  # `write`, which takes twice as long by its name
    return view


@final
class Layout:
    """Where the sites and edges of each example are in a batch, in which examples lie one after another.

    site_offsets : (n_examples + 1,), where the sites of each example begin
    edges : (n_edges, 2), the two sites of each edge, counted through the whole batch
    edge_offsets : (n_examples + 1,), where the edges of each example begin
    streams : (n_examples,), the random stream of each example, which makes its noise independent of how examples are
        batched: it is the example's number in the data that it comes from, and stays with it when examples are taken
        out

    >>> from perturbmap.potentials import Layout
    >>> layout = Layout.of_counts([3, 2])
    >>> layout.site_offsets, layout.edges.tolist()
    (array([0, 3, 5]), [[0, 1], [1, 2], [3, 4]])
    >>> layout.sums(np.array([1.0, 1.0, 1.0, 5.0, 5.0]))
    array([ 3., 10.])
    """

    __slots__ = ("edge_offsets", "edges", "site_offsets", "streams")

    site_offsets: Offsets
    edges: Labels
    edge_offsets: Offsets
    streams: NDArray[np.uint64]

    def __init__(
        self, site_offsets: Offsets, edges: Labels, edge_offsets: Offsets, streams: NDArray[np.uint64]
    ) -> None:
        self.site_offsets = read_only(site_offsets)
        self.edges = read_only(edges)
        self.edge_offsets = read_only(edge_offsets)
        self.streams = read_only(streams)

    @classmethod
    def of_counts(cls, site_counts: ArrayLike, edges: Sequence[Labels] | None = None) -> Layout:
        """Examples of so many sites; ``edges`` of each are counted from its own first site, a chain by default."""
        site_offsets = offsets_of(site_counts)
        streams = np.arange(len(site_offsets) - 1, dtype=np.uint64)
        if edges is None:
            counts = np.maximum(0, np.diff(site_offsets) - 1)
            return cls(site_offsets, chain_edges(site_offsets), offsets_of(counts), streams)
        moved = [e + np.int32(start) for e, start in zip(edges, site_offsets[:-1], strict=True)]
        joined = np.concatenate(moved) if moved else np.empty((0, 2), dtype=np.int32)
        return cls(site_offsets, joined, offsets_of([len(e) for e in edges]), streams)

    @classmethod
    def one_example(cls, n_sites: int, edges: Labels) -> Layout:
        """The layout of a single example, with random stream 0."""
        layout = object.__new__(cls)
        layout.site_offsets, layout.edge_offsets = _bounds(n_sites), _bounds(len(edges))
        layout.edges, layout.streams = read_only(edges), _FIRST_STREAM
        return layout

    @classmethod
    def join(cls, layouts: Sequence[Layout]) -> Layout:
        """Joins batches, one after another; the examples get the random streams 0, 1, 2, ..."""
        starts = offsets_of([layout.n_sites for layout in layouts])
        site_offsets = offsets_of(np.concatenate([layout.site_counts for layout in layouts]))
        return cls(
            site_offsets,
            np.concatenate([layout.edges + np.int32(s) for layout, s in zip(layouts, starts[:-1], strict=True)]),
            offsets_of(np.concatenate([layout.edge_counts for layout in layouts])),
            np.arange(len(site_offsets) - 1, dtype=np.uint64),
        )

    def __len__(self) -> int:
        return len(self.streams)

    @property
    def n_sites(self) -> int:
        """The number of sites of all examples together."""
        return int(self.site_offsets[-1])

    @property
    def n_edges(self) -> int:
        """The number of edges of all examples together."""
        return len(self.edges)

    @property
    def site_counts(self) -> NDArray[np.int64]:
        """The number of sites of each example."""
        return self.site_offsets[1:] - self.site_offsets[:-1]

    @property
    def edge_counts(self) -> NDArray[np.int64]:
        """The number of edges of each example."""
        return self.edge_offsets[1:] - self.edge_offsets[:-1]

    def sites(self, first: int, last: int | None = None) -> slice:
        """The sites of example ``first``, or of the examples from ``first`` up to ``last``."""
        return slice(int(self.site_offsets[first]), int(self.site_offsets[first + 1 if last is None else last]))

    def edges_between(self, first: int, last: int | None = None) -> slice:
        """The edges of example ``first``, or of the examples from ``first`` up to ``last``."""
        return slice(int(self.edge_offsets[first]), int(self.edge_offsets[first + 1 if last is None else last]))

    def sites_of(self, indices: NDArray[np.intp]) -> NDArray[np.intp]:
        """The sites of some examples, one example after another."""
        return ranges(self.site_offsets, indices)

    def cut(self, first: int, last: int) -> Layout:
        """The examples from ``first`` up to ``last``, which keep their streams."""
        sites, edges = self.sites(first, last), self.edges_between(first, last)
        return Layout(
            self.site_offsets[first : last + 1] - sites.start,
            self.edges[edges] - np.int32(sites.start),
            self.edge_offsets[first : last + 1] - edges.start,
            self.streams[first:last],
        )

    def take(self, indices: NDArray[np.intp]) -> Layout:
        """Some examples, in any order, which keep their streams."""
        starts = self.site_offsets[indices]
        site_offsets = offsets_of(self.site_offsets[indices + 1] - starts)
        edge_counts = self.edge_offsets[indices + 1] - self.edge_offsets[indices]
        moved = np.repeat(site_offsets[:-1] - starts, edge_counts).astype(np.int32)
        edges = self.edges[ranges(self.edge_offsets, indices)] + moved[:, None]
        return Layout(site_offsets, edges, offsets_of(edge_counts), self.streams[indices])

    def with_streams(self, streams: NDArray[np.uint64]) -> Layout:
        """The same examples with other random streams."""
        return Layout(self.site_offsets, self.edges, self.edge_offsets, streams)

    def without_edges(self) -> Layout:
        """The same sites, no two of them joined."""
        nothing = np.zeros(len(self) + 1, dtype=np.int64)
        return Layout(self.site_offsets, np.empty((0, 2), dtype=np.int32), nothing, self.streams)

    def with_edges(self, edges: Labels, edge_offsets: Offsets) -> Layout:
        """The same sites, joined by other edges."""
        return Layout(self.site_offsets, edges, edge_offsets, self.streams)

    def is_chain(self) -> bool:
        """Whether the edges join the consecutive sites of each example, in order, and nothing else."""
        n_chains = int(np.count_nonzero(self.site_offsets[1:] > self.site_offsets[:-1]))
        first, second = self.edges[:, 0], self.edges[:, 1]
        return (
            self.n_edges == self.n_sites - n_chains
            and bool((second == first + 1).all())
            and bool((first[1:] > first[:-1]).all())
        )

    # Arrays over sites, and arrays over examples.

    def sums(self, values: NDArray[Any]) -> Floats:
        """Sums over the sites of each example, ``(n_examples, ...)``."""
        return self._reduced(np.add, values)

    def maxima(self, values: NDArray[Any]) -> Floats:
        """The largest of values that are not negative, over the sites of each example, ``(n_examples, ...)``."""
        return self._reduced(np.maximum, values)

    def _reduced(self, operation: np.ufunc, values: NDArray[Any]) -> Floats:
        # Offsets may point behind the last row; and reduceat takes the row itself where there is nothing to reduce.
        padded = np.concatenate([values, np.zeros((1, *values.shape[1:]))])
        reduced = operation.reduceat(padded, self.site_offsets[:-1], axis=0)
        return np.asarray(reduced * (self.site_counts > 0).reshape(-1, *([1] * (values.ndim - 1))))

    def repeat(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeats a value of each example for each of its sites, ``(n_sites, ...)``."""
        return np.repeat(values, self.site_counts, axis=0)

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Parts of an array over sites, ``(n_sites, ...)``, one part for each example."""
        if len(values) != self.n_sites:
            raise ValueError(f"values must have one row for each site, {self.n_sites}, but has {len(values)}.")
        return np.split(values, self.site_offsets[1:-1]) if len(self) else []


_FIRST_STREAM: NDArray[np.uint64] = np.frombuffer(bytes(8), dtype=np.uint64)  # whose memory nobody can write


@lru_cache(maxsize=1024)
def _bounds(n: int) -> Offsets:
    """Where a single part of ``n`` begins and ends; one array for all who ask, whose memory nobody can write."""
    return np.frombuffer(np.array([0, n], dtype=np.int64).tobytes(), dtype=np.int64)
