"""Marginals by perturb-and-MAP and their gradient under the same noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from perturbmap.inference import COUNTED, EXACT, INTEGRATED, PINNED, MarginalMethod
from perturbmap.perturbation import perturb
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.site_arrays import one_hot, softmax
from perturbmap.structures.base import ExactStructure, Pinned, Structure

Pullback = Callable[[Floats], Moments]


def marginals_and_pullback(
    structure: Structure, f: Potentials, method: MarginalMethod, noise: Floats | None
) -> tuple[Floats, Pullback]:
    """q, ``(n_sites, n_labels)``, from M draws of noise; and g -> the gradient of ``sum(g * q)`` with respect to f.

    The gradient of a pinned value B'[d, k] is the indicators of its maximiser, so that of q is a softmax's, pushed
    through `Pinned.moments`. Exact, almost everywhere, for PINNED, INTEGRATED and EXACT. COUNTED is piecewise
    constant; its gradient is that of INTEGRATED under the same noise, whose mean it shares: an unbiased estimate of
    the gradient of the mean.
    """
    if method is EXACT:
        sums = cast(ExactStructure, structure).pinned_sums(f)
        q = softmax(sums.values)
        return q, lambda g: sums.moments(_softmax_pullback(q, g))
    assert noise is not None
    perturbed, n = perturb(f, noise), len(noise)
    if method is COUNTED:
        counted = one_hot(structure.argmax(perturbed), f.n_labels).mean(axis=0)

        def pull_counted(g: Floats) -> Moments:
            pinned = structure.pinned(perturbed)
            return _moments(pinned, _softmax_pullback(softmax(pinned.values - noise), g) / n)

        return counted, pull_counted
    pinned = structure.pinned(perturbed)
    values = pinned.values - noise
    if method is INTEGRATED:
        p = softmax(values)
        return p.mean(axis=0), lambda g: _moments(pinned, _softmax_pullback(p, g) / n)
    assert method is PINNED
    q = softmax(values.mean(axis=0))
    return q, lambda g: _moments(pinned, np.repeat(_softmax_pullback(q, g)[None] / n, n, axis=0))


def _softmax_pullback(p: Floats, g: Floats) -> Floats:
    return np.asarray(p * (g - (g * p).sum(axis=-1, keepdims=True)))


def _moments(pinned: Pinned, weights: Floats) -> Moments:
    """Summed over the perturbed copies."""
    moments = pinned.moments(weights)
    return Moments(moments.unary.sum(axis=0), moments.pairwise)
