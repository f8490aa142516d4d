"""Edges and tables of common graphs: grids, networkx graphs, region graphs, sparse adjacency matrices."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap import _core
from perturbmap.support.checks import as_floats


class GraphEdges(NamedTuple):
    """The edges of a graph: ``edges``, (n_edges, 2) site numbers, and ``weights``, (n_edges,)."""

    edges: NDArray[np.int32]
    weights: NDArray[np.float64]


def grid_edges(height: int, width: int) -> NDArray[np.int32]:
    """Edges between horizontal and vertical neighbours of an image, whose pixels are the sites, numbered row by row.

    >>> pm.grid_edges(2, 2).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    if height < 0 or width < 0:
        raise ValueError(f"height and width must not be negative, but are {height} and {width}.")
    sites = np.arange(height * width, dtype=np.int32).reshape(height, width)
    across = np.stack([sites[:, :-1].ravel(), sites[:, 1:].ravel()], axis=1)
    down = np.stack([sites[:-1].ravel(), sites[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def potts(weights: ArrayLike, n_labels: int = 2) -> NDArray[np.float64]:
    """Tables that reward equal labels: ``weights[e] * [a == b]``; a single weight makes one shared table.

    A weight is what a pair of equal labels adds to the score; a negative one rewards different labels. The tables are
    ``pairwise`` of `Potentials`.

    >>> pm.potts(0.5)
    array([[0.5, 0. ],
           [0. , 0.5]])
    >>> pm.potts([0.5, 2.0]).shape
    (2, 2, 2)
    """
    return as_floats("weights", weights)[..., None, None] * np.eye(n_labels)


def graph_edges(graph: Any, nodes: Iterable[Hashable] | None = None, weight: str | None = "weight") -> GraphEdges:
    """The edges of a graph, each once and sorted, ``(i, j)`` before ``(i, j + 1)``, and their weights.

    graph : a networkx graph (scikit-image's region adjacency graph, RAG, is one), or a square ``scipy.sparse``
        adjacency matrix
    nodes : the nodes in the order of your rows of potentials or features, such as ``np.unique(segments)`` for a RAG;
        left out, the nodes must be the site numbers 0..n-1 themselves
    weight : the name of the edge attribute of a networkx graph that holds the weights; where no edge has a "weight",
        all are 1, as for None. A matrix holds its weights itself

    An undirected graph and a symmetric matrix give ``i < j``. A directed graph, or a matrix that has no edge in both
    directions, such as a spanning tree of ``scipy.sparse.csgraph``, gives ``(tail, head)``: (row, column), (parent,
    child). Every stored entry of a matrix is an edge, as in ``csgraph``; ``eliminate_zeros()`` drops explicit zeros.
    """
    if _is_sparse(graph):
        if nodes is not None:
            raise ValueError("nodes is for networkx graphs, but graph is a matrix, whose rows are the sites 0..n-1.")
        edges, weights, is_directed = _matrix_edges(graph)
        if weight != "weight" and weight is not None:
            raise ValueError(f"weight must be left out for a matrix, which holds its weights, but is {weight!r}.")
        values = np.ones(len(edges)) if weight is None else _check_weights(edges, weights)
    elif _is_networkx(graph):
        edges = _numbered(graph, nodes)
        values = _check_weights(edges, _networkx_weights(graph, weight))
        is_directed = bool(graph.is_directed())
    else:
        raise TypeError(
            f"graph must be a networkx graph or a scipy.sparse matrix, but is a {type(graph).__name__}. "
            "A dense adjacency matrix A is passed as scipy.sparse.csr_array(A)."
        )
    if not is_directed:
        edges = np.sort(edges, axis=1)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    return _check_single(GraphEdges(edges[order], values[order]))


def check_order(edges: Any, rows: str) -> None:
    """Raises ValueError for a networkx graph beside ``rows``, one for each edge: their order cannot be known."""
    if _is_networkx(edges):
        raise ValueError(
            f"edges is a networkx graph, and {rows} has one row for each edge, in an order that the graph may not "
            "have. Take the edges out first, edges, weights = graph_edges(graph), and give rows in their order."
        )


def check_edges(edges: Any, n_sites: int, name: str = "edges") -> NDArray[np.int32]:
    """Pairs of different sites as an int32 array, from an array or a graph; else an error that names the argument."""
    if not isinstance(edges, np.ndarray) and (_is_sparse(edges) or _is_networkx(edges)):
        n_nodes = edges.shape[0] if _is_sparse(edges) else len(edges)
        try:
            found = graph_edges(edges, weight=None).edges
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if n_nodes != n_sites:
            raise ValueError(
                f"{name} must be a graph with one node for each site, {n_sites}, but has {n_nodes}; there is one row "
                "of unary potentials or features for each site, and nodes without edges count too."
            )
        return found
    array = np.asarray(edges)
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int32)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"{name} must have shape (n_edges, 2), two sites per edge, but it has shape {array.shape}.")
    copy = np.empty(array.shape, dtype=np.int32)  # what the kernels index by is nobody else's
    if _core.copy_edges(array, n_sites, copy):
        return copy
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must hold integer site numbers, but its dtype is {array.dtype}.")
    if array.min() < 0 or array.max() >= n_sites:
        bad = np.flatnonzero((array < 0).any(axis=1) | (array >= n_sites).any(axis=1))
        raise ValueError(
            f"{name} must join sites 0..{n_sites - 1}, but edge {bad[0]} is {array[bad[0]].tolist()}; "
            "there is one row of unary potentials or features for each site."
        )
    if (array[:, 0] == array[:, 1]).any():
        loop = np.flatnonzero(array[:, 0] == array[:, 1])[0]
        raise ValueError(
            f"{name} must join two different sites, but edge {loop} joins site {array[loop, 0]} to itself. "
            "Add its diagonal to that site's unary potentials instead."
        )
    copy[...] = array
    return copy


# A graph of networkx or SciPy exists only where its user has imported them: it is known without importing them here.


def _is_networkx(graph: Any) -> bool:
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(graph, networkx.Graph)


def _is_sparse(graph: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(graph))


def _matrix_edges(matrix: Any) -> tuple[NDArray[np.int32], NDArray[Any], bool]:
    """Rows and columns, values, and whether they are directed; of a symmetric matrix the upper triangle."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"graph must be a square adjacency matrix, but has shape {matrix.shape}.")
    if not (np.issubdtype(matrix.dtype, np.number) or matrix.dtype == np.bool_) or np.iscomplexobj(matrix):
        raise ValueError(f"graph must hold real numbers, but its dtype is {matrix.dtype}.")
    import scipy.sparse as sp

    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    coo = sp.coo_array(csr)
    n = matrix.shape[0]
    rows, columns = coo.row.astype(np.int64), coo.col.astype(np.int64)
    edges = np.stack([rows, columns], axis=1).astype(np.int32)
    keys, turned = rows * n + columns, columns * n + rows
    if keys.size == 0:
        return edges, coo.data, False
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys[order], turned), len(keys) - 1)]
    has_both = (keys[at] == turned) & (rows != columns)
    if not has_both.any():
        return edges, coo.data, True
    # Both NaN count as equal: the check of the weights names them.
    differs = ~has_both | ((coo.data != coo.data[at]) & ~(np.isnan(coo.data) & np.isnan(coo.data[at])))
    differs &= rows != columns
    if differs.any():
        e = int(np.flatnonzero(differs)[0])
        i, j = edges[e].tolist()
        other = coo.data[at[e]] if has_both[e] else "not stored"
        raise ValueError(
            "graph must be symmetric, or hold each edge in one direction only, but entry "
            f"({i}, {j}) is {coo.data[e]} and ({j}, {i}) is {other}. Make it symmetric, for instance by "
            "A.maximum(A.T), or directed, for instance by scipy.sparse.triu(A)."
        )
    upper = rows <= columns
    return edges[upper], coo.data[upper], False


def _numbered(graph: Any, nodes: Iterable[Hashable] | None) -> NDArray[np.int32]:
    """The edges of a networkx graph as numbers: nodes by their place in ``nodes``, or by themselves."""
    if nodes is None:
        odd = next((v for v in graph if not isinstance(v, Integral) or isinstance(v, bool)), None)
        if odd is None and len(graph):
            odd = next((v for v in graph if not 0 <= v < len(graph)), None)
        if odd is not None:
            raise ValueError(
                f"the nodes of a graph must be the site numbers 0..{len(graph) - 1}, but there is {_shown(odd)}. "
                "Name them in the order of your rows, graph_edges(graph, nodes=...), for instance "
                "nodes=np.unique(segments) for a region graph, and pass its edges."
            )
        pairs = [(int(u), int(v)) for u, v in graph.edges()]
    else:
        named = list(nodes)
        try:
            place = {v: d for d, v in enumerate(named)}
        except TypeError:
            raise ValueError("nodes must be names of nodes, one for each row, but some cannot be a name.") from None
        if len(place) < len(named):
            twice = next(v for d, v in enumerate(named) if place[v] != d)
            raise ValueError(f"nodes must name every node once, but names {_shown(twice)} more than once.")
        strange = next((v for v in named if v not in graph), None)
        if strange is not None:
            raise ValueError(f"nodes must be nodes of the graph, but {_shown(strange)} is none.")
        missing = next((v for v in graph if v not in place), None)
        if missing is not None:
            raise ValueError(
                f"nodes must name all {len(graph)} nodes of the graph, but {_shown(missing)} is missing. "
                "To leave nodes out, pass graph.subgraph(nodes)."
            )
        pairs = [(place[u], place[v]) for u, v in graph.edges()]
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def _shown(node: Hashable) -> str:
    return str(node) if isinstance(node, Integral) else repr(node)


def _networkx_weights(graph: Any, weight: str | None) -> NDArray[Any]:
    attributes = [data for _, _, data in graph.edges(data=True)]
    n_lacking = sum(weight not in data for data in attributes)
    if weight is None or (weight == "weight" and n_lacking == len(attributes)):
        return np.ones(len(attributes))
    if n_lacking:
        u, v = next((u, v) for u, v, data in graph.edges(data=True) if weight not in data)
        raise ValueError(
            f"weight must name an attribute of all edges, but {n_lacking} of {len(attributes)} edges have no "
            f"{weight!r} (first: {_shown(u)} to {_shown(v)}). weight=None makes all weights 1."
        )
    try:
        return np.array([float(data[weight]) for data in attributes])
    except (TypeError, ValueError) as error:
        raise ValueError(f"weight must name an attribute that is a number, but {weight!r} is not: {error}.") from None


def _check_weights(edges: NDArray[np.int32], weights: NDArray[Any]) -> NDArray[np.float64]:
    values = weights.astype(np.float64)
    if not np.isfinite(values).all():
        e = int(np.flatnonzero(~np.isfinite(values))[0])
        i, j = edges[e].tolist()
        raise ValueError(f"the weights of a graph must be finite, but that of the edge ({i}, {j}) is {values[e]}.")
    return values


def _check_single(found: GraphEdges) -> GraphEdges:
    """No edge joins a site to itself, and no two join the same sites."""
    edges = found.edges
    if (edges[:, 0] == edges[:, 1]).any():
        site = int(edges[edges[:, 0] == edges[:, 1]][0, 0])
        raise ValueError(
            f"a graph must join different sites, but joins site {site} to itself. Drop such edges: "
            "graph.remove_edges_from(list(nx.selfloop_edges(graph))), or matrix.setdiag(0) and eliminate_zeros()."
        )
    low, high = edges.min(axis=1, initial=2**31 - 1), edges.max(axis=1, initial=0)
    order = np.lexsort((high, low))
    repeats = (np.diff(low[order]) == 0) & (np.diff(high[order]) == 0)
    if repeats.any():
        i, j = sorted(edges[order[np.flatnonzero(repeats)[0]]].tolist())
        raise ValueError(
            f"a graph must join two sites once, but joins {i} and {j} more than once: nx.Graph(graph) keeps one "
            "edge, without a direction."
        )
    return found
