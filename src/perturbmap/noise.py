"""Zero-mean Gumbel noise (section 2.1): an independent stream for each example, a domain for each purpose.

A number of the noise is a function of the seed, the example's stream, the domain, the draw and its place. Two
purposes have two domains: what a fit has seen in its steps is never what its probabilities are estimated from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np
from numpy.typing import NDArray

from perturbmap import _core
from perturbmap.potentials import Floats, Potentials
from perturbmap.support.threads import threads

Rng = int | np.random.Generator | None

# A domain is the upper quarter of the number of a stream; an example's own number is the rest.
_DOMAIN_SHIFT, _PURPOSE_SHIFT = 48, 12


class Purpose(IntEnum):
    """The purposes that noise is drawn for, each with a domain of its own."""

    #: `gumbel_noise` as a user calls it.
    PLAIN = 0
    #: The steps of a solver; numbered by the solve that they belong to, as `Domain.number`.
    TRAINING = 1
    #: `marginals`, and what an estimator predicts from.
    MARGINALS = 2
    #: `log_partition_bound`.
    BOUND = 3
    #: `sample`.
    SAMPLES = 4
    #: The marginals of examples that are not fully labelled, in Algorithm 3.
    COMPLETION = 5
    #: The marginals of held-out examples, from which a calibration is fitted.
    CALIBRATION = 6
    #: A module of `perturbmap.nn` in training, and in evaluation; numbered by the kind of module.
    LAYER_TRAINING = 7
    LAYER_EVALUATION = 8
    #: The proposals of particles, and the sweeps of Gibbs sampling.
    PARTICLES = 9
    SWEEPS = 10


@final
@dataclass(frozen=True)
class Domain:
    """What noise is drawn for: a purpose, and a number from 0 to 4095 where several things have the same purpose.

    The same seed gives other, independent noise in another domain.

    >>> from perturbmap.noise import Domain, Purpose
    >>> f = pm.Potentials(np.zeros((2, 3)))
    >>> plain, other = pm.gumbel_noise(f, 0), pm.gumbel_noise(f, 0, domain=Domain(Purpose.SAMPLES))
    >>> bool((plain == other).any())
    False
    """

    purpose: Purpose
    number: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number < 2**_PURPOSE_SHIFT:
            raise ValueError(f"number must be from 0 to {2**_PURPOSE_SHIFT - 1}, but is {self.number}.")

    @property
    def code(self) -> int:
        """The number of the domain, which is put in front of the numbers of the examples' streams."""
        return int(self.purpose) << _PURPOSE_SHIFT | self.number


PLAIN = Domain(Purpose.PLAIN)


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
    f: Potentials,
    seed: int,
    n_draws: int = 1,
    first_draw: int = 0,
    n_threads: int | None = None,
    *,
    domain: Domain = PLAIN,
) -> Floats:
    """Draws the Gumbel noise ``z[d, k]`` that perturbs potentials, ``(n_draws, n_sites, n_labels)``.

    ``z`` has the distribution function ``exp(-exp(-(z + c)))`` with Euler's constant c: its mean is zero. The draws
    are number ``first_draw`` and those after it. An example's noise depends on the seed, its stream (its number in
    the data, see `Layout`), the domain (what it is drawn for), the draw and its size alone.

    >>> f = pm.Potentials(np.zeros((2, 3)))
    >>> z = pm.gumbel_noise(f, seed=0, n_draws=1000)
    >>> z.shape, bool(abs(z.mean()) < 0.05)
    ((1000, 2, 3), True)
    """
    out = np.empty((n_draws, f.n_sites, f.n_labels))
    _core.gumbel(seed, streams_in(f, domain), f.site_offsets, first_draw, out, threads(n_threads))
    return out


def streams_in(f: Potentials, domain: Domain) -> NDArray[np.uint64]:
    """The numbers of the examples' streams in a domain."""
    return f.layout.streams | np.uint64(domain.code << _DOMAIN_SHIFT) if domain.code else f.layout.streams


def perturb(f: Potentials, noise: Floats) -> Potentials:
    """Adds noise to potentials, ``f(y) + sum_d z_d(y_d)``; leading axes of the noise become copies of f.

    >>> f = pm.Potentials(np.zeros((2, 3)))
    >>> pm.perturb(f, pm.gumbel_noise(f, seed=0, n_draws=10))
    Potentials(1 examples, 10 copies, 2 sites, 3 labels, 0 edges)
    """
    return f.with_unary(f.unary + noise)
