"""Ways to estimate marginals from perturbations, each with its gradient (sections 2.1 and 2.3 of the paper).

A method says what to average over perturbations and what to make of the average (`marginals` streams over any number
of them), and how the result moves with the potentials when the noise is held fixed (a layer of `perturbmap.nn` asks).
The gradient of a pinned value B'[d, k] is the indicators of its maximiser, so that of a softmax of pinned values is
the softmax's own, pushed through `Pinned.moments`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, final

import numpy as np

from perturbmap.inference.draws import draws, parts, perturb_in_place
from perturbmap.inference.estimate import Estimate, jackknife
from perturbmap.noise import Domain, perturb
from perturbmap.potentials import Floats, Labels, Mask, Moments, Potentials
from perturbmap.potentials.site_arrays import one_hot, softmax
from perturbmap.structures.base import Structure
from perturbmap.structures.summable import require_sums
from perturbmap.support.parts import Part

# Groups of perturbations from which standard errors are estimated.
_GROUPS = 32

#: From the gradient with respect to marginals to that with respect to the potentials.
FromMarginals = Callable[[Floats], Moments]


class MarginalMethod(Part):
    """A way to estimate marginals ``P(y_d = k)``, with the gradient of the estimate.

    `PINNED`, `INTEGRATED`, `COUNTED`, `EXACT` and `CONVERGING` are such methods. One of your own that averages over
    perturbations derives from `PerturbedMethod`.
    """

    #: Whether the method is estimated under noise.
    is_perturbed: ClassVar[bool] = True

    def check(self, structure: Structure) -> None:
        """Raises an error where the structure cannot do what the method asks of it."""

    @abstractmethod
    def estimate(
        self, structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int, domain: Domain
    ) -> Estimate:
        """Marginals, ``(n_sites, n_labels)``, given some labels, from n perturbations, with their standard errors."""

    @abstractmethod
    def with_pullback(
        self, structure: Structure, f: Potentials, noise: Floats | None
    ) -> tuple[Floats, FromMarginals]:
        """Marginals, ``(n_sites, n_labels)``, from M draws of noise, and the pullback of their gradient.

        The pullback is a function from the gradient with respect to the marginals to that with respect to f.
        """


class PerturbedMethod(MarginalMethod):
    """A method that averages a statistic of perturbed potentials, and makes marginals of the average.

    `statistic` says what is averaged, and `link` how the average becomes marginals. Perturbations are taken a few at
    a time, so that memory is bounded whatever their number.
    """

    #: Whether ``statistic`` looks at pinned values; else only at maximisers.
    needs_pins: ClassVar[bool] = True

    @abstractmethod
    def statistic(self, free: Labels, values: Floats) -> Floats:
        """What is averaged, ``(n_draws, n_sites, n_labels)``.

        ``free`` are the maximisers of the perturbed copies and ``values`` the pinned values B' without the pinned
        site's own noise; -inf where a pin is impossible, which the average leaves out.
        """

    def link(self, mean: Floats, impossible: Mask) -> Floats:
        """Marginals from the average; where a label is impossible, its probability must be zero."""
        return mean

    def estimate(
        self, structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int, domain: Domain
    ) -> Estimate:
        """See `MarginalMethod.estimate`; the errors are those of a jackknife over groups of perturbations."""
        mean, error = np.empty((f.n_sites, f.n_labels)), np.empty((f.n_sites, f.n_labels))
        for part, _, sites, given_part in parts(f, given):
            sums = np.zeros((min(n, _GROUPS), part.n_sites, part.n_labels))
            impossible = np.zeros((part.n_sites, part.n_labels), dtype=bool)
            for first, noise in draws(structure, part, given_part, seed, n, domain):
                free, values = self._solve(structure, part, noise, given_part)
                impossible = values[0] == -np.inf
                for draw, statistic in enumerate(self.statistic(free, values), start=first):
                    sums[draw % len(sums)] += np.where(impossible, 0.0, statistic) if impossible.any() else statistic
            mean[sites], error[sites] = jackknife(sums, n, partial(self.link, impossible=impossible))
        return Estimate(mean, error)

    def _solve(
        self, structure: Structure, f: Potentials, noise: Floats, given: Labels | None
    ) -> tuple[Labels, Floats]:
        """Maximisers of the perturbed copies, and the pinned values without the pinned site's own noise."""
        if not self.needs_pins:
            return structure.argmax(perturb_in_place(f, noise), given), np.zeros(noise.shape)
        free, values = structure.pinned_values(perturb(f, noise), given)
        return free, np.subtract(values, noise, out=noise)


