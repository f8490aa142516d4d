"""Samples: of perturb-and-MAP (section 2.1 of the paper), or of the Gibbs distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.inference.converging import Converging
from perturbmap.inference.draws import check_question, draws, parts, perturb_in_place
from perturbmap.inference.marginal_methods import ExactMarginals
from perturbmap.noise import Domain, Purpose, Rng, seed_of
from perturbmap.potentials import Labels, Potentials
from perturbmap.structures.base import Structure
from perturbmap.support.checks import check_count

SAMPLES = Domain(Purpose.SAMPLES)


def sample(
    structure: Structure,
    f: Potentials,
    n_samples: int = 1,
    *,
    given: ArrayLike | None = None,
    method: Converging | ExactMarginals | None = None,
    rng: Rng = None,
) -> Labels:
    """Perturb-and-MAP samples, ``(n_samples, n_sites)``: maximisers of independently perturbed potentials.

    A maximiser is a best labelling; ``given`` holds labels that all samples have, or -1 where a site is free. The
    samples are exact ones of the Gibbs distribution, ``P(y) = exp f(y) / Z``, only where ``f`` is separable, that is,
    without edges. With ``method=EXACT`` they are exact, for structures that can be summed over
    (`SummableStructure.sample`); with ``method=CONVERGING`` they are exact where sums are, and elsewhere converge to
    the distribution with the number of particles (`Converging.sample`).

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> pm.sample(pm.Chain(), f, 3, rng=0)
    array([[1, 0],
           [1, 1],
           [0, 0]], dtype=int32)
    >>> pm.sample(pm.Chain(), f, 3, method=pm.EXACT, rng=0)
    array([[1, 1],
           [1, 1],
           [0, 0]], dtype=int32)
    """
    known = check_question(structure, f, given)
    seed, n = seed_of(rng), check_count("n_samples", n_samples)
    if method is not None:
        if not isinstance(method, (Converging, ExactMarginals)):
            raise TypeError(
                f"method must be EXACT or CONVERGING, or None for perturb-and-MAP samples, but is {method!r}."
            )
        return method.sample(structure, f, known, n, seed)
    labels = np.empty((n, f.n_sites), dtype=np.int32)
    for part, _, sites, given_part in parts(f, known):
        for first, noise in draws(structure, part, given_part, seed, n, SAMPLES):
            labels[first : first + len(noise), sites] = structure.argmax(perturb_in_place(part, noise), given_part)
    return labels
