"""Inference by perturb-and-MAP (sections 2.1 and 2.3): the log-partition bound, marginals, samples, decoding.

Everything here streams over perturbations: memory is bounded whatever their number, each example has its own
random stream, and sums run in the order of the draws. So results are the same bits for any number of threads
and for any split of the examples into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap.checks import check_count
from perturbmap.perturbation import Rng, gumbel_noise, perturb, seed_of
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.site_arrays import one_hot, softmax
from perturbmap.structures.base import ExactStructure, Structure, check_given, threads

# Numbers of one chunk of perturbed unary potentials: a few megabytes, well under a second of work.
_CHUNK = 2**17

# Groups of perturbations from which standard errors are estimated.
_GROUPS = 32


class Estimate(NamedTuple):
    """A Monte-Carlo estimate and its standard error (NaN for a single perturbation), of the same shape.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> q = pm.marginals(pm.Chain(), f, method=pm.COUNTED, n_perturbations=400, rng=0)
    >>> q.mean[0].round(2), q.standard_error[0].round(2)
    (array([0.36, 0.64]), array([0.02, 0.02]))
    """

    mean: Floats
    standard_error: Floats


@dataclass(frozen=True)
class MarginalMethod:
    """A way to estimate marginals: what to average over perturbations, and what to make of the average.

    ``statistic(free, values)`` gets the maximiser of each perturbed copy and, if ``needs_pins``, the pinned
    values B' without the pinned site's own noise.
    """

    name: str
    needs_pins: bool
    statistic: Callable[[Labels, Floats], Floats]
    link: Callable[[Floats], Floats]

    def __repr__(self) -> str:
        return self.name

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # Methods are known by identity: a copy, or one that comes back from another process, must be the same object.
        return self.name if globals().get(self.name) is self else super().__reduce_ex__(protocol)


#: How often the maximiser has the label: section 2.3 of the paper.
COUNTED = MarginalMethod("COUNTED", False, lambda free, values: one_hot(free, values.shape[-1]), lambda q: q)
#: The same with the site's own noise integrated out, ``E softmax_k B'[d, k]``: same mean, less variance.
INTEGRATED = MarginalMethod("INTEGRATED", True, lambda free, values: softmax(values), lambda q: q)
#: ``softmax_k E B'[d, k]``: the P(y_d) of the marginal likelihood. Exact for separable potentials.
PINNED = MarginalMethod("PINNED", True, lambda free, values: values, softmax)
#: The marginals of the Gibbs distribution itself, without perturbations; for structures that can be summed over.
EXACT = MarginalMethod("EXACT", True, lambda free, values: values, softmax)


def log_partition_bound(
    structure: Structure,
    f: Potentials,
    *,
    given: ArrayLike | None = None,
    n_perturbations: int = 100,
    rng: Rng = None,
) -> Estimate:
    """``A_G(f) = E max_y f(y) + sum_d z_d(y_d)``, an upper bound on log Z(f), one an example.

    With ``given`` labels, the maximum is over the labellings that have them: ``B_G``. Their sites get no
    noise, which would only add variance.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> bound = pm.log_partition_bound(pm.Chain(), f, n_perturbations=2000, rng=0)
    >>> bound.mean.round(2), bound.standard_error.round(2)
    (array([2.93]), array([0.04]))
    >>> pm.Chain().log_partition(f)[0].round(2)
    array([2.85])
    """
    known = _check_given(structure, f, given)
    seed, n = seed_of(rng), check_count("n_perturbations", n_perturbations)
    values = np.empty((len(f), n))
    for part, examples, given_part in _parts(f, known):
        for first, noise in _draws(structure, part, given_part, seed, n):
            best = structure.maximise(_perturb_in_place(part, noise), given_part)[1]
            values[examples, first : first + len(noise)] = best.T
    # Row by row: the order of a sum must not depend on the batch.
    mean = np.array([row.mean() for row in values], dtype=np.float64)
    spread = np.array([row.std(ddof=1) if n > 1 else np.nan for row in values], dtype=np.float64)
    return Estimate(mean, spread / np.sqrt(n))


def marginals(
    structure: Structure,
    f: Potentials,
    *,
    method: MarginalMethod = PINNED,
    given: ArrayLike | None = None,
    n_perturbations: int = 100,
    rng: Rng = None,
) -> Estimate:
    """Estimates of ``P(y_d = k)``, shape ``(n_sites, n_labels)``, conditional on the ``given`` labels.

    The method is `PINNED`, `INTEGRATED`, `COUNTED` or, for an `ExactStructure`, `EXACT`. Standard errors are those of
    a jackknife over at most 32 groups of perturbations; they measure the noise of the estimate, not the distance of
    perturb-and-MAP from the Gibbs distribution.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> pm.marginals(pm.Chain(), f, n_perturbations=2000, rng=0).mean.round(2)
    array([[0.31, 0.69],
           [0.52, 0.48]])
    >>> pm.marginals(pm.Chain(), f, method=pm.EXACT).mean.round(2)
    array([[0.32, 0.68],
           [0.52, 0.48]])
    """
    known = _check_given(structure, f, given)
    seed, n = seed_of(rng), check_count("n_perturbations", n_perturbations)
    if method is EXACT:
        if not isinstance(structure, ExactStructure):
            raise TypeError(
                f"EXACT marginals sum over all labellings, which is possible for Chain, Tree and BruteForce, but not "
                f"for {type(structure).__name__}: use PINNED."
            )
        exact = structure.log_partition(f, known)[1].unary
        return Estimate(exact, np.zeros_like(exact))
    mean, error = np.empty((f.n_sites, f.n_labels)), np.empty((f.n_sites, f.n_labels))
    for part, examples, given_part in _parts(f, known):
        sites = slice(int(f.site_offsets[examples.start]), int(f.site_offsets[examples.stop]))
        sums = np.zeros((min(n, _GROUPS), part.n_sites, part.n_labels))
        impossible = np.zeros((part.n_sites, part.n_labels), dtype=bool)
        for first, noise in _draws(structure, part, given_part, seed, n):
            free, values = _solve(structure, part, noise, given_part, method.needs_pins)
            impossible = values[0] == -np.inf
            for draw, statistic in enumerate(method.statistic(free, values), start=first):
                sums[draw % len(sums)] += np.where(impossible, 0.0, statistic) if impossible.any() else statistic
        mean[sites], error[sites] = _jackknife(sums, n, impossible, method.link)
    return Estimate(mean, error)


def sample(
    structure: Structure,
    f: Potentials,
    n_samples: int = 1,
    *,
    given: ArrayLike | None = None,
    rng: Rng = None,
) -> Labels:
    """Perturb-and-MAP samples, ``(n_samples, n_sites)``: maximisers of independently perturbed potentials.

    They are exact samples of the Gibbs distribution only where ``f`` is separable.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> pm.sample(pm.Chain(), f, 3, rng=0)
    array([[1, 0],
           [1, 1],
           [1, 1]], dtype=int32)
    """
    known = _check_given(structure, f, given)
    seed, n = seed_of(rng), check_count("n_samples", n_samples)
    labels = np.empty((n, f.n_sites), dtype=np.int32)
    for part, examples, given_part in _parts(f, known):
        sites = slice(int(f.site_offsets[examples.start]), int(f.site_offsets[examples.stop]))
        for first, noise in _draws(structure, part, given_part, seed, n):
            labels[first : first + len(noise), sites] = structure.argmax(_perturb_in_place(part, noise), given_part)
    return labels


def decode(marginals: ArrayLike, site_weights: ArrayLike | None = None) -> Labels:
    """The labelling of least expected (weighted) Hamming loss, ``argmax_k theta[d, k] q[d, k]``.

    ``site_weights`` is theta, the cost of missing label k at site d: shape ``(n_sites, n_labels)``, or
    ``(n_labels,)`` or ``(n_sites, 1)`` where it does not depend on the other. Left out, all mistakes cost the
    same. Ties go to the smallest label.

    >>> pm.decode([[0.7, 0.3], [0.4, 0.6]])
    array([0, 1], dtype=int32)
    >>> pm.decode([[0.7, 0.3], [0.4, 0.6]], site_weights=[1, 3])  # missing a 1 costs three times as much
    array([1, 1], dtype=int32)
    """
    q = np.asarray(marginals, dtype=np.float64)
    if q.ndim != 2 or not np.isfinite(q).all() or (q < 0).any():
        raise ValueError(
            f"marginals must be finite, not negative and of shape (n_sites, n_labels), but has shape {q.shape}."
        )
    if site_weights is not None:
        theta = np.asarray(site_weights, dtype=np.float64)
        if not np.isfinite(theta).all() or (theta < 0).any():
            raise ValueError("site_weights must be finite and not negative.")
        try:
            q = q * np.broadcast_to(theta, q.shape)
        except ValueError:
            raise ValueError(
                f"site_weights must broadcast to the shape of marginals, {q.shape}, but has shape {theta.shape}."
            ) from None
    return np.asarray(q.argmax(axis=1), dtype=np.int32)


def _check_given(structure: Structure, f: Potentials, given: ArrayLike | None) -> Labels | None:
    if not isinstance(structure, Structure):
        raise TypeError(f"structure must be a Structure, such as Chain(), but is {structure!r}.")
    known = check_given(f, given)
    if f.unary.ndim != 2:
        raise ValueError("f has perturbed copies already: pass the potentials before they were perturbed.")
    return known


def _parts(f: Potentials, given: Labels | None) -> Iterator[tuple[Potentials, slice, Labels | None]]:
    """Slices of the examples that fit into a chunk each; one example is never cut."""
    first = 0
    while first < len(f):
        limit = f.site_offsets[first] + _CHUNK // f.n_labels
        last = max(first + 1, int(np.searchsorted(f.site_offsets, limit, side="right")) - 1)
        sites = slice(int(f.site_offsets[first]), int(f.site_offsets[last]))
        yield f[first:last], slice(first, last), None if given is None else given[sites]
        first = last


def _draws(
    structure: Structure, f: Potentials, given: Labels | None, seed: int, n: int
) -> Iterator[tuple[int, Floats]]:
    """Noise for ``n`` draws, in chunks with the number of their first draw; none at given sites."""
    n_threads = threads(structure.n_threads)
    # Every thread gets something to do, even where one copy alone is larger than a chunk.
    step = max(n_threads, _CHUNK // max(1, f.n_sites * f.n_labels))
    for first in range(0, n, step):
        noise = gumbel_noise(f, seed, min(step, n - first), first, n_threads)
        if given is not None:
            noise[:, given >= 0] = 0.0
        yield first, noise


def _solve(
    structure: Structure, f: Potentials, noise: Floats, given: Labels | None, needs_pins: bool
) -> tuple[Labels, Floats]:
    """Maximisers of the perturbed copies, and the pinned values without the pinned site's own noise."""
    if not needs_pins:
        return structure.argmax(_perturb_in_place(f, noise), given), np.zeros(noise.shape)
    free, values = structure.pinned_values(perturb(f, noise), given)
    return free, np.subtract(values, noise, out=noise)


