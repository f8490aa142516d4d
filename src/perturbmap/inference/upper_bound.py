"""A tighter upper bound on log Z from the same perturbations: some sites summed over, and less variance.

Sites.     log Z <= logsumexp_k E B'[d, k] <= A_G for every site d. With more sites S, log Z is at most the logsumexp
           over all their labels y_S of the bounds given y_S: those of the last site are pins, those of the others are
           given, for the same noise. They are the sites whose pinned values differ the most from draw to draw.
Variance.  max_k (log q[d, k] + z[d, k]) has mean zero for probabilities q. With pinned marginals for q, the sum over
           all other sites follows the maximum closely, and is subtracted: a control variate.
Halves.    Sites and q for one half of the draws are chosen by the other half, so that neither is fitted to its noise.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from perturbmap.inference.draws import draws
from perturbmap.noise import Domain, Purpose, perturb
from perturbmap.potentials import Floats, Labels, Mask, Potentials
from perturbmap.potentials.site_arrays import log_softmax
from perturbmap.structures.base import InfeasibleError, Structure

_DOMAIN = Domain(Purpose.BOUND, 1)
# Draws are left out in so many groups, for the standard error.
_GROUPS = 16


def upper_bound(
    structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int, n_conditioned: int = 1
) -> tuple[float, float]:
    """The bound of one example with a free site, and its standard error, from four draws at least."""
    n = max(4, n)
    known = np.full(f.n_sites, -1, dtype=np.int32) if given is None else given
    at_first = _pinned(structure, f, known, n, seed)
    halves = np.arange(n) % 2
    rows = []
    for half in (0, 1):
        chosen = _most_spread(at_first[0][halves != half], known < 0, n_conditioned)
        rows.append(_rows(structure, f, known, at_first, halves == half, chosen, seed))

    def bound(kept: Mask) -> float:
        means = [r[kept[halves == half]].mean(axis=0) for half, r in enumerate(rows)]
        return float(sum(np.logaddexp.reduce(mean) for mean in means)) / 2

    everything = np.ones(n, dtype=bool)
    group = np.arange(n) // 2 % min(_GROUPS, n // 2)
    left_out = np.array([bound(group != g) for g in range(group.max() + 1)])
    m = len(left_out)
    return bound(everything), float(np.sqrt((m - 1) / m * ((left_out - left_out.mean()) ** 2).sum()))


def _pinned(structure: Structure, f: Potentials, known: Labels, n: int, seed: int) -> tuple[Floats, Floats]:
    """Pinned values without their own noise, and the noise, (n, n_sites, n_labels) each; none at known sites."""
    values = np.empty((n, f.n_sites, f.n_labels))
    noise = np.empty_like(values)
    for first, z in draws(structure, f, known, seed, n, _DOMAIN):
        part = slice(first, first + len(z))
        values[part] = structure.pinned_values(perturb(f, z), known)[1] - z
        noise[part] = z
    return values, noise


def _most_spread(values: Floats, free: Mask, n: int) -> NDArray[np.intp]:
    """The free sites whose pinned values vary the most, each beyond what those before it explain."""
    differences = values - values.max(axis=-1, keepdims=True)
    rest = np.where(np.isfinite(differences) & free[:, None], differences, 0.0)
    rest -= rest.mean(axis=0)
    sites: list[int] = []
    for _ in range(min(n, int(np.count_nonzero(free)))):
        spread = (rest**2).sum(axis=0)
        spread[~free] = spread[sites] = -1.0
        site, label = np.unravel_index(int(np.argmax(spread)), spread.shape)
        sites.append(int(site))
        column = rest[:, site, label] / max(np.sqrt(spread[site, label]), 1e-300)
        rest -= column[:, None, None] * np.tensordot(column, rest, axes=1)
    return np.array(sites)


def _rows(
    structure: Structure,
    f: Potentials,
    known: Labels,
    at_first: tuple[Floats, Floats],
    ours: Mask,
    sites: NDArray[np.intp],
    seed: int,
) -> Floats:
    """For each of our draws the bounds given every labelling of the sites, less the control variate."""
    columns = []
    for labels in product(range(f.n_labels), repeat=len(sites) - 1):
        given = known.copy()
        given[sites[:-1]] = labels
        try:
            values, noise = _pinned(structure, f, given, len(ours), seed) if labels else at_first
        except InfeasibleError:
            continue  # labels that no labelling has add nothing
        log_q, _ = log_softmax(values[~ours].mean(axis=0))
        varied = (log_q + noise[ours]).max(axis=-1)
        varied[:, given >= 0] = 0.0
        varied[:, sites[-1]] = 0.0
        columns.append(values[ours, sites[-1]] - varied.sum(axis=1)[:, None])
    return np.concatenate(columns, axis=1)
