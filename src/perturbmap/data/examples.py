"""One structured example: the features of its sites and edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, eq=False)
class Example:
    """The input x of one example: the features of its sites and edges.

    A site is a thing that gets a label, such as a letter of a word; an edge joins two sites whose labels depend on
    each other.

    features : (n_sites, n_features), dense or ``scipy.sparse``; float32 is kept, for half the memory and time
    edges : (n_edges, 2) numbers of sites, or a graph that `graph_edges` takes, optional; left out, consecutive sites
        are joined. To `SequenceModel` their direction matters: (parent, child).
    edge_features : (n_edges, n_edge_features), optional
    label_features : (n_labels, n_label_features), optional; features of the things that sites are matched to, for
        `MatchingModel`
    sizes : (n_sites,), optional; how much each site counts in a weighted loss, for instance its area; 1 if left out

    >>> x = pm.Example(np.zeros((4, 3)), pm.grid_edges(2, 2), sizes=[5, 1, 1, 2])
    >>> x.edges.shape
    (4, 2)
    """

    features: Any
    edges: Any = None
    edge_features: Any = None
    label_features: Any = None
    sizes: Any = None
