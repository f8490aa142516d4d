"""How a prediction is made of a model: its best labelling, or the least expected loss under its marginals."""

from __future__ import annotations

from enum import Enum


class Decoding(Enum):
    """Which labelling ``predict`` returns.

    MAP : the best labelling
    MARGINAL : the likeliest label of each site
    LOSS_AWARE : the labelling of least expected task loss under the marginals; weights that depend on the unknown
        labels, such as balanced areas, are taken in expectation

    >>> cutter = pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), decoding=pm.Decoding.LOSS_AWARE)
    """

    MAP = "MAP"
    MARGINAL = "MARGINAL"
    LOSS_AWARE = "LOSS_AWARE"
