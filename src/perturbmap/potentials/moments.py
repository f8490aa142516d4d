"""Weighted sums of indicators: the gradients of scores."""

from __future__ import annotations

from typing import NamedTuple

from perturbmap.potentials.types import Floats


class Moments(NamedTuple):
    """Weighted sums of the indicators of labellings, array by array in the shape of the potentials ``f``.

    The indicators of a labelling count it: 1 for the label that a site has and for the pair of labels that an edge
    has, 0 for all others. Moments are the gradient of a weighted sum of scores with respect to the arrays of ``f``.
    Where ``f`` shares a table between edges, examples or perturbed copies, they are summed over these. ``pairwise``
    is None where ``f`` has no tables. Moments can be added (``plus``), subtracted and scaled.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> f.indicators([1, 0]).unary
    array([[0., 1.],
           [1., 0.]])
    >>> (f.indicators([1, 0]) - f.indicators([1, 1])).pairwise
    array([[ 0.,  0.],
           [ 1., -1.]])
    """

    unary: Floats
    pairwise: Floats | None

    def __sub__(self, other: Moments) -> Moments:
        if self.pairwise is None or other.pairwise is None:
            return Moments(self.unary - other.unary, None)
        return Moments(self.unary - other.unary, self.pairwise - other.pairwise)

    def plus(self, other: Moments) -> Moments:
        """The sum of both; ``+`` would join them, since moments are tuples."""
        if self.pairwise is None or other.pairwise is None:
            return Moments(self.unary + other.unary, None)
        return Moments(self.unary + other.unary, self.pairwise + other.pairwise)

    def scaled(self, factor: float) -> Moments:
        """The same moments with all numbers multiplied by ``factor``."""
        return Moments(factor * self.unary, None if self.pairwise is None else factor * self.pairwise)

    def over_copies(self) -> Moments:
        """The moments summed over the perturbed copies, which share everything but their unary potentials."""
        return Moments(self.unary.sum(axis=0), self.pairwise)
