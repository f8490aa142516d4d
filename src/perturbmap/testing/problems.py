"""Small problems to try solvers on."""

from __future__ import annotations

import numpy as np

from perturbmap.data import Dataset
from perturbmap.data.examples import Example
from perturbmap.models import Model, SequenceModel
from perturbmap.objectives import ExactLogLikelihood, Objective
from perturbmap.potentials import SiteLabels
from perturbmap.solvers import Problem
from perturbmap.structures import Chain
from perturbmap.structures.base import Structure

_N_FEATURES = 3


def small_problem(
    objective: Objective | None = None,
    model: Model | None = None,
    structure: Structure | None = None,
    *,
    n_examples: int = 12,
    n_labels: int = 2,
    l2: float = 0.1,
    seed: int = 0,
) -> Problem:
    """A small learning `Problem`, to try solvers on: short chains whose features tell their labels, with noise.

    objective : `ExactLogLikelihood` by default
    model, structure : `SequenceModel` and `Chain` by default

    >>> problem = pm.testing.small_problem(pm.StructuredHinge())
    >>> len(problem.data), problem.n_weights
    (12, 16)
    """
    rng = np.random.default_rng(seed)
    learned = ExactLogLikelihood() if objective is None else objective
    # Neighbours often differ: a weight that favours equal labels, and must not be negative, is then at its bound.
    labels = [(np.arange(n) + (rng.random(n) < 0.2)) % n_labels for n in rng.integers(1, 6, n_examples)]
    means = rng.normal(size=(n_labels, _N_FEATURES))
    features = [(means[y] + rng.normal(0, 0.7, (len(y), _N_FEATURES))).round(3) for y in labels]
    data = Dataset.from_examples([Example(x) for x in features])
    known = SiteLabels.of(np.concatenate(labels), n_labels, data.layout, data.sizes)
    return Problem(
        data,
        learned.targets(known),
        n_labels,
        SequenceModel() if model is None else model,
        Chain() if structure is None else structure,
        learned,
        l2,
        seed,
    )
