"""Chains of Gibbs sampling that start from exact samples: no sweep is wasted, and no mode can be missed.

Where there are two labels and every edge attracts, a sweep keeps the order of two labellings that see the same random
numbers. So, if the chains from all zeros and from all ones have met, every other chain has met them. One that began
long ago is where they are now: they are at an exact sample (coupling from the past; Propp and Wilson, 1996). Where
labellings have modes that sweeps do not leave, chains do not meet, and there is no answer.

Their mean probabilities are corrected for what chance has done to their labels (`LinearResponse`).

That chains from perturb-and-MAP samples agree with each other would prove less: all may have missed the same mode.
"""

from __future__ import annotations

import time

import numpy as np

from perturbmap import _core
from perturbmap.inference.linear_response import LinearResponse
from perturbmap.inference.particles import Group, OutOfTimeError
from perturbmap.inference.sweeps import sweeps
from perturbmap.noise import Domain, Purpose
from perturbmap.potentials import Labels, Potentials
from perturbmap.structures.base import Structure

# Sweeps with random numbers of their own.
_BLOCK = 32
# So many chains are tried first, and are to meet in so many blocks; if they do, the others have four times as many.
_PILOT, _SOON = 8, 32
# Labels that a try may draw: a few seconds. Large graphs have fewer blocks to meet in.
_WORK = 10**8
# Chains are shared out to so many groups, whose spread tells the standard errors.
_GROUPS = 32
_KEPT = Domain(Purpose.SWEEPS, 1)


class Chains:
    """Independent chains of one example, all of them at exact samples.

    labels : (n_chains, n_sites)
    n_blocks : after so many blocks of sweeps a chain has forgotten where it was
    """

    def __init__(
        self, structure: Structure, f: Potentials, given: Labels | None, seed: int, labels: Labels, n_blocks: int
    ) -> None:
        self._structure, self._f, self._given, self._seed = structure, f, given, seed
        self.labels, self.n_blocks = labels, n_blocks
        self._n_swept = 0
        self._p, self._shares = np.zeros((2, *labels.shape))  # of label 1, sums over blocks
        self._met = np.empty((len(labels), 1, f.n_sites), dtype=np.int32)
        self._response = LinearResponse(f, given, labels)

    def advance(self, deadline: float = np.inf) -> tuple[Group, ...]:
        """Goes on for as many sweeps as make the labellings new; all that was met, in groups of a few chains each."""
        n, n_blocks = len(self.labels), self._n_swept + self.n_blocks
        labels, p, shares = self.labels, self._p.copy(), self._shares.copy()
        for block in range(self._n_swept, n_blocks):
            _check(deadline)
            met = sweeps(self._structure, self._f, self._given, labels, self._seed, block * n, 0, _BLOCK, _KEPT)
            labels = met.labels
            p += met.probabilities[:, :, 1]
            shares += met.shares[:, :, 1]
        self.labels, self._p, self._shares, self._n_swept = labels, p, shares, n_blocks
        first = np.arange(min(_GROUPS, n) + 1) * n // min(_GROUPS, n)
        sizes = np.diff(first)
        q, drawn = (np.add.reduceat(x, first[:-1]) / (sizes * n_blocks)[:, None] for x in (p, shares))
        q -= self._response(drawn - q)
        met_labels = self._remember(labels)
        return tuple(
            Group(0.0, np.stack([1.0 - one, one], axis=1), met_labels[a:b], int(b - a) * n_blocks * _BLOCK)
            for one, a, b in zip(q, first[:-1], first[1:], strict=True)
        )

    def _remember(self, labels: Labels) -> Labels:
        """Where the chains were after each advance, (n_chains, n_advances, n_sites)."""
        last = self._n_swept // self.n_blocks - 1
        if last == self._met.shape[1]:
            self._met = np.concatenate([self._met, np.empty_like(self._met)], axis=1)
        self._met[:, last] = labels
        return self._met[:, : last + 1]


def start_chains(
    structure: Structure, f: Potentials, given: Labels | None, seed: int, n_chains: int, deadline: float = np.inf
) -> Chains | None:
    """Chains of one example at exact samples; None where the potentials do not attract, or chains do not meet."""
    is_ordered = structure.is_plain and f.n_labels == 2
    if not is_ordered or not (f.pairwise is None or _core.are_supermodular(f.pairwise)):
        return None
    n_pilots = min(_PILOT, n_chains)
    n_blocks, most = 1, min(_SOON, _WORK // (2 * n_pilots * _BLOCK * max(1, f.n_sites)))
    for n in sorted({n_pilots, n_chains}):
        labels = None
        while labels is None:
            if n_blocks > most:
                return None
            labels = _meet(structure, f, given, seed, n, n_blocks, deadline)
            n_blocks *= 1 if labels is not None else 2
        most *= 4
    assert labels is not None
    return Chains(structure, f, given, seed, labels, n_blocks)


def _meet(
    structure: Structure, f: Potentials, given: Labels | None, seed: int, n: int, n_blocks: int, deadline: float
) -> Labels | None:
    """Where the chains from all zeros and from all ones have met after so many blocks, the last of them number 0.

    To begin earlier changes nothing for chains that have met: the blocks that are common have the same numbers.
    """
    low, high = (np.full((n, f.n_sites), label, dtype=np.int32) for label in (0, 1))
    if given is not None:
        low[:, given >= 0] = high[:, given >= 0] = given[given >= 0]
    for block in reversed(range(n_blocks)):
        _check(deadline)
        domain = Domain(Purpose.SWEEPS, 2 + block)
        low, high = (sweeps(structure, f, given, y, seed, 0, _BLOCK, 0, domain)[0] for y in (low, high))
    return low if np.array_equal(low, high) else None


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise OutOfTimeError
