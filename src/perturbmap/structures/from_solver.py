"""A user's own solver of the maximisation as a structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures.base import InfeasibleError, Structure, check_given, check_not_forbidden


@final
class FromSolver(Structure):
    """Any solver ``argmax(unary) -> labels`` of ``max_y sum_d unary[d, y_d] + g(y)``.

    What else the solver weighs or forbids is up to it: constraints need not be declared here. Given labels and pins
    (sites held at a label) are asked for by masking: the other labels of the site are made so bad that the solver
    avoids them if it can, and so are labels that are forbidden. Where it does not, the pin is impossible (``-inf``).

    solver : a function of one example's ``unary``, ``(n_sites, n_labels)``, that returns the best labels
    score : a function of labels that returns the solver's own score of them, ``g``, so that values are known; by
        default there is none
    pairwise : whether the solver has the edges too. Then it is called as ``solver(f, given) -> labels``, f being one
        example's `Potentials` and ``given`` its given labels (-1: free) or None, which it must keep itself
    is_exact : whether the solver finds the maximum. False says that it is a heuristic: then no bound on log Z is made
        of its scores

    >>> def best_one(unary):
    ...     return np.eye(len(unary), dtype=int)[(unary[:, 1] - unary[:, 0]).argmax()]
    >>> f = pm.Potentials([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]])
    >>> pm.FromSolver(best_one).maximise(f)
    (array([0, 1, 0], dtype=int32), array([3.]))
    >>> pm.FromSolver(best_one).pinned(f).values
    array([[3., 1.],
           [2., 3.],
           [3., 2.]])
    >>> def better_of_two(f, given):
    ...     labellings = [np.full(f.n_sites, k) if given is None else np.where(given < 0, k, given) for k in (0, 1)]
    ...     return max(labellings, key=lambda y: f.score(y)[0])
    >>> ring = pm.Potentials([[0, 2], [0.5, 0], [0.5, 0]], pm.potts(0.8), edges=[(0, 1), (1, 2), (2, 0)])
    >>> pm.FromSolver(better_of_two, pairwise=True, is_exact=False).argmax(ring)
    array([1, 1, 1], dtype=int32)
    """

    def __init__(
        self,
        solver: Callable[..., ArrayLike],
        score: Callable[[Labels], float] | None = None,
        *,
        pairwise: bool = False,
        is_exact: bool = True,
    ) -> None:
        self.solver = solver
        self.score = score
        self.pairwise = pairwise
        self.is_exact = is_exact

    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        if f.n_edges and not self.pairwise:
            raise ValueError(
                "FromSolver takes unary potentials only: leave pairwise and edges out, and let the solver add "
                "what it knows (tell it by score); or pass pairwise=True, and a solver(f, given) that has the edges."
            )
        known = check_given(f, given)
        copies = f.stack
        labels = np.empty(copies.shape[:-1], dtype=np.int32)
        values = np.empty((len(copies), len(f)))
        for n in range(len(f)):
            sites = f.layout.sites(n)
            own = None if known is None else known[sites]
            for copy, unary in enumerate(copies[:, sites]):
                answer = (
                    self._solve_pairwise(f[n].with_unary(unary), own) if self.pairwise else self._solve(unary, own)
                )
                labels[copy, sites], values[copy, n] = answer
        lead = f.unary.shape[:-2]
        return labels.reshape(*lead, f.n_sites), values.reshape(*lead, len(f))

    def evaluate(self, f: Potentials, labels: ArrayLike) -> Floats:
        """See `Structure.evaluate`; the solver's own score is included."""
        values = f.score(labels)
        if self.score is None:
            return values
        y = np.asarray(labels).reshape(-1, f.n_sites)
        own = [[float(self.score(part.astype(np.int32))) for part in f.split(row)] for row in y]
        return values + np.array(own, dtype=np.float64).reshape(values.shape)

    def _solve_pairwise(self, one: Potentials, given: Labels | None) -> tuple[Labels, float]:
        y = self._checked(self.solver(one, None if given is None else given.copy()), one.n_sites, one.n_labels)
        if given is not None and (y != given)[given >= 0].any():
            raise InfeasibleError("solver returned a labelling without the given labels: it seems to forbid them.")
        check_not_forbidden("the labels of solver", one, y)
        return y, float(self.evaluate(one, y)[0])

    def _solve(self, unary: Floats, given: Labels | None) -> tuple[Labels, float]:
        masked = forbidden = np.isneginf(unary)
        if given is not None:
            masked = forbidden | ((given >= 0)[:, None] & (np.arange(unary.shape[1]) != given[:, None]))
        if not masked.any():
            y = self._call(unary)
            return y, self._value(unary, y)
        finite = np.where(forbidden, unary.max(axis=1, keepdims=True), unary)
        penalty = 1.0 + float(np.ptp(finite, axis=1).sum())
        # The scale of the solver's own score is unknown: ask again, louder, before taking no for an answer.
        for loudness in (1.0, 1e3, 1e6):
            y = self._call(np.where(masked, finite - loudness * penalty, finite))
            if not masked[np.arange(len(y)), y].any():
                return y, self._value(unary, y)
        raise InfeasibleError(
            "solver returned no labelling with the given labels and without forbidden ones, although all others were "
            "made far worse: it seems to forbid them."
        )

    def _call(self, unary: Floats) -> Labels:
        # A copy: a solver that works in place must not touch the caller's potentials.
        return self._checked(self.solver(unary.copy()), *unary.shape)

    @staticmethod
    def _checked(answer: ArrayLike, n_sites: int, n_labels: int) -> Labels:
        y = np.asarray(answer)
        if y.shape != (n_sites,) or not np.issubdtype(y.dtype, np.integer):
            raise ValueError(
                f"solver must return {n_sites} integer labels, one for each site, but returned shape {y.shape} and "
                f"dtype {y.dtype}."
            )
        if y.size and (y.min() < 0 or y.max() >= n_labels):
            raise ValueError(f"solver must return labels 0..{n_labels - 1}, but returned {y.min()}..{y.max()}.")
        return y.astype(np.int32)

    def _value(self, unary: Floats, y: Labels) -> float:
        value = float(unary[np.arange(len(y)), y].sum())
        return value if self.score is None else value + float(self.score(y))
