"""A tighter upper bound on log Z from the same perturbations: one site summed over, and less variance.

One site.  log Z <= logsumexp_k E B'[d, k] <= A_G for every site d. The site is the one whose pinned values differ the
           most from draw to draw, in a few draws of their own: all others need the pins of this site alone.
Variance.  max_k (log q[d, k] + z[d, k]) has mean zero for probabilities q. With the shares of maximisers that have a
           label for q, the sum over all other sites follows the maximum closely. It is subtracted: a control variate.
Halves.    q for one half of the draws is counted in the other half, so that it is not fitted to its noise.
"""

from __future__ import annotations

import numpy as np

from perturbmap.inference.draws import draws
from perturbmap.noise import Domain, Purpose, perturb
from perturbmap.potentials import Floats, Labels, Mask, Potentials
from perturbmap.structures.base import Structure

_DOMAIN, _TRIAL = Domain(Purpose.BOUND, 1), Domain(Purpose.BOUND, 2)
# Draws by which the site is chosen.
_TRIALS = 8
# Draws are left out in so many groups, for the standard error.
_GROUPS = 16


def upper_bound(structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int) -> tuple[float, float]:
    """The bound of one example with a free site, and its standard error, from four draws at least."""
    n = max(4, n)
    free = np.ones(f.n_sites, dtype=bool) if given is None else given < 0
    site = _site(structure, f, given, free, seed)
    pins = np.zeros((f.n_sites, f.n_labels), dtype=bool)
    pins[site] = True
    values, labels = np.empty((n, f.n_labels)), np.empty((n, f.n_sites), dtype=np.int32)
    noise = np.empty((n, f.n_sites, f.n_labels))
    for first, z in draws(structure, f, given, seed, n, _DOMAIN):
        part = slice(first, first + len(z))
        pinned = structure.pinned(perturb(f, z), pins=pins, given=given)
        values[part], labels[part], noise[part] = pinned.values[:, site] - z[:, site], pinned.free, z
    halves = np.arange(n) % 2
    varied = np.zeros((n, f.n_sites))
    for half in (0, 1):
        ours, theirs = halves == half, halves != half
        counts = (labels[theirs, :, None] == np.arange(f.n_labels)).sum(axis=0) + 0.5
        log_q = np.log(counts / counts.sum(axis=-1, keepdims=True))
        varied[ours] = (log_q + noise[ours]).max(axis=-1)
    varied[:, ~free] = 0.0
    varied[:, site] = 0.0
    rows = values - varied.sum(axis=1)[:, None]

    def bound(kept: Floats) -> float:
        totals = [float(np.logaddexp.reduce(rows[kept & (halves == half)].mean(axis=0))) for half in (0, 1)]
        return sum(totals) / 2

    everything = np.ones(n, dtype=bool)
    group = np.arange(n) // 2 % min(_GROUPS, n // 2)
    left_out = np.array([bound(group != g) for g in range(group.max() + 1)])
    m = len(left_out)
    return bound(everything), float(np.sqrt((m - 1) / m * ((left_out - left_out.mean()) ** 2).sum()))


def _site(structure: Structure, f: Potentials, given: Labels | None, free: Mask, seed: int) -> int:
    """The free site whose pinned values differ the most from draw to draw."""
    parts = [
        structure.pinned_values(perturb(f, z), given)[1] - z
        for _, z in draws(structure, f, given, seed, _TRIALS, _TRIAL)
    ]
    values = np.concatenate(parts)
    differences = values - values.max(axis=-1, keepdims=True)
    spread = np.where(np.isfinite(differences), differences, 0.0).std(axis=0).max(axis=-1)
    return int(np.argmax(np.where(free, spread, -1.0)))
