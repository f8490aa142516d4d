"""Perturbations as they stream by: memory is bounded whatever their number and that of the examples.

Each example has its own random stream, and sums run in the order of the draws. So results are the same bits for any
number of threads and for any split of the examples into batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.noise import Domain, gumbel_noise
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures.base import Structure, check_given
from perturbmap.support.threads import threads

# Numbers of one chunk of perturbed unary potentials: a few megabytes, well under a second of work.
_CHUNK = 2**17


def check_question(structure: Structure, f: Potentials, given: ArrayLike | None) -> Labels | None:
    """Checks what all of inference is asked with; returns the given labels as an array, or None."""
    if not isinstance(structure, Structure):
        raise TypeError(f"structure must be a Structure, such as Chain(), but is {structure!r}.")
    known = check_given(f, given)
    if f.unary.ndim != 2:
        raise ValueError("f has perturbed copies already: pass the potentials before they were perturbed.")
    return known


def parts(f: Potentials, given: Labels | None) -> Iterator[tuple[Potentials, slice, slice, Labels | None]]:
    """Slices of the examples that fit into a chunk each: (f, examples, sites, given); one example is never cut."""
    first = 0
    while first < len(f):
        limit = f.site_offsets[first] + _CHUNK // f.n_labels
        last = max(first + 1, int(np.searchsorted(f.site_offsets, limit, side="right")) - 1)
        sites = f.layout.sites(first, last)
        yield f[first:last], slice(first, last), sites, None if given is None else given[sites]
        first = last


def draws(
    structure: Structure, f: Potentials, given: Labels | None, seed: int, n: int, domain: Domain
) -> Iterator[tuple[int, Floats]]:
    """Noise for ``n`` draws, in chunks with the number of their first draw; none at given sites."""
    n_threads = threads(structure.n_threads)
    # Every thread gets something to do, even where one copy alone is larger than a chunk.
    step = max(n_threads, _CHUNK // max(1, f.n_sites * f.n_labels))
    for first in range(0, n, step):
        noise = gumbel_noise(f, seed, min(step, n - first), first, n_threads, domain=domain)
        if given is not None:
            noise[:, given >= 0] = 0.0
        yield first, noise


def perturb_in_place(f: Potentials, noise: Floats) -> Potentials:
    """As `perturb`, in the memory of the noise: a fresh array of this size costs more than the sum."""
    noise += f.unary
    return f.with_unary(noise)
