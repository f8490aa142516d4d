"""Sweeps of Gibbs sampling, which leave the Gibbs distribution as it is."""

from __future__ import annotations

import numpy as np

from perturbmap import _core
from perturbmap.noise import Domain, Purpose, streams_in
from perturbmap.potentials import Floats, Labels, Potentials

SWEEPS = Domain(Purpose.SWEEPS)


def sweeps(
    f: Potentials,
    given: Labels | None,
    labels: Labels,
    seed: int,
    first_chain: int,
    n_burn: int,
    n_kept: int,
    n_threads: int,
    domain: Domain = SWEEPS,
) -> tuple[Labels, Floats]:
    """Chains of Gibbs sampling from ``labels`` (n_chains, n_sites): where they end, and their mean probabilities."""
    ends = np.array(labels, dtype=np.int32, order="C")
    p = np.empty((*ends.shape, f.n_labels))
    _core.gibbs(f.to_core(given), seed, streams_in(f, domain), ends, p, first_chain, n_burn, n_kept, n_threads)
    return ends, p
