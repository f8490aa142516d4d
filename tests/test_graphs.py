"""Graphs that users have, of networkx, scikit-image and SciPy, are taken as edges in a known order."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from skimage.graph import rag_mean_color

from perturbmap import BinaryGraph, Chain, Example, Potentials, Tree, graph_edges, grid_edges, potts
from perturbmap.data import Dataset

SPARSE: list[Callable[[Any], Any]] = [
    sp.csr_array,
    sp.csc_array,
    sp.coo_array,
    sp.lil_array,
    sp.dok_array,
    sp.csr_matrix,
    sp.coo_matrix,
]


def square() -> nx.Graph:
    """Four nodes added in an odd order, edges written in either direction."""
    graph = nx.Graph()
    graph.add_nodes_from([2, 0, 3, 1])
    graph.add_weighted_edges_from([(3, 2, 0.5), (1, 0, 2.0), (0, 2, 1.5), (3, 1, 1.0)])
    return graph


SQUARE = [[0, 1], [0, 2], [1, 3], [2, 3]]
WEIGHTS = [2.0, 1.5, 1.0, 0.5]


def region_graph() -> tuple[np.ndarray, nx.Graph]:
    """Regions 1, 2, 4 and 7 of a small image, and scikit-image's own graph of them."""
    segments = np.kron([[1, 2, 2], [1, 4, 7]], np.ones((3, 3), dtype=int))
    image = np.random.default_rng(0).integers(0, 255, (*segments.shape, 3)).astype(np.uint8)
    return segments, rag_mean_color(image, segments, mode="similarity")


def test_edges_are_sorted_and_each_comes_once() -> None:
    """Whatever the order in which nodes and edges were added."""
    edges, weights = graph_edges(square())
    assert edges.tolist() == SQUARE
    assert edges.dtype == np.int32
    assert weights.tolist() == WEIGHTS


@pytest.mark.parametrize("kind", SPARSE, ids=lambda kind: kind.__name__)
def test_sparse_matrices_of_every_kind(kind: Callable[[Any], Any]) -> None:
    """A symmetric matrix is an undirected graph; arrays and matrices, and bool for weights of one."""
    matrix = kind(nx.to_numpy_array(square(), nodelist=range(4)))
    edges, weights = graph_edges(matrix)
    assert edges.tolist() == SQUARE
    assert weights.tolist() == WEIGHTS
    assert graph_edges(matrix.astype(bool)).weights.tolist() == [1.0] * 4
    assert graph_edges(matrix, weight=None).weights.tolist() == [1.0] * 4


@given(seed=st.integers(0, 2**32 - 1))
def test_networkx_and_sparse_agree(seed: int) -> None:
    """On random graphs, directed or not, nodes without edges included."""
    rng = np.random.default_rng(seed)
    n, is_directed = int(rng.integers(1, 9)), bool(rng.integers(2))
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.4]
    pairs = [pair[::-1] if rng.random() < 0.5 else pair for pair in pairs]
    weights = {pair: float(rng.normal()) for pair in pairs}
    graph = nx.DiGraph() if is_directed else nx.Graph()
    graph.add_nodes_from(rng.permutation(n).tolist())
    graph.add_weighted_edges_from((i, j, w) for (i, j), w in weights.items())
    expected = weights if is_directed else {(min(pair), max(pair)): w for pair, w in weights.items()}
    for source in (graph, nx.to_scipy_sparse_array(graph, nodelist=range(n)) if pairs else sp.csr_array((n, n))):
        edges, found = graph_edges(source)
        assert [tuple(edge) for edge in edges.tolist()] == sorted(expected)
        assert found.tolist() == [expected[pair] for pair in sorted(expected)]


def test_potentials_take_graphs_for_edges() -> None:
    """With weights in one line; the same answer as with the edges written out."""
    unary = np.random.default_rng(0).normal(size=(4, 2))
    expected = BinaryGraph().pinned(Potentials(unary, potts(WEIGHTS), SQUARE)).values
    matrix = nx.to_scipy_sparse_array(square(), nodelist=range(4))
    for graph in (square(), matrix):
        edges, weights = graph_edges(graph)
        np.testing.assert_array_equal(BinaryGraph().pinned(Potentials(unary, potts(weights), edges)).values, expected)
    assert Potentials(unary, np.eye(2), edges=square()).edges.tolist() == SQUARE
    f = Potentials(unary, potts(graph_edges(matrix).weights), edges=matrix)
    np.testing.assert_array_equal(BinaryGraph().pinned(f).values, expected)
    with pytest.raises(ValueError, match="pairwise has one row for each edge, in an order that"):
        Potentials(unary, potts(WEIGHTS), edges=square())  # the graph's own order is another
    lonely = nx.Graph([(0, 1)])
    lonely.add_nodes_from(range(4))
    assert Potentials(unary, np.eye(2), edges=lonely).edges.tolist() == [[0, 1]]
    assert Potentials(unary, edges=nx.empty_graph(4)).n_edges == 0
    with pytest.raises(ValueError, match="edges were given without pairwise"):
        Potentials(unary, edges=square())


