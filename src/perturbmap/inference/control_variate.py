"""Control variates for maxima under noise: sums of zero mean, known exactly, that follow a maximum closely.

Labels.  max_k (log q[d, k] + z[d, k]) has mean zero for probabilities q of the labels of a site, and so has their
         mean noise sum_k q[d, k] z[d, k]. The first is right for sites whose labels do not depend on each other's
         noise, the second for sites that others decide.
Modes.   Where coupling is strong, whole regions change their labels together. Let a and b be the labels that most
         maximisers of two kinds have. Which kind is best depends on W = sum_d z[d, b_d] - z[d, a_d], over the m sites
         where they differ, and the maximum follows |c + W|, for some c. W is a sum of m logistic variables, whose
         characteristic function is (pi t / sinh(pi t))^m, so that E |c + W| is a sum over a few hundred t. Of one
         kind are the draws in which the label pinned is best that is best most often, all others are of the other.
How much of each is subtracted, is found by least squares. Labels and draws for that are those of one half of the
draws, and the differences are taken in the other half, so that nothing is fitted to its own noise.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from perturbmap.potentials import Floats, Labels, Mask
from perturbmap.support.blas import one_blas_thread

# The penalty on coefficients, as a part of the features' squares: halves of a few dozen draws say little.
_SHRINKAGE = 0.1


def subtract(values: Floats, labels: Labels, noise: Floats) -> Floats:
    """Pinned values (n, n_values) of draws, less what their noise (n, n_sites, n_labels) explains: the mean stays.

    ``labels`` (n, n_sites) are those of the maximisers. The two halves of the draws must not depend on each other.
    """
    rest = values.copy()
    middle = len(values) - len(values) // 2
    halves = slice(0, middle), slice(middle, None)
    with one_blas_thread():
        for mine, other in (halves, halves[::-1]):
            of_draws = _Features(values[other], labels[other], noise.shape[-1])(noise)
            rest[mine] -= of_draws[mine] @ _fit(of_draws[other], values[other])
    return rest


def _fit(features: Floats, values: Floats) -> Floats:
    """Coefficients by least squares, drawn to those of separable potentials: the first feature alone."""
    deviations = features - features.mean(axis=0)
    target = values - deviations[:, :1]
    products = deviations.T @ deviations + np.diag(_SHRINKAGE * (deviations**2).sum(axis=0) + 1e-300)
    coefficients = np.linalg.solve(products, deviations.T @ (target - target.mean(axis=0)))
    coefficients[0] += 1.0
    return np.asarray(coefficients)


class _Features:
    """The sums of zero mean that some pinned values and maximisers suggest."""

    def __init__(self, values: Floats, labels: Labels, n_labels: int) -> None:
        is_one = _kinds(values)
        of_kinds = [_counts(labels[kind], n_labels) for kind in (~is_one, is_one)]
        counts = of_kinds[0] + of_kinds[1] + 0.5
        q = counts / counts.sum(axis=-1, keepdims=True)
        signs = np.zeros_like(q)
        for of_kind, sign in zip(of_kinds, (-1.0, 1.0), strict=True):
            usual = (of_kind + q).argmax(axis=-1)  # where there is no draw of a kind, that of all
            signs[np.arange(len(q)), usual] += sign
        m = int(signs.max(axis=-1, initial=0).sum())
        share = (np.count_nonzero(is_one) + 0.5) / (len(is_one) + 1)
        self._c = float(np.pi * np.sqrt(m / 3) * NormalDist().inv_cdf(share))
        self._mean = mean_distance(m, self._c)
        self._log_q, self._linear = np.log(q), np.stack([q, signs], axis=-1).reshape(-1, 2)

    def __call__(self, noise: Floats) -> Floats:
        """The features of draws (n, n_sites, n_labels): (n, 3)."""
        separate = self._log_q[:, 0] + noise[:, :, 0]
        for k in range(1, noise.shape[-1]):
            np.maximum(separate, self._log_q[:, k] + noise[:, :, k], out=separate)
        mean, w = (noise.reshape(len(noise), -1) @ self._linear).T
        return np.stack([separate.sum(axis=-1), mean, np.abs(self._c + w) - self._mean], axis=-1)


def _counts(labels: Labels, n_labels: int) -> Floats:
    """How often each site has each label, (n_sites, n_labels)."""
    return np.stack([(labels == k).sum(axis=0, dtype=np.float64) for k in range(n_labels)], axis=-1)


def _kinds(values: Floats) -> Mask:
    """Draws of two kinds: those in which another label is best than in most."""
    best = values.argmax(axis=1)
    return np.asarray(best != np.bincount(best).argmax())


def mean_distance(m: int, c: float) -> float:
    """``E |c + W|``, W being the sum of m independent logistic variables.

    |x| is a wave of triangles on (-p, p): a sum over odd harmonics of (1 - cos(t x)) / t^2. Beyond p lies a part of
    e^-40 of the distribution.
    """
    if m == 0:
        return abs(c)
    p = abs(c) + 12 * np.pi * np.sqrt(m / 3) + 40
    t = np.pi / p * (np.arange(int(20 * p / np.pi) + 1) + 0.5)
    t = t[: 1 + np.searchsorted(t, 16 / max(1.0, np.sqrt(m)))]
    log_phi = m * (np.log(2 * np.pi * t) - np.pi * t - np.log1p(-np.exp(-2 * np.pi * t)))
    return float(p - 2 / p * (np.cos(c * t) * np.exp(log_phi) / t**2).sum())
