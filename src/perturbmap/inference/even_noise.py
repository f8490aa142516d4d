"""Noise whose draws are spread evenly: a Latin hypercube.

Labels. What noise adds to all labels of a site alike, mean_k z[d, k], adds to every maximum, and has mean zero: it is
        left out. The e^-z[d, k] are independent exponential variables, but for a factor. So what remains, z[d, k] -
        mean_j z[d, j] = mean_j log p[d, j] - log p[d, k], is a function of their shares p[d, k] of their sum, which
        are uniform on the simplex. They are broken off one after another, by K - 1 uniform numbers u: of what is left
        before label k = 1, 2, ..., K - 1, u^(1 / (K - k)) is left after it.
Draws.  Of n numbers u of a site, each of n equal parts of (0, 1) has one, in an order of the site's own. Each draw
        alone is as any other noise, but sums of functions of single numbers hardly vary in their mean (Stein, 1987).
"""

from __future__ import annotations

import numpy as np

from perturbmap.potentials import Floats


def even_noise(rng: np.random.Generator, n: int, n_sites: int, n_labels: int) -> Floats:
    """Zero-mean Gumbel noise less its mean over the labels, (n, n_sites, n_labels)."""
    parts = np.broadcast_to(np.arange(n, dtype=np.float64)[:, None], (n_labels - 1, n, n_sites))
    u = (rng.permuted(parts, axis=1) + rng.random(parts.shape)) / n
    smallest = np.finfo(np.float64).eps
    np.clip(u, smallest, 1 - smallest, out=u)
    u **= 1 / np.arange(n_labels - 1, 0, -1)[:, None, None]
    shares = np.ones((n_labels, n, n_sites))
    np.cumprod(u, axis=0, out=shares[1:])
    shares[:-1] -= shares[1:]
    z = -np.log(shares)
    z -= z.mean(axis=0)
    return np.ascontiguousarray(z.transpose(1, 2, 0))
