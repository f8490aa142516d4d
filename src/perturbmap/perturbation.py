"""Zero-mean Gumbel noise (section 2.1), one independent stream an example."""

from __future__ import annotations

import numpy as np

from perturbmap import _core
from perturbmap.potentials import Floats, Potentials
from perturbmap.structures.base import threads

Rng = int | np.random.Generator | None


def seed_of(rng: Rng, name: str = "rng") -> int:
    """A 64-bit seed: an integer is itself, a Generator draws one, None takes fresh entropy."""
    if rng is None:
        rng = np.random.default_rng()
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**64, dtype=np.uint64))
    if not isinstance(rng, (int, np.integer)) or isinstance(rng, bool) or not 0 <= rng < 2**64:
        raise ValueError(f"{name} must be an integer in 0..2**64 - 1, a numpy Generator or None, but is {rng!r}.")
    return int(rng)


def gumbel_noise(
    f: Potentials, seed: int, n_draws: int = 1, first_draw: int = 0, n_threads: int | None = None
) -> Floats:
    """The noise ``z[d, k]``, ``(n_draws, n_sites, n_labels)``: draw number ``first_draw`` and those after it.

    ``z`` has the distribution function ``exp(-exp(-(z + c)))`` with Euler's constant c: its mean is zero. An
    example's noise depends on the seed, its stream, the draw and its size alone.

    >>> f = pm.Potentials(np.zeros((2, 3)))
    >>> z = pm.gumbel_noise(f, seed=0, n_draws=1000)
    >>> z.shape, bool(abs(z.mean()) < 0.05)
    ((1000, 2, 3), True)
    """
    out = np.empty((n_draws, f.n_sites, f.n_labels))
    _core.gumbel(seed, f.streams, f.site_offsets, first_draw, out, threads(n_threads))
    return out


def perturb(f: Potentials, noise: Floats) -> Potentials:
    """``f(y) + sum_d z_d(y_d)``; leading axes of the noise become copies.

    >>> f = pm.Potentials(np.zeros((2, 3)))
    >>> pm.perturb(f, pm.gumbel_noise(f, seed=0, n_draws=10))
    Potentials(1 examples, 10 copies, 2 sites, 3 labels, 0 edges)
    """
    return f.with_unary(f.unary + noise)