@final
class CountedMarginals(PerturbedMethod):
    """Marginals by how often the best labelling of perturbed potentials has the label: section 2.3 of the paper."""

    needs_pins = False

    def statistic(self, free: Labels, values: Floats) -> Floats:
        return one_hot(free, values.shape[-1])

    def with_pullback(
        self, structure: Structure, f: Potentials, noise: Floats | None
    ) -> tuple[Floats, FromMarginals]:
        """See `MarginalMethod.with_pullback`.

        Counts are piecewise constant; their gradient is that of `INTEGRATED` under the same noise, whose mean they
        share: an unbiased estimate of the gradient of the mean.
        """
        assert noise is not None
        perturbed = perturb(f, noise)
        counted = one_hot(structure.argmax(perturbed), f.n_labels).mean(axis=0)

        def pull(g: Floats) -> Moments:
            pinned = structure.pinned(perturbed)
            p = softmax(pinned.values - noise)
            return pinned.moments(_softmax_pullback(p, g) / len(noise)).over_copies()

        return counted, pull


@final
class IntegratedMarginals(PerturbedMethod):
    """Counts with the site's own noise integrated out, ``E softmax_k B'[d, k]``: the same mean, less variance.

    ``B'[d, k]`` is the best score of a labelling with label k at site d, without the noise of that site.
    """

    def statistic(self, free: Labels, values: Floats) -> Floats:
        return softmax(values)

    def with_pullback(
        self, structure: Structure, f: Potentials, noise: Floats | None
    ) -> tuple[Floats, FromMarginals]:
        """See `MarginalMethod.with_pullback`; exact almost everywhere."""
        assert noise is not None
        pinned = structure.pinned(perturb(f, noise))
        p = softmax(pinned.values - noise)
        return p.mean(axis=0), lambda g: pinned.moments(_softmax_pullback(p, g) / len(noise)).over_copies()


@final
class PinnedMarginals(PerturbedMethod):
    """Marginals ``softmax_k E B'[d, k]``, the P(y_d) of the marginal likelihood; exact for separable potentials.

    ``B'[d, k]`` is the best score of a labelling with label k at site d, without the noise of that site. Potentials
    are separable if they have no edges.
    """

    def statistic(self, free: Labels, values: Floats) -> Floats:
        return values

    def link(self, mean: Floats, impossible: Mask) -> Floats:
        """See `PerturbedMethod.link`: the softmax of the average."""
        return softmax(np.where(impossible, -np.inf, mean) if impossible.any() else mean)

    def with_pullback(
        self, structure: Structure, f: Potentials, noise: Floats | None
    ) -> tuple[Floats, FromMarginals]:
        """See `MarginalMethod.with_pullback`; exact almost everywhere."""
        assert noise is not None
        n, pinned = len(noise), structure.pinned(perturb(f, noise))
        q = softmax((pinned.values - noise).mean(axis=0))
        return q, lambda g: pinned.moments(np.repeat(_softmax_pullback(q, g)[None] / n, n, axis=0)).over_copies()


@final
class ExactMarginals(MarginalMethod):
    """The marginals of the Gibbs distribution itself, without perturbations, where the structure can sum.

    `Chain`, `Tree` and `BruteForce` can; see `SummableStructure`.
    """

    is_perturbed = False

    def check(self, structure: Structure) -> None:
        require_sums(structure, "EXACT", "PINNED")

    def estimate(
        self, structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int, domain: Domain
    ) -> Estimate:
        """See `MarginalMethod.estimate`; the standard errors are zero, whatever the number of perturbations."""
        q = require_sums(structure, "EXACT", "PINNED").log_partition(f, given)[1].unary
        return Estimate(q, np.zeros_like(q))

    def with_pullback(
        self, structure: Structure, f: Potentials, noise: Floats | None
    ) -> tuple[Floats, FromMarginals]:
        sums = require_sums(structure, "EXACT", "PINNED").pinned_sums(f)
        q = softmax(sums.values)
        return q, lambda g: sums.moments(_softmax_pullback(q, g))

    def sample(self, structure: Structure, f: Potentials, given: Labels | None, n: int, seed: int) -> Labels:
        """Independent samples of the Gibbs distribution, ``(n, n_sites)``."""
        return require_sums(structure, "EXACT", "CONVERGING").sample(f, n, given=given, rng=seed)


def _softmax_pullback(p: Floats, g: Floats) -> Floats:
    return np.asarray(p * (g - (g * p).sum(axis=-1, keepdims=True)))


#: How often the maximiser has the label: section 2.3 of the paper.
COUNTED = CountedMarginals()
#: The same with the site's own noise integrated out, ``E softmax_k B'[d, k]``: same mean, less variance.
INTEGRATED = IntegratedMarginals()
#: ``softmax_k E B'[d, k]``: the P(y_d) of the marginal likelihood. Exact for separable potentials.
PINNED = PinnedMarginals()
#: The marginals of the Gibbs distribution itself, without perturbations; for structures that can be summed over.
EXACT = ExactMarginals()
