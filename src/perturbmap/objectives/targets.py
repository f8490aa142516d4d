"""What an objective is to make likely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Labels, Mask
from perturbmap.potentials.site_arrays import one_hot


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """What an objective is to make likely, over the sites of a batch; `Objective.targets` makes it.

    labels : (n_sites,), -1 where not known
    n_labels : the number of labels that a site may have
    is_complete : (n_examples,), whether something is known of every site
    weights : (n_examples,), how much each example counts
    c : (n_sites, n_labels), the `label_weights` themselves; None: each label that is known counts 1
    """

    labels: Labels
    n_labels: int
    is_complete: Mask
    weights: Floats
    c: Floats | None = None

    @property
    def label_weights(self) -> Floats:
        """``c = q * theta``, ``(n_sites, n_labels)``: how much each label of each site counts."""
        return one_hot(self.labels, self.n_labels) if self.c is None else self.c

    def take(self, indices: NDArray[np.intp], sites: NDArray[np.intp]) -> Targets:
        """The targets of some examples and of their sites."""
        return self._at(indices, sites)

    def between(self, first: int, last: int, sites: slice) -> Targets:
        """The targets of the examples from one up to another, whose sites these are: views, not copies."""
        return self._at(slice(first, last), sites)

    def weighted(self, weights: Floats) -> Targets:
        """The same targets with other weights of the examples."""
        return replace(self, weights=weights)

    def _at(self, examples: NDArray[np.intp] | slice, sites: NDArray[np.intp] | slice) -> Targets:
        c = None if self.c is None else self.c[sites]
        return Targets(self.labels[sites], self.n_labels, self.is_complete[examples], self.weights[examples], c)