def test_examples_take_graphs_for_edges() -> None:
    """With edge features in one line; the order of the features is that of the edges."""
    graph = square()
    edges, weights = graph_edges(graph)
    example = Example(np.ones((4, 3)), edges, weights[:, None])
    data = Dataset.from_examples([example, Example(np.ones((4, 3)), SQUARE, np.array(WEIGHTS)[:, None])])
    assert data.edges.tolist() == SQUARE + [[i + 4, j + 4] for i, j in SQUARE]
    assert data.edge_features is not None
    assert data.edge_features.matrix[:, 0].tolist() == WEIGHTS * 2
    assert Dataset.from_examples([Example(np.ones((4, 3)), graph)]).edges.tolist() == SQUARE
    with pytest.raises(ValueError, match="edge_features has one row for each edge, in an order"):
        Dataset.from_examples([Example(np.ones((4, 3)), graph, weights[:, None])])
    example = Example(np.ones((4, 3)), graph)
    with pytest.raises(ValueError, match="edges of example 1 must be a graph with one node for each site, 3"):
        Dataset.from_examples([example, Example(np.ones((3, 3)), edges=graph)])


def test_direction_is_kept_where_there_is_one() -> None:
    """A tree whose edges run from parents to children, as a DiGraph and as SciPy's spanning tree."""
    tree = nx.DiGraph([(3, 0), (3, 1), (1, 2)])
    assert graph_edges(tree).edges.tolist() == [[1, 2], [3, 0], [3, 1]]
    spanning = minimum_spanning_tree(nx.to_scipy_sparse_array(square(), nodelist=range(4)))
    edges, weights = graph_edges(spanning)
    assert {frozenset(edge) for edge in edges.tolist()} == {frozenset(edge) for edge in ((2, 3), (1, 3), (0, 2))}
    assert sorted(weights.tolist()) == [0.5, 1.0, 1.5]
    rng = np.random.default_rng(0)
    unary, table = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    written = Potentials(unary, table, [[1, 2], [3, 0], [3, 1]])
    np.testing.assert_array_equal(Tree().pinned(Potentials(unary, table, tree)).values, Tree().pinned(written).values)
    turned, transposed = Potentials(unary, table, tree.reverse()), Potentials(unary, table.T, written.edges)
    np.testing.assert_allclose(Tree().pinned(turned).values, Tree().pinned(transposed).values)
    assert not np.allclose(Tree().pinned(turned).values, Tree().pinned(written).values)
    data = Dataset.from_examples([Example(np.ones((4, 2)), edges=tree)])
    assert data.is_root.tolist() == [False, False, False, True]


def test_region_graphs_name_their_regions_in_the_order_of_the_rows() -> None:
    """scikit-image's numbers need not begin at 0, nor be without gaps; the order is the user's to give."""
    segments, graph = region_graph()
    names = np.unique(segments)
    edges, weights = graph_edges(graph, nodes=names)
    assert edges.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
    expected = [graph.edges[int(names[i]), int(names[j])]["weight"] for i, j in edges.tolist()]
    assert weights.tolist() == expected
    assert graph_edges(graph, nodes=[7, 4, 2, 1]).edges.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
    f = Potentials(np.zeros((4, 2)), potts(weights), edges)
    assert BinaryGraph().argmax(f).shape == (4,)
    with pytest.raises(ValueError, match=re.escape("site numbers 0..3, but there is 4. Name them")):
        Potentials(np.zeros((4, 2)), np.eye(2), edges=graph)


def test_nodes_of_any_kind_have_the_places_that_nodes_gives_them() -> None:
    """Such as the pairs of networkx's grid, which is then ours."""
    graph = nx.grid_2d_graph(3, 4)
    names = [(i, j) for i in range(3) for j in range(4)]
    edges = graph_edges(graph, nodes=names).edges
    assert edges.tolist() == sorted(grid_edges(3, 4).tolist())
    chain = nx.path_graph(["a", "b", "c"])
    assert Chain().argmax(Potentials(np.zeros((3, 2)), np.eye(2), graph_edges(chain, nodes="abc").edges)).tolist()


def test_stored_entries_are_edges() -> None:
    """An explicit zero too, as in SciPy's own algorithms; repeated entries of a matrix add up."""
    rows, columns = [0, 1, 1, 2, 0, 1], [1, 0, 2, 1, 1, 0]
    matrix = sp.coo_array(([1.0, 1.0, 0.0, 0.0, 2.0, 2.0], (rows, columns)), shape=(3, 3))
    edges, weights = graph_edges(matrix)
    assert edges.tolist() == [[0, 1], [1, 2]]
    assert weights.tolist() == [3.0, 0.0]
    assert matrix.nnz == 6  # the caller's is as it was
    csr = sp.csr_array(matrix)
    csr.eliminate_zeros()
    assert graph_edges(csr).edges.tolist() == [[0, 1]]


