"""Block-coordinate Frank-Wolfe for the structured SVM (Lacoste-Julien et al. 2013; Osokin et al. 2016).

Primal.  minimise P(w) = l2/2 ||w||^2 + sum_n (weight_n / N) max_y [loss_n(y) + f_n(y) - f_n(y_n)]  over w in C, where
         C asks some weights not to be negative.
Dual.    maximise D(alpha) = -l2/2 ||w||^2 + b . alpha  over one probability distribution alpha_n over the
         labellings of each example, where w = the projection of A alpha onto C and
         A alpha = sum_n weight_n / (l2 N) sum_y alpha_n(y) (Psi_n(y_n) - Psi_n(y)),
         b . alpha = sum_n (weight_n / N) sum_y alpha_n(y) loss_n(y).
Step.    The alphas of one example, or of a few, move towards their loss-augmented maximisers at w, by an exact line
         search (`dual_step`). C makes D along the line a piecewise quadratic: the certificate stays honest, nothing
         is clipped afterwards.
Gap.     P(w) - D(alpha) bounds how far either is from the optimum. It is a sum over examples of
         (weight / N) (max_y g(y) - sum_y alpha(y) g(y)), g = f + loss: what each can still gain.
Memory.  The weights, and for each example the labellings of weight in its alpha: sites x labellings small integers.
         No matrix of examples x weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.solvers.averaging import Averaging, check_averaging
from perturbmap.solvers.base import Solver, warn_of_gap
from perturbmap.solvers.dual_map import apply_alpha, augmented_chunks
from perturbmap.solvers.dual_state import BCFWState, Block, side_by_side
from perturbmap.solvers.dual_step import MAX_IDLE, step
from perturbmap.solvers.iterate import Iterate
from perturbmap.solvers.pieces import Piece
from perturbmap.solvers.problem import Problem
from perturbmap.support.checks import check_count, check_number

#: Passes after which the certificate is computed even if no estimate of the gap asks for it.
_PASSES_PER_CERTIFICATE = 10
#: Draws of examples in a pass between which the probabilities of gap sampling stand still.
_DRAWS_PER_PASS = 10


@final
class BCFW(Solver[BCFWState]):
    """Block-coordinate Frank-Wolfe, which solves the structured support vector machine, `StructuredHinge`.

    It keeps weights and, as its dual variables, labellings of each example. ``primal`` is the loss with its penalty,
    which is minimised, ``dual`` a lower bound on its minimum. Their difference, the gap, is a certificate: it bounds
    how far the weights are from the optimum.

    tolerance : stops when ``primal - dual <= tolerance * primal``
    n_passes : passes over the examples at most
    batch_size : examples in a step, which move by one line search: more make a pass quicker, and take more passes
    gap_sampling : whether examples are drawn by their part of the gap, rather than all in turn
    pairwise_steps : whether dual weight moves to the maximiser from the worst labelling, rather than from all of
        them; not in steps of several examples, where a worst one of little weight would hold up the others
    cache : whether earlier maximisers of an example are tried before its next is searched for: worth it where
        maximising is expensive
    averaging : how the iterates are averaged, for instance ``PolynomialAveraging(1)``; the certificate is then that
        of the average. None: not at all

    ``history_`` of the estimator has primal, dual, gap and the maximisations so far (``oracle_calls``, those of the
    certificates among them). An entry describes the weights of its iteration.

    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(2, size=n) for n in (5, 3, 8, 6)]
    >>> X = [np.eye(2)[labels] + rng.normal(0, 0.3, (len(labels), 2)) for labels in y]
    >>> svm = pm.StructuredPredictor(objective=pm.StructuredHinge(), l2=0.1, random_state=0).fit(X, y)
    >>> last = svm.history_[-1]
    >>> last["gap"] <= 0.01 * last["primal"]
    True
    """

    ends_by_rule = True

    def __init__(
        self,
        tolerance: float = 1e-2,
        n_passes: float = 1000,
        *,
        batch_size: int = 1,
        gap_sampling: bool = True,
        pairwise_steps: bool = True,
        cache: bool = False,
        averaging: Averaging | None = None,
    ) -> None:
        self.tolerance = tolerance
        self.n_passes = n_passes
        self.batch_size = batch_size
        self.gap_sampling = gap_sampling
        self.pairwise_steps = pairwise_steps
        self.cache = cache
        self.averaging = averaging

    def check(self, problem: Problem) -> None:
        check_number("tolerance", self.tolerance, 0, 1)
        check_number("n_passes", self.n_passes)
        check_count("batch_size", self.batch_size)
        check_averaging(self.averaging)
        if not problem.objective.is_hinge:
            raise ValueError(
                f"BCFW solves the dual of a hinge, such as StructuredHinge(); leave solver out for "
                f"{type(problem.objective).__name__}."
            )
        if not problem.model.is_linear:
            raise ValueError(
                f"BCFW needs a model that is linear in its weights (LinearModel), but "
                f"{type(problem.model).__name__} is not: use solver=DoubleSGD()."
            )

    def n_iter(self, n_examples: int) -> int:
        """The number of steps, at most."""
        return max(1, int(np.ceil(self.n_passes * self._steps_per_pass(n_examples))))

    def examples_per_step(self, n_examples: int) -> int:
        """The number of examples in a step."""
        return min(self.batch_size, n_examples)

    def _steps_per_pass(self, n_examples: int) -> int:
        return -(-n_examples // self.batch_size)

    def is_due(self, state: BCFWState, n_examples: int) -> bool:
        """Whether there is a new certificate."""
        return state.certified_at == state.iteration

    def start(self, problem: Problem, w: Floats | None = None) -> BCFWState:
        """See `Solver.start`; it always begins with alpha at the true labels and with w at zero."""
        targets = problem.targets
        if (targets.labels < 0).any():
            raise ValueError(
                "BCFW needs examples of which every label is known; y has none, or only some of each. Label one "
                "example fully, or use solver=DoubleSGD()."
            )
        truth = problem.data.layout.split(targets.labels)
        w, average, a_alpha = np.zeros((3, problem.n_weights))
        blocks = [Block(y[None], np.ones(1)) for y in truth]
        return BCFWState(w, average, blocks=blocks, a_alpha=a_alpha, gaps=np.full(len(truth), np.inf))

    def warm(self, problem: Problem, state: BCFWState) -> BCFWState:
        """See `Solver.warm`: the same dual variables alpha, from which another l2 makes other weights."""
        blocks = [Block(block.labels, block.alpha) for block in state.blocks]
        w, gaps = state.w, np.zeros(len(blocks))
        begun = BCFWState(w, w, blocks=blocks, a_alpha=np.zeros(0), gaps=gaps)
        apply_alpha(problem, begun)
        begun.average = begun.w
        self._certify(problem, begun)
        return begun

    def restore(self, problem: Problem, arrays: Mapping[str, NDArray[Any]], iteration: int) -> BCFWState:
        return BCFWState.from_arrays(arrays, iteration, problem.data.layout, problem.n_labels, problem.n_weights)

    def progress(self, problem: Problem, state: BCFWState) -> dict[str, float]:
        """The last certificate, and the maximisations so far."""
        dual = state.dual(problem.l2)
        return {
            "objective": -state.primal,
            "primal": state.primal,
            "dual": dual,
            "gap": state.gap(problem.l2),
            "oracle_calls": state.oracle_calls,
        }

    def run(
        self,
        problem: Problem,
        state: BCFWState,
        on_step: Callable[[BCFWState], bool] | None = None,
        n_iter: int | None = None,
    ) -> BCFWState:
        n = len(problem.data)
        n_iter = self.n_iter(n) if n_iter is None else n_iter
        examples: dict[int, Piece] = {}
        is_pairwise = self.pairwise_steps and self.batch_size == 1
        if self.averaging is not None:
            state.average_by(Iterate.of(state.w, state.average) if state.averaged is None else state.averaged)
        while state.iteration < n_iter and not self._is_done(problem, state):
            if state.done == len(state.queue):
                self._draw(problem, state)
            indices = state.queue[state.done : state.done + self.batch_size]
            state.done += len(indices)
            if len(indices) > 1:
                indices = np.unique(indices)  # by their gaps, some are drawn twice
            piece = examples.get(int(indices[0]))
            if piece is None:
                piece = Piece.of(problem, indices)
                if self.batch_size == 1:
                    examples[int(indices[0])] = piece
            change = step(problem, state, indices, piece, is_pairwise=is_pairwise, is_cached=self.cache)
            state.iteration += 1
            if self.averaging is None or state.averaged is None:
                state.average = state.w
            else:
                rate = self.averaging.rate(state.iteration, n_iter)
                state.averaged.step(piece.at, change, shrink=1.0, rate=rate)
            if state.iteration == n_iter or (
                state.done == len(state.queue) and self._is_due_to_certify(problem, state)
            ):
                self._certify(problem, state)
            if on_step is not None and on_step(state):
                return state
        if not self._is_done(problem, state):
            warn_of_gap(
                f"BCFW ended after n_passes={self.n_passes}", state.gap(problem.l2) / state.primal, self.tolerance
            )
        return state

    def _draw(self, problem: Problem, state: BCFWState) -> None:
        """The next examples: all in a random order, or some by their gaps."""
        n = len(problem.data)
        rng = np.random.default_rng([problem.seed, state.iteration])
        total = state.gaps.sum()
        if self.gap_sampling and 0 < total < np.inf:
            state.queue = rng.choice(n, size=-(-n // _DRAWS_PER_PASS), p=state.gaps / total)
        else:
            state.queue = rng.permutation(n)
        state.done = 0

    def _is_done(self, problem: Problem, state: BCFWState) -> bool:
        """Whether the weights at hand, and no earlier ones, are certified to be near the optimum."""
        if state.certified_at != state.iteration or not np.isfinite(state.primal):
            return False
        rounding = 1e-12 * float(problem.targets.label_weights.sum()) / len(problem.data)
        return state.gap(problem.l2) <= self.tolerance * state.primal + rounding

    def _is_due_to_certify(self, problem: Problem, state: BCFWState) -> bool:
        """After 1, 2, 4, 8, ... passes, every so many from then on, and when the estimates of the gap are small."""
        n, passed = self._steps_per_pass(len(problem.data)), state.iteration - state.certified_at
        small = state.gaps.sum() <= self.tolerance * state.dual(problem.l2)
        return passed >= n and (small or passed >= min(_PASSES_PER_CERTIFICATE * n, state.iteration / 2))

    def _certify(self, problem: Problem, state: BCFWState) -> None:
        """The primal at the weights to use, and each example's part of the gap at w; n maximisations each.

        Where the structure's maximum is approximate, its upper bound stands in, so that the gap is never too small.
        """
        apply_alpha(problem, state)
        hinge = 0.0
        for first, g, truth, *_ in augmented_chunks(problem, state.w):
            y, values, bounds = problem.structure.maximise_with_bound(g)
            scales = problem.targets.weights[first : first + len(g)] / len(problem.data)
            hinge += float(scales @ (bounds - truth))
            blocks = state.blocks[first : first + len(g)]
            labels, alpha = side_by_side(blocks, g.layout)
            means = (alpha * problem.structure.evaluate(g, labels)).sum(axis=0)
            state.gaps[first : first + len(g)] = scales * np.maximum(0.0, values - means)
            if self.cache:
                for i, block in enumerate(blocks):
                    block.find_or_add(y[g.layout.sites(i)])
                    block.forget(MAX_IDLE)
        state.oracle_calls += len(problem.data)
        weights = state.w
        if self.averaging is None:
            state.average = state.w
        else:
            weights, hinge = state.average, 0.0
            for first, g, truth, *_ in augmented_chunks(problem, weights):
                scales = problem.targets.weights[first : first + len(g)] / len(problem.data)
                hinge += float(scales @ (problem.structure.maximise_with_bound(g).bounds - truth))
            state.oracle_calls += len(problem.data)
        state.primal = 0.5 * problem.l2 * float(weights @ weights) + hinge
        state.certified_at = state.iteration
