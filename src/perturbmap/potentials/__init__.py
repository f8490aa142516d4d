"""Potentials: the function of a labelling that everything maximises, for a ragged batch of examples."""

from perturbmap.potentials.graphs import GraphEdges, graph_edges, grid_edges, potts
from perturbmap.potentials.layout import Layout, chain_edges, offsets_of
from perturbmap.potentials.moments import Moments
from perturbmap.potentials.potentials import Potentials
from perturbmap.potentials.site_labels import SiteLabels
from perturbmap.potentials.types import Floats, Labels, Mask

__all__ = [
    "Floats",
    "GraphEdges",
    "Labels",
    "Layout",
    "Mask",
    "Moments",
    "Potentials",
    "SiteLabels",
    "chain_edges",
    "graph_edges",
    "grid_edges",
    "offsets_of",
    "potts",
]