def test_weights_have_a_name() -> None:
    """Another attribute than "weight"; none at all makes ones; some alone are an error."""
    graph = nx.Graph()
    graph.add_edge(0, 1, length=2)
    graph.add_edge(1, 2, length=3)
    assert graph_edges(graph, weight="length").weights.tolist() == [2.0, 3.0]
    assert graph_edges(graph).weights.tolist() == [1.0, 1.0]
    graph.edges[0, 1]["weight"] = 5.0
    assert graph_edges(graph, weight=None).weights.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="1 of 2 edges have no 'weight' \\(first: 1 to 2\\)"):
        graph_edges(graph)
    with pytest.raises(ValueError, match="2 of 2 edges have no 'lenght'"):
        graph_edges(graph, weight="lenght")
    graph.edges[0, 1]["length"] = "long"
    with pytest.raises(ValueError, match="attribute that is a number, but 'length' is not"):
        graph_edges(graph, weight="length")


def relabelled(names: dict[int, Any]) -> nx.Graph:
    return nx.relabel_nodes(square(), names)


def with_edge(i: int, j: int, weight: float = 1.0) -> nx.Graph:
    graph = square()
    graph.add_edge(i, j, weight=weight)
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (relabelled({0: 4}), "site numbers 0..3, but there is 4"),
        (relabelled({0: -1}), "but there is -1"),
        (relabelled({0: "a"}), "but there is 'a'"),
        (relabelled({0: 0.5}), "but there is 0.5"),
        (with_edge(2, 2), "joins site 2 to itself"),
        (with_edge(0, 3, np.nan), "that of the edge (0, 3) is nan"),
        (with_edge(0, 3, np.inf), "that of the edge (0, 3) is inf"),
        (nx.MultiGraph([(0, 1), (1, 2), (1, 0)]), "joins 0 and 1 more than once"),
        (nx.DiGraph([(0, 1), (1, 2), (2, 1)]), "joins 1 and 2 more than once"),
        (sp.csr_array((3, 4)), "square adjacency matrix, but has shape (3, 4)"),
        (sp.csr_array(np.diag([0.0, 1.0])), "joins site 1 to itself"),
        (sp.csr_array([[0, 2], [1, 0]]), "entry (0, 1) is 2 and (1, 0) is 1"),
        (sp.csr_array([[0, 1, 1], [1, 0, 0], [0, 0, 0]]), "entry (0, 2) is 1 and (2, 0) is not stored"),
        (sp.csr_array([[0, np.nan], [np.nan, 0]]), "that of the edge (0, 1) is nan"),
        (sp.csr_array([[0, 1j], [1j, 0]]), "must hold real numbers, but its dtype is complex128"),
    ],
)
def test_graphs_that_are_none_are_refused(graph: Any, message: str) -> None:
    """Odd nodes, loops, repeated edges, weights that are no numbers, matrices of no graph."""
    with pytest.raises(ValueError, match=re.escape(message)):
        graph_edges(graph)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 1, 2], "must name all 4 nodes of the graph, but 3 is missing"),
        ([0, 1, 2, 3, 4], "must be nodes of the graph, but 4 is none"),
        ([0, 1, 2, 3, 3], "names 3 more than once"),
        ([[0], [1], [2], [3]], "some cannot be a name"),
    ],
)
def test_nodes_must_name_every_node_once(nodes: Any, message: str) -> None:
    """In the order of the rows; nothing is left out or guessed."""
    with pytest.raises(ValueError, match=message):
        graph_edges(square(), nodes=nodes)


def test_wrong_arguments_are_named() -> None:
    """A dense matrix, names or attributes for a matrix, a graph of another size than the rows."""
    with pytest.raises(TypeError, match=r"is a ndarray. A dense adjacency matrix A is passed as scipy.sparse"):
        graph_edges(np.eye(3))
    matrix = sp.csr_array((3, 3))
    with pytest.raises(ValueError, match="nodes is for networkx graphs"):
        graph_edges(matrix, nodes=[0, 1, 2])
    with pytest.raises(ValueError, match="weight must be left out for a matrix"):
        graph_edges(matrix, weight="length")
    with pytest.raises(ValueError, match="edges must be a graph with one node for each site, 4, but has 3"):
        Potentials(np.zeros((4, 2)), np.eye(2), edges=matrix)
    with pytest.raises(ValueError, match="edges: a graph must join different sites"):
        Potentials(np.zeros((2, 2)), np.eye(2), edges=sp.csr_array(np.eye(2)))


def test_networkx_is_not_imported() -> None:
    """By a program that does not use it."""
    program = (
        "import sys, numpy as np, perturbmap as pm;"
        "pm.Potentials(np.zeros((3, 2)), np.eye(2), [[0, 1]]);"
        "assert 'networkx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
