"""What every structure answers: the best labelling, and the best with one label pinned, for all pins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from copy import copy as shallow_copy
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from perturbmap import _core
from perturbmap.potentials import Floats, Labels, Layout, Mask, Moments, Potentials
from perturbmap.structures.fixing import Fixing
from perturbmap.support.parts import Part

S = TypeVar("S", bound="Structure")


class Pinned(Protocol):
    """Answers to all pinned problems ``B[d, k] = max { f(y) : y_d = k }`` of a batch.

    A pin holds site d at label k, and B is the best score of a labelling with that pin. ``free`` is the maximiser
    (best labelling) without a pin, ``values`` is B. A pin that ``free`` satisfies has exactly the value of the free
    maximum; one that is forbidden, or contradicts the given labels or the structure, has ``-inf``.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0]], pm.potts(1.0))
    >>> pinned = pm.Chain().pinned(f)
    >>> pinned.values
    array([[1.5, 2. ],
           [1.5, 2. ]])
    >>> pinned.moments([[1, 0], [0, 0]]).unary  # the best labelling with label 0 at site 0
    array([[1., 0.],
           [1., 0.]])
    """

    @property
    def free(self) -> Labels:
        """The maximiser without a pin, y_A, shape ``(..., n_sites)``."""
        ...

    @property
    def values(self) -> Floats:
        """The pinned maxima B, shape ``(..., n_sites, n_labels)``; NaN for pins that were not asked for."""
        ...

    def moments(self, weights: ArrayLike) -> Moments:
        """``sum_{d,k} weights[d, k] * indicators of the maximiser pinned at (d, k)``; see `Moments`."""
        ...


class InfeasibleError(ValueError):
    """Raised where no labelling has the given labels, or where the forbidden labels leave no labelling."""


class Maximum(NamedTuple):
    """Labels of a high score, that score, and what no labelling exceeds.

    labels : (..., n_sites)
    values : (..., n_examples), the scores of ``labels``
    bounds : (..., n_examples), upper bounds on the maximum: ``values`` itself where the maximiser is exact, infinity
        where nothing is known. A bound that equals the value proves the labels to be a maximiser.
    """

    labels: Labels
    values: Floats
    bounds: Floats


class Structure(Part):
    """A set of labellings over which ``f`` can be maximised, with some labels given.

    A structure of your own needs only ``maximise``. The other methods are then made of it: ``pinned``, by one call
    for each pin (a site held at a label), is slow but right. Its parameters are those of its constructor.
    """

    speed_parameters = frozenset({"n_threads"})
    #: Threads to use; None is all that the process may run on. Results never depend on it.
    n_threads: int | None = None
    #: Whether several threads may use it at once; a solver of the user's is not asked to.
    is_thread_safe: ClassVar[bool] = False
    #: Whether ``maximise`` finds a maximiser. If not, bounds and certificates are made from `maximise_with_bound`.
    is_exact: bool = True
    #: Whether ``exp f`` can also be summed over the labellings: see `SummableStructure`.
    can_sum: ClassVar[bool] = False

    @property
    def is_plain(self) -> bool:
        """Whether all labellings are allowed and ``f`` alone scores them, so that sums need nothing but ``f``."""
        return False

    @property
    def sweeps(self) -> Any:
        """The kernel for Gibbs sampling, whose moves leave the Gibbs distribution as it is; None if there is none."""
        return _core.gibbs if self.is_plain else None

    @property
    def allows_every_labelling(self) -> bool:
        """Whether every labelling is allowed that the potentials do not forbid; if not, labels are tried out."""
        return False

    def check_classes(self, classes: Sequence[Hashable]) -> None:
        """Raises ValueError where the structure was made for other labels than these, or for another order."""

    def check_labels(self, layout: Layout, labels: Labels, n_labels: int) -> None:
        """Raises `InfeasibleError` where labels, -1 if not known, are ruled out whatever the potentials.

        It is asked once of all examples that are learned from; it may leave to `maximise` what takes long.
        """

    def with_threads(self: S, n_threads: int | None) -> S:
        """A copy that uses this many threads; None for all, 1 for a caller that has threads of its own."""
        other = shallow_copy(self)
        object.__setattr__(other, "n_threads", n_threads)  # also of one that is frozen
        return other

    @abstractmethod
    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        """The best labels, ``(..., n_sites)``, and their score, ``(..., n_examples)``.

        ``given`` holds a label for each site, or -1 where it is free. `InfeasibleError` says that no labelling has
        them.
        """

    def maximise_with_bound(self, f: Potentials, given: ArrayLike | None = None) -> Maximum:
        """`maximise`, with an upper bound on the maximum of each example.

        An approximate structure that knows one (a dual value) says it here; without one, the bound is infinite.
        """
        labels, values = self.maximise(f, given)
        return Maximum(labels, values, values if self.is_exact else np.full_like(values, np.inf))

    def argmax(self, f: Potentials, given: ArrayLike | None = None) -> Labels:
        """The best labels, ``(..., n_sites)``, without their score."""
        return self.maximise(f, given)[0]

    def evaluate(self, f: Potentials, labels: ArrayLike) -> Floats:
        """The scores of given labels ``(..., n_sites)``, as `maximise` counts them, ``(..., n_examples)``."""
        return f.score(labels)

    def pinned(self, f: Potentials, pins: ArrayLike | None = None, given: ArrayLike | None = None) -> Pinned:
        """Solves all pinned problems, or those of the mask ``pins``, ``(n_sites, n_labels)``.

        The pinned problem of site d and label k is to find the best labelling with ``y_d = k``. ``given`` holds a
        label for each site, or -1 where it is free.
        """
        return PinnedOneByOne(self, f, check_pins(f, pins), check_given(f, given))

    def pinned_values(
        self, f: Potentials, given: ArrayLike | None = None, pins: ArrayLike | None = None
    ) -> tuple[Labels, Floats]:
        """``free`` and ``values`` of `pinned`, which may cost less where no moments are needed."""
        pinned = self.pinned(f, pins, given)
        return pinned.free, pinned.values

    def fixing(self, f: Potentials, given: ArrayLike | None, n_rows: int) -> Fixing | None:
        """Pinned values of one example while its labels are fixed site by site, for at most ``n_rows`` labellings.

        None where the structure keeps nothing from site to site, or where that would take too much memory.
        """
        return None


def check_given(f: Potentials, given: ArrayLike | None) -> Labels | None:
    """Checks given labels; returns a copy of them, or None."""
    if not isinstance(f, Potentials):
        raise TypeError(
            f"f must be Potentials, but is a {type(f).__name__}: make them with Potentials(unary, pairwise, edges)."
        )
    if given is None:
        return None
    known = np.array(f.check_labels("given", given, unknown=True))
    check_not_forbidden("given", f, known)
    return known


def check_not_forbidden(name: str, f: Potentials, labels: Labels) -> None:
    """Raises `InfeasibleError` where the unary potential of a label, ``(n_sites,)``, is -inf; -1 is no label."""
    known = np.flatnonzero(labels >= 0)
    forbidden = np.isneginf(f.unary[..., known, labels[known]])
    if forbidden.any():
        d = int(known[np.argwhere(forbidden)[0][-1]])
        raise InfeasibleError(
            f"{name}[{d}] is {labels[d]}, but unary[{d}, {labels[d]}] is -inf, which forbids this label there."
        )


def check_pins(f: Potentials, pins: ArrayLike | None) -> Mask | None:
    """Checks a mask of pins; returns it as an array, or None."""
    if pins is None:
        return None
    mask = np.ascontiguousarray(pins)
    if mask.shape != (f.n_sites, f.n_labels) or mask.dtype != np.bool_:
        raise ValueError(
            f"pins must be a boolean mask of shape ({f.n_sites}, {f.n_labels}), "
            f"but has shape {mask.shape} and dtype {mask.dtype}."
        )
    return mask


def check_weights(f: Potentials, weights: ArrayLike, values: Floats) -> Floats:
    """Weights of pins as an array of the shape of ``f.unary``; none where ``values`` say there is no maximiser."""
    array = np.ascontiguousarray(weights, dtype=np.float64)
    if array.shape != f.unary.shape:
        raise ValueError(f"weights must have shape {f.unary.shape}, one for each pin, but has shape {array.shape}.")
    if _core.are_weights(array, values):
        return array
    if not np.isfinite(array).all():
        raise ValueError("weights must be finite.")
    site, label = (int(i) for i in np.argwhere((array != 0) & ~np.isfinite(values))[0][-2:])
    raise ValueError(
        f"weights[{site}, {label}] is not zero, but that pin has no maximiser: it was not asked for, or it "
        "is forbidden, or contradicts the given labels or the structure."
    )


class PinnedOneByOne:
    """Pinned problems solved one after another; those that the free maximiser satisfies are skipped.

    The skipping is the paper's Gumbel reduction.
    """

    def __init__(self, structure: Structure, f: Potentials, pins: Mask | None, given: Labels | None) -> None:
        self._f = f
        copies = f.stack
        free, best = structure.maximise(f, given)
        self.free = free
        free_stack, best_stack = free.reshape(copies.shape[:-1]), best.reshape(len(copies), len(f))
        values = np.full(copies.shape, np.nan)
        self._maximisers: dict[tuple[int, int, int], Labels] = {}
        for copy, unary in enumerate(copies):
            for n in range(len(f)):
                sites = f.layout.sites(n)
                first, last = sites.start, sites.stop
                one = f[n].with_unary(unary[first:last])
                for d in range(first, last):
                    for k in range(f.n_labels):
                        if free_stack[copy, d] == k:
                            values[copy, d, k] = best_stack[copy, n]
                        elif pins is not None and not pins[d, k]:
                            continue
                        elif given is not None and given[d] >= 0:
                            values[copy, d, k] = -np.inf
                        else:
                            pin = np.full(last - first, -1, np.int32) if given is None else given[first:last].copy()
                            pin[d - first] = k
                            try:
                                labels, value = structure.maximise(one, pin)
                            except InfeasibleError:
                                values[copy, d, k] = -np.inf
                                continue
                            values[copy, d, k] = value[0]
                            self._maximisers[copy, d, k] = labels
        self.values = values.reshape(f.unary.shape)

    def moments(self, weights: ArrayLike) -> Moments:
        """See `Pinned.moments`; the maximisers are those found before."""
        f = self._f
        w = check_weights(f, weights, self.values).reshape(f.stack.shape)
        unary = np.zeros(w.shape)
        free = self.free.reshape(w.shape[:-1])
        pairwise = None if f.pairwise is None else np.zeros(f.pairwise.shape)
        for copy, d, k in np.argwhere(w != 0).tolist():
            n = int(np.searchsorted(f.site_offsets, d, side="right")) - 1
            sites = f.layout.sites(n)
            y = self._maximisers.get((copy, d, k))
            if y is None:
                y = free[copy, sites]
            part = f[n].indicators(y, w[copy, d, k])
            unary[copy, sites] += part.unary
            if pairwise is not None and part.pairwise is not None:
                target = ... if f.is_shared else f.layout.edges_between(n)
                pairwise[target] += part.pairwise
        return Moments(unary.reshape(f.unary.shape), pairwise)
