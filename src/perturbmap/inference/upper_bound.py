"""A tighter upper bound on log Z from the same perturbations: one site summed over, and less variance.

One site.  log Z <= logsumexp_k E B'[d, k] <= A_G for every site d. The site is the one whose pinned values differ the
           most from draw to draw.
Variance.  max_k (log q[d, k] + z[d, k]) has mean zero for probabilities q. With pinned marginals for q, the sum over
           all other sites follows the maximum closely, and is subtracted: a control variate.
Halves.    Site and q for one half of the draws are chosen by the other half, so that neither is fitted to its noise.
"""

from __future__ import annotations

import numpy as np

from perturbmap.inference.draws import draws
from perturbmap.noise import Domain, Purpose, perturb
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.potentials.site_arrays import log_softmax
from perturbmap.structures.base import Structure

_DOMAIN = Domain(Purpose.BOUND, 1)
# Draws are left out in so many groups, for the standard error.
_GROUPS = 16


def upper_bound(structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int) -> tuple[float, float]:
    """The bound of one example with a free site, and its standard error, from four draws at least."""
    n = max(4, n)
    values = np.empty((n, f.n_sites, f.n_labels))
    noise = np.empty_like(values)
    for first, z in draws(structure, f, given, seed, n, _DOMAIN):
        part = slice(first, first + len(z))
        values[part] = structure.pinned_values(perturb(f, z), given)[1] - z
        noise[part] = z
    free = np.ones(f.n_sites, dtype=bool) if given is None else given < 0
    halves = np.arange(n) % 2
    site, rows = np.empty(2, dtype=np.intp), np.empty((n, f.n_labels))
    for half in (0, 1):
        ours, theirs = halves == half, halves != half
        log_q, _ = log_softmax(values[theirs].mean(axis=0))
        differences = values[theirs] - values[theirs].max(axis=-1, keepdims=True)
        spread = np.where(np.isfinite(differences), differences, 0.0).std(axis=0).max(axis=-1)
        site[half] = int(np.argmax(np.where(free, spread, -1.0)))
        varied = (log_q + noise[ours]).max(axis=-1)
        varied[:, ~free] = 0.0
        varied[:, site[half]] = 0.0
        rows[ours] = values[ours, site[half]] - varied.sum(axis=1)[:, None]

    def bound(kept: Floats) -> float:
        totals = [float(np.logaddexp.reduce(rows[kept & (halves == half)].mean(axis=0))) for half in (0, 1)]
        return sum(totals) / 2

    everything = np.ones(n, dtype=bool)
    group = np.arange(n) // 2 % min(_GROUPS, n // 2)
    left_out = np.array([bound(group != g) for g in range(group.max() + 1)])
    m = len(left_out)
    return bound(everything), float(np.sqrt((m - 1) / m * ((left_out - left_out.mean()) ** 2).sum()))
