"""What is known of the labels of a batch: everything, something, nothing, or probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap.potentials.layout import Layout
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.potentials.types import Floats, Labels, Mask

UNKNOWN = -1


@final
@dataclass(frozen=True, eq=False)
class SiteLabels:
    """What is known of the label of every site of a batch.

    layout : which sites belong to which example
    labels : (n_sites,), -1 where no label is known
    n_labels : the number of labels that a site may have
    sizes : (n_sites,), how much each site counts in a weighted loss
    soft : (n_sites, n_labels), `q` itself, where there are probabilities; None: `labels` say all

    >>> from perturbmap.potentials import SiteLabels
    >>> known = SiteLabels.of([0, 1, -1], n_labels=2)
    >>> known.q
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    >>> known.is_complete
    array([False])
    """

    layout: Layout
    labels: Labels
    n_labels: int
    sizes: Floats
    soft: Floats | None = None

    @classmethod
    def of(
        cls, labels: ArrayLike, n_labels: int, layout: Layout | None = None, sizes: ArrayLike | None = None
    ) -> SiteLabels:
        """Makes it from labels, -1 where they are not known; by default of one example, with sites of size 1."""
        y = np.asarray(labels, dtype=np.int32)
        sites = Layout.of_counts([len(y)]) if layout is None else layout
        each = np.ones(len(y)) if sizes is None else np.asarray(sizes, dtype=np.float64)
        return cls(sites, y, n_labels, each)

    @classmethod
    def of_soft(cls, q: Floats, layout: Layout, sizes: Floats, labels: Labels | None = None) -> SiteLabels:
        """Makes it from probabilities of labels, and from ``labels`` where some of them are certain."""
        y = np.full(len(q), UNKNOWN, dtype=np.int32) if labels is None else labels
        return cls(layout, y, int(q.shape[1]), sizes, q)

    @property
    def q(self) -> Floats:
        """q, (n_sites, n_labels): one-hot for labels, probabilities for soft labels, zero where nothing is known."""
        return one_hot(self.labels, self.n_labels) if self.soft is None else self.soft

    @cached_property
    def is_known(self) -> Mask:
        """(n_sites,), whether something is known of the site."""
        return np.asarray(self.labels >= 0 if self.soft is None else self.soft.sum(axis=1) > 0)

    @cached_property
    def is_complete(self) -> Mask:
        """(n_examples,), whether something is known of every site of the example."""
        return np.asarray(self.layout.sums(~self.is_known) == 0)

    @property
    def has_some(self) -> Mask:
        """(n_examples,), whether something is known of some site of the example."""
        return np.asarray(self.layout.sums(self.is_known) > 0)

    @property
    def is_hard(self) -> bool:
        """Whether every known site has a label, and none has probabilities alone."""
        return bool((self.is_known == (self.labels >= 0)).all())

    def completed(self, guess: Floats) -> SiteLabels:
        """The same, with the probabilities ``guess`` at the sites of which nothing is known."""
        return replace(self, soft=np.where(self.is_known[:, None], self.q, guess))

    def take(self, indices: NDArray[np.intp]) -> SiteLabels:
        """What is known of some examples."""
        sites = self.layout.sites_of(indices)
        soft = None if self.soft is None else self.soft[sites]
        return SiteLabels(self.layout.take(indices), self.labels[sites], self.n_labels, self.sizes[sites], soft)
