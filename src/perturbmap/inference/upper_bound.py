"""A tighter upper bound on log Z from the same perturbations: some sites summed over, and less variance.

Sites.     log Z <= logsumexp_k E B'[d, k] <= A_G for every site d. With more sites S, log Z is at most the logsumexp
           over all their labels y_S of the bounds given y_S: those of the last site are pins, those of the others are
           given, for the same noise. They are the sites whose sums lower the bound the most, E logsumexp_k B'[d, k]
           less logsumexp_k E B'[d, k], in a few draws of their own: all others need the pins of the last site alone.
           Their seed is always the same, so that it is the same bound whatever the seed.
Variance.  Each half of the draws is spread evenly (`even_noise`), and what the noise still explains of these values
           is subtracted (`control_variate`).
Error.     As if draws were independent: that even ones have a steadier mean is not counted.
Duals.     Where maxima are approximate, upper bounds on them stand for them (`Structure.maximise_with_bound`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perturbmap.inference.control_variate import subtract
from perturbmap.inference.even_noise import even_noise
from perturbmap.noise import Domain, Purpose, perturb
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures.base import InfeasibleError, Structure

_DOMAIN, _TRIAL = Domain(Purpose.BOUND, 1), Domain(Purpose.BOUND, 2)
# Draws by which sites are chosen, for each of them, and how many sites these are chosen among.
_TRIALS, _CANDIDATES = 4, 16
# Coefficients that are fitted to halves of fewer draws may be far off.
_FEWEST = 16


def upper_bound(
    structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int, n_conditioned: int = 1
) -> tuple[float, float]:
    """The bound of one example with a free site, and its standard error, from 16 draws at least.

    It is infinite where the structure is approximate and says nothing of the maximum.
    """
    n = max(_FEWEST, n)
    known = np.full(f.n_sites, -1, dtype=np.int32) if given is None else given
    if not structure.is_exact and not np.isfinite(structure.maximise_with_bound(f, known).bounds).all():
        return np.inf, 0.0
    is_free = known < 0
    free = np.flatnonzero(is_free)
    tried = free[np.linspace(0, len(free) - 1, min(len(free), _CANDIDATES * n_conditioned)).astype(np.intp)]
    chosen = tried[_most_gained(_trials(structure, f, known, tried, n_conditioned), n_conditioned)]
    *before, last = chosen.tolist()
    noise = _noise(f, known, seed, (n - n // 2, n // 2), _DOMAIN)
    noise[:, chosen] = 0.0
    perturbed = perturb(f, noise)
    is_free[chosen] = False
    others = np.flatnonzero(is_free)
    noise = noise.take(others, axis=1)
    columns = []
    for labels in product(range(f.n_labels), repeat=len(before)):
        condition = known.copy()
        condition[before] = labels
        try:
            best, values = _pinned(structure, perturbed, condition, last)
        except InfeasibleError:
            continue  # labels that no labelling has add nothing
        values = values[:, np.isfinite(values).all(axis=0)]
        columns.append(subtract(values, best.take(others, axis=1), noise))
    rows = np.concatenate(columns, axis=1)
    means = rows.mean(axis=0)
    bound = np.logaddexp.reduce(means)
    return float(bound), float((rows @ np.exp(means - bound)).std(ddof=1) / np.sqrt(n))


def _noise(f: Potentials, known: Labels, seed: int, parts: Sequence[int], domain: Domain) -> Floats:
    """Noise of several parts of the draws, (n, n_sites, n_labels), each spread evenly; none at known sites."""
    rng = np.random.default_rng([seed, int(f.layout.streams[0]), domain.code])
    noise = np.concatenate([even_noise(rng, n, f.n_sites, f.n_labels) for n in parts])
    noise[:, known >= 0] = 0.0
    return noise


def _trials(
    structure: Structure, f: Potentials, known: Labels, tried: NDArray[np.intp], n_conditioned: int
) -> Floats:
    """Pinned values of some sites without their own noise, (n, len(tried), n_labels), of a few draws."""
    noise = _noise(f, known, 0, (_TRIALS * n_conditioned,), _TRIAL)
    pins = np.zeros((f.n_sites, f.n_labels), dtype=bool)
    pins[tried] = True
    values = structure.pinned_values(perturb(f, noise), known, pins)[1]
    return values.take(tried, axis=1) - noise.take(tried, axis=1)


def _most_gained(values: Floats, n: int) -> list[int]:
    """The sites whose sums lower the bound the most, each beyond what those before it explain."""
    means = values.mean(axis=0)
    rest = np.where(np.isfinite(means), values, 0.0)
    rest -= rest.mean(axis=0)
    rest -= rest.mean(axis=-1, keepdims=True)
    sites: list[int] = []
    for _ in range(min(n, len(means))):
        gains = np.logaddexp.reduce(means + rest, axis=-1).mean(axis=0) - np.logaddexp.reduce(means, axis=-1)
        gains[sites] = -np.inf
        site = int(np.argmax(gains))
        sites.append(site)
        label = np.argmax((rest[:, site] ** 2).sum(axis=0))
        column = rest[:, site, label] / max(np.linalg.norm(rest[:, site, label]), 1e-300)
        rest -= column[:, None, None] * np.tensordot(column, rest, axes=1)
    return sites


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
