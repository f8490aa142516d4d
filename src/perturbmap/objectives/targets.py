"""What an objective is to make likely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Labels, Mask


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """What an objective is to make likely, over the sites of a batch; `Objective.targets` makes it.

    labels : (n_sites,), -1 where not known
    label_weights : (n_sites, n_labels), ``c = q * theta``
    is_complete : (n_examples,), whether something is known of every site
    weights : (n_examples,), how much each example counts
    """

    labels: Labels
    label_weights: Floats
    is_complete: Mask
    weights: Floats

    def take(self, indices: NDArray[np.intp], sites: NDArray[np.intp]) -> Targets:
        """The targets of some examples and of their sites."""
        return Targets(
            self.labels[sites], self.label_weights[sites], self.is_complete[indices], self.weights[indices]
        )

    def between(self, first: int, last: int, sites: slice) -> Targets:
        """The targets of the examples from one up to another, whose sites these are: views, not copies."""
        examples = slice(first, last)
        return Targets(
            self.labels[sites], self.label_weights[sites], self.is_complete[examples], self.weights[examples]
        )

    def weighted(self, weights: Floats) -> Targets:
        """The same with other weights of the examples."""
        return replace(self, weights=weights)
