"""Sweeps of Gibbs sampling, which leave the Gibbs distribution as it is: site by site, or by exchanges of labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perturbmap.noise import Domain, Purpose, streams_in
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures.base import Structure
from perturbmap.support.threads import threads

SWEEPS = Domain(Purpose.SWEEPS)


class Swept(NamedTuple):
    """Where chains of Gibbs sampling end, and what they have met on their way.

    labels : (n_chains, n_sites), at the end
    probabilities : (n_chains, n_sites, n_labels), means of those that labels were drawn with
    shares : of the same shape, how often labels were drawn
    """

    labels: Labels
    probabilities: Floats
    shares: Floats


def sweeps(
    structure: Structure,
    f: Potentials,
    given: Labels | None,
    labels: Labels,
    seed: int,
    first_chain: int,
    n_burn: int,
    n_kept: int,
    domain: Domain = SWEEPS,
) -> Swept:
    """Chains of Gibbs sampling from ``labels`` (n_chains, n_sites), the first sweeps of which are not averaged.

    The structure is one that has sweeps. Chain ``c`` has the random numbers of chain ``first_chain + c``.
    """
    kernel = structure.sweeps
    assert kernel is not None
    n_threads = threads(structure.n_threads)
    ends = np.array(labels, dtype=np.int32, order="C")
    p, shares = np.empty((2, *ends.shape, f.n_labels))
    kernel(f.to_core(given), seed, streams_in(f, domain), ends, p, shares, first_chain, n_burn, n_kept, n_threads)
    return Swept(ends, p, shares)
