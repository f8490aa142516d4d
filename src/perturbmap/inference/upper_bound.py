"""A tighter upper bound on log Z from the same perturbations: some sites summed over, and less variance.

Sites.     log Z <= logsumexp_k E B'[d, k] <= A_G for every site d. With more sites S, log Z is at most the logsumexp
           over all their labels y_S of the bounds given y_S: those of the last site are pins, those of the others are
           given, for the same noise. They are the sites whose pinned values differ the most from draw to draw, in a
           few draws of their own: all others need the pins of the last site alone.
Variance.  What the noise of the other sites explains of these values is subtracted (`control_variate`).
Duals.     Where maxima are approximate, upper bounds on them stand for them (`Structure.maximise_with_bound`).
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import numpy as np

from perturbmap.inference.control_variate import subtract
from perturbmap.inference.draws import draws
from perturbmap.noise import Domain, Purpose, perturb
from perturbmap.potentials import Floats, Labels, Mask, Potentials
from perturbmap.structures.base import InfeasibleError, Structure

_DOMAIN, _TRIAL = Domain(Purpose.BOUND, 1), Domain(Purpose.BOUND, 2)
# Draws by which sites are chosen, for each of them, and how many sites these are chosen among.
_TRIALS, _CANDIDATES = 6, 16
# Draws are left out in so many groups, for the standard error.
_GROUPS = 16


def upper_bound(
    structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int, n_conditioned: int = 1
) -> tuple[float, float]:
    """The bound of one example with a free site, and its standard error, from four draws at least.

    It is infinite where the structure is approximate and says nothing of the maximum.
    """
    n = max(4, n)
    known = np.full(f.n_sites, -1, dtype=np.int32) if given is None else given
    if not np.isfinite(structure.maximise_with_bound(f, known).bounds).all():
        return np.inf, 0.0
    tried = _candidates(known, n_conditioned)
    *before, last = _most_spread(_trials(structure, f, known, tried, seed, n_conditioned), tried, n_conditioned)
    columns = []
    for labels in product(range(f.n_labels), repeat=len(before)):
        condition = known.copy()
        condition[before] = labels
        try:
            columns.append(_summed_over(structure, f, condition, last, n, seed))
        except InfeasibleError:
            continue  # labels that no labelling has add nothing
    rows = np.concatenate(columns, axis=1)
    group = np.arange(n) // 2 % min(_GROUPS, n // 2)
    left_out = np.array([_log_sum_of_means(rows[group != g]) for g in range(group.max() + 1)])
    m = len(left_out)
    return _log_sum_of_means(rows), float(np.sqrt((m - 1) / m * ((left_out - left_out.mean()) ** 2).sum()))


def _log_sum_of_means(rows: Floats) -> float:
    return float(np.logaddexp.reduce(rows.mean(axis=0)))


def _candidates(known: Labels, n_conditioned: int) -> Mask:
    """Free sites from all parts of the example; those between them vary as they do."""
    free = np.flatnonzero(known < 0)
    tried = np.zeros(len(known), dtype=bool)
    tried[free[np.linspace(0, len(free) - 1, min(len(free), _CANDIDATES * n_conditioned)).astype(np.intp)]] = True
    return tried


def _trials(structure: Structure, f: Potentials, known: Labels, tried: Mask, seed: int, n_conditioned: int) -> Floats:
    """Pinned values of some sites without their own noise, (n, n_sites, n_labels), of a few draws."""
    pins = np.repeat(tried[:, None], f.n_labels, axis=1)
    parts = [
        structure.pinned_values(perturb(f, z), known, pins)[1] - z
        for _, z in draws(structure, f, known, seed, _TRIALS * n_conditioned, _TRIAL)
    ]
    return np.concatenate(parts)


def _most_spread(values: Floats, tried: Mask, n: int) -> list[int]:
    """The sites whose pinned values vary the most, each beyond what those before it explain."""
    differences = np.where(tried[:, None], values, 0.0)
    differences -= differences.max(axis=-1, keepdims=True)
    rest = np.where(np.isfinite(differences), differences, 0.0)
    rest -= rest.mean(axis=0)
    sites: list[int] = []
    for _ in range(min(n, int(np.count_nonzero(tried)))):
        spread = (rest**2).sum(axis=0)
        spread[~tried] = spread[sites] = -1.0
        site, label = np.unravel_index(int(np.argmax(spread)), spread.shape)
        sites.append(int(site))
        column = rest[:, site, label] / max(np.sqrt(spread[site, label]), 1e-300)
        rest -= column[:, None, None] * np.tensordot(column, rest, axes=1)
    return sites


def _summed_over(structure: Structure, f: Potentials, known: Labels, site: int, n: int, seed: int) -> Floats:
    """For each draw the pinned values of the site, (n, n_labels), less the control variate."""
    values, labels = np.empty((n, f.n_labels)), np.empty((n, f.n_sites), dtype=np.int32)
    noise = np.empty((n, f.n_sites, f.n_labels))
    for first, z in draws(structure, f, known, seed, n, _DOMAIN):
        part = slice(first, first + len(z))
        labels[part], pinned = _pinned(structure, perturb(f, z), known, site)
        values[part], noise[part] = pinned - z[:, site], z
    others = np.flatnonzero(known < 0)
    others = others[others != site]
    return subtract(values, labels.take(others, axis=1), noise.take(others, axis=1))


def _pinned(structure: Structure, f: Potentials, known: Labels, site: int) -> tuple[Labels, Floats]:
    """Maximisers (n, n_sites), and what no labelling with each label at the site exceeds, (n, n_labels)."""
    if structure.is_exact:
        pins = np.zeros((f.n_sites, f.n_labels), dtype=bool)
        pins[site] = True
        free, values = structure.pinned_values(f, known, pins)
        return free, values[:, site]
    bounds = np.full((len(f.stack), f.n_labels), -np.inf)
    for label in range(f.n_labels):
        pin = known.copy()
        pin[site] = label
        with suppress(InfeasibleError):
            bounds[:, label] = structure.maximise_with_bound(f, pin).bounds[:, 0]
    return structure.argmax(f, known), bounds