def _perturb_in_place(f: Potentials, noise: Floats) -> Potentials:
    """As `perturb`, in the memory of the noise: a fresh array of this size costs more than the sum."""
    noise += f.unary
    return f.with_unary(noise)


def _jackknife(
    sums: Floats, n: int, impossible: NDArray[np.bool_], link: Callable[[Floats], Floats]
) -> tuple[Floats, Floats]:
    """``link`` of the mean, and its standard error by leaving out one group of draws at a time.

    ``sums[g]`` is the sum over the draws g, g + G, g + 2 G, ... of n.
    """
    n_groups = len(sums)
    total = np.zeros_like(sums[0])
    for group in sums:
        total += group

    def estimate(total: Floats, count: int) -> Floats:
        mean = total / count
        if link is softmax:
            mean = np.where(impossible, -np.inf, mean)
        return link(mean)

    if n_groups == 1:
        return estimate(total, n), np.full_like(total, np.nan)
    counts = np.bincount(np.arange(n) % n_groups)
    centre, spread = np.zeros_like(total), np.zeros_like(total)
    for g in range(n_groups):  # Welford's update: one pass, no array of all replicates
        replicate = estimate(total - sums[g], n - int(counts[g]))
        step = replicate - centre
        centre += step / (g + 1)
        spread += step * (replicate - centre)
    return estimate(total, n), np.sqrt(spread * (n_groups - 1) / n_groups)
