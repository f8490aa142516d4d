"""The dual variables of the structured SVM: sparse, one block for each example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats, Labels, Layout
from perturbmap.solvers.base import State
from perturbmap.solvers.iterate import Iterate


class Block:
    """The dual variables of one example: labellings, ``(n, n_sites)``, and their probabilities alpha."""

    __slots__ = ("alpha", "labels")

    def __init__(self, labels: Labels, alpha: Floats) -> None:
        self.labels, self.alpha = labels, alpha

    def find_or_add(self, y: Labels) -> int:
        """The position of a labelling; a new one gets alpha 0."""
        same = np.flatnonzero((self.labels == y).all(axis=1))
        if same.size:
            return int(same[0])
        self.labels = np.concatenate([self.labels, y[None]])
        self.alpha = np.append(self.alpha, 0.0)
        return len(self.alpha) - 1

    def forget(self, max_idle: int) -> None:
        """Drops the oldest labellings without weight."""
        idle = np.flatnonzero(self.alpha == 0)
        if idle.size > max_idle:
            dropped = idle[: idle.size - max_idle]
            self.labels = np.delete(self.labels, dropped, axis=0)
            self.alpha = np.delete(self.alpha, dropped)


def side_by_side(blocks: Sequence[Block], layout: Layout) -> tuple[Labels, Floats]:
    """Labellings of all examples, ``(n, n_sites)``, and their alphas, ``(n, n_examples)``.

    Where an example has fewer than others, its first one stands in, with alpha 0.
    """
    if len(blocks) == 1:
        return blocks[0].labels, blocks[0].alpha[:, None].copy()
    n, ends = max(len(block.alpha) for block in blocks), layout.site_offsets.tolist()
    labels, alpha = np.empty((n, layout.n_sites), dtype=np.int32), np.zeros((n, len(blocks)))
    for i, block in enumerate(blocks):
        its_own, sites = len(block.alpha), slice(ends[i], ends[i + 1])
        labels[:its_own, sites], labels[its_own:, sites] = block.labels, block.labels[0]
        alpha[:its_own, i] = block.alpha
    return labels, alpha


class BCFWState(State):
    """Alpha, what follows from it, and the last certificate.

    blocks : alpha, of each example
    a_alpha : A alpha, of which w is the projection
    gaps : each example's part of the gap, when it was last looked at
    averaged : the average of the weights, where they are averaged
    """

    def __init__(
        self,
        w: Floats,
        average: Floats,
        iteration: int = 0,
        *,
        blocks: list[Block],
        a_alpha: Floats,
        gaps: Floats,
        averaged: Iterate | None = None,
    ) -> None:
        super().__init__(w, average if averaged is None else averaged.average, iteration)
        self.blocks, self.a_alpha, self.gaps, self.averaged = blocks, a_alpha, gaps, averaged
        self.b_alpha = 0.0
        #: The examples drawn, and how many of them are done.
        self.queue: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self.done = self.oracle_calls = self.certified_at = 0
        self.primal = np.inf

    def average_by(self, averaged: Iterate) -> None:
        """Takes the average from here on from this iterate, which every step changes."""
        self.averaged, self.average = averaged, averaged.average

    def gap(self, l2: float) -> float:
        """How far above the optimum the primal may lie at the weights that were certified last."""
        return self.primal - self.dual(l2)

    def dual(self, l2: float) -> float:
        """D(alpha), a lower bound on the optimum."""
        return float(self.b_alpha - 0.5 * l2 * (self.w @ self.w))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See `State.arrays`: the labellings of all examples one after another."""
        return {
            **super().arrays(),
            **({} if self.averaged is None else self.averaged.arrays()),
            "labels": np.concatenate([b.labels.ravel() for b in self.blocks]),
            "alpha": np.concatenate([b.alpha for b in self.blocks]),
            "counts": np.array([len(b.alpha) for b in self.blocks]),
            "a_alpha": self.a_alpha,
            "gaps": self.gaps,
            "queue": self.queue,
            "scalars": np.array([self.b_alpha, self.done, self.oracle_calls, self.primal, self.certified_at]),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], iteration: int, layout: Layout, n_labels: int, n_weights: int
    ) -> BCFWState:
        """The state whose `arrays` these are; ValueError where they are not those of such examples and weights."""
        site_counts, n = layout.site_counts, len(layout)
        alpha, labels, queue, gaps = (arrays[name] for name in ("alpha", "labels", "queue", "gaps"))
        counts = _checked("counts", arrays["counts"], "iu", (n,), 1, len(alpha))
        _checked("labels", labels, "iu", (int(counts @ site_counts),), 0, n_labels - 1)
        _checked("alpha", alpha, "f", (int(counts.sum()),), 0, 1 + 1e-6)
        _checked("queue", queue, "iu", (queue.size,), 0, n - 1)
        _checked("gaps", gaps, "f", (n,), 0, np.inf)
        _checked("a_alpha", arrays["a_alpha"], "f", (n_weights,), -np.inf, np.inf)
        alphas = np.split(alpha, np.cumsum(counts)[:-1])
        parts = np.split(labels, np.cumsum(counts * site_counts)[:-1])
        blocks = [Block(y.reshape(len(a), -1), a) for y, a in zip(parts, alphas, strict=True)]
        b_alpha, done, oracle_calls, primal, certified_at = arrays["scalars"].tolist()
        if not 0 <= done <= len(queue):
            raise ValueError(f"{done} of {len(queue)} examples cannot be done.")
        averaged = Iterate.from_arrays(arrays, n_weights) if "lag" in arrays else None
        state = cls(
            arrays["w"],
            arrays["average"],
            iteration,
            blocks=blocks,
            a_alpha=arrays["a_alpha"],
            gaps=gaps,
            averaged=averaged,
        )
        state.queue, state.done, state.oracle_calls = queue, int(done), int(oracle_calls)
        state.b_alpha, state.primal, state.certified_at = b_alpha, primal, int(certified_at)
        return state


def _checked(
    name: str, values: NDArray[Any], kinds: str, shape: tuple[int, ...], low: float, high: float
) -> NDArray[Any]:
    """An array of a file, which may be forged: the kernels index by what is in it."""
    if values.dtype.kind not in kinds or values.shape != shape or not ((values >= low) & (values <= high)).all():
        raise ValueError(f"{name} must be {shape} numbers from {low} to {high}.")
    return values
