"""Which structure fits potentials over pairs: a chain, a forest, an attractive graph of two labels, or any graph."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures import BinaryGraph, Chain, Graph, Structure, Tree


class Forest(NamedTuple):
    """A spanning forest: each site's parent (-1 at a root), the edge to it, and the sites, parents first."""

    parent: list[int]
    edge: list[int]
    order: list[int]


def spanning_forest(n_sites: int, edges: Labels) -> Forest:
    """A spanning forest, breadth first, from the smallest site of each tree."""
    ends = np.concatenate([edges, edges[:, ::-1]])
    by_site = np.argsort(ends[:, 0], kind="stable")
    starts = np.searchsorted(ends[by_site, 0], np.arange(n_sites + 1)).tolist()
    heads, numbers = ends[by_site, 1].tolist(), (by_site % max(1, len(edges))).tolist()
    parent, edge, order = [-1] * n_sites, [-1] * n_sites, []
    seen = [False] * n_sites
    for root in range(n_sites):
        if seen[root]:
            continue
        seen[root] = True
        queue = deque([root])
        while queue:
            site = queue.popleft()
            order.append(site)
            for k in range(starts[site], starts[site + 1]):
                if not seen[heads[k]]:
                    seen[heads[k]], parent[heads[k]], edge[heads[k]] = True, site, numbers[k]
                    queue.append(heads[k])
    return Forest(parent, edge, order)


def coupling(f: Potentials) -> Floats:
    """``f00 + f11 - f01 - f10`` of each edge of two labels; zero where it is rounding."""
    t = f.tables.reshape(-1, 4)
    values = (t[:, 0] - t[:, 1]) + (t[:, 3] - t[:, 2])
    return np.where(np.abs(values) <= 1e-12 * np.abs(t).max(axis=1, initial=0), 0.0, values)


def sites_to_exchange(f: Potentials) -> NDArray[np.bool_]:
    """Sites whose two labels are to be exchanged, which makes every edge of a graph with cycles attractive.

    An exchange at one end of an edge turns its sign round. So the sites must be parted in two such that edges of
    negative sign, and no others of a sign, join the parts: if that can be done, it is done along any spanning forest.
    None where it cannot, or need not be done.
    """
    n, nobody = f.n_sites, np.zeros(f.n_sites, dtype=np.bool_)
    if f.n_labels != 2 or not f.n_edges or _closing_edge(f, spanning_forest(n, f.edges)) < 0:
        return nobody
    values = coupling(f)
    if (values >= 0).all():
        return nobody
    side = _sides(f, values)
    return side if not _is_frustrated(f, values, side).any() else nobody


def fitting_structure(f: Potentials) -> Structure:
    """`Chain`, `Tree`, `BinaryGraph` or `Graph`, whichever fits first: all but the last are exact."""
    if _closing_edge(f, spanning_forest(f.n_sites, f.edges)) < 0:
        return Chain() if f.n_edges == 0 or f.layout.is_chain() else Tree()
    return BinaryGraph() if f.n_labels == 2 and (coupling(f) >= 0).all() else Graph()


def _closing_edge(f: Potentials, forest: Forest) -> int:
    """The first edge that is not in the forest, which closes a cycle; -1 where there is none."""
    is_outside = np.ones(f.n_edges, dtype=bool)
    is_outside[[e for e in forest.edge if e >= 0]] = False
    return int(is_outside.argmax()) if is_outside.any() else -1


def _sides(f: Potentials, values: Floats) -> NDArray[np.bool_]:
    """The two parts of the sites, along a spanning forest of the edges that have a sign."""
    strong = np.flatnonzero(values != 0)
    forest = spanning_forest(f.n_sites, f.edges[strong])
    side = [False] * f.n_sites
    is_repulsive = (values < 0)[strong].tolist()
    for site in forest.order:
        if forest.parent[site] >= 0:
            side[site] = side[forest.parent[site]] ^ is_repulsive[forest.edge[site]]
    return np.array(side, dtype=np.bool_)


def _is_frustrated(f: Potentials, values: Floats, side: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Edges that are not attractive even after the exchange."""
    is_across = side[f.edges[:, 0]] != side[f.edges[:, 1]]
    return np.asarray((values != 0) & (is_across != (values < 0)))
