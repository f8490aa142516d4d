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
from numpy.typing import NDArray

from perturbmap import _core
from perturbmap.inference.linear_response import LinearResponse
from perturbmap.inference.particles import Group, OutOfTimeError
from perturbmap.inference.sweeps import sweeps
from perturbmap.noise import Domain, Purpose, streams_in
from perturbmap.potentials import Labels, Potentials
from perturbmap.structures.base import Structure
from perturbmap.support.threads import threads

# Sweeps with random numbers of their own.
_BLOCK = 8
# So many chains are tried first, and are to meet in so many blocks, one of them in a quarter of that; if they do, the
# others have four times as many.
_PILOT, _SOON = 8, 64
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

    @property
    def met(self) -> Labels:
        """Where the chains were after each block, (n_chains, n_blocks, n_sites)."""
        return self._met[:, : self._n_swept]

    def advance(self, deadline: float = np.inf) -> None:
        """Goes on for as many sweeps as make the labellings new."""
        for _ in range(self.n_blocks):
            _check(deadline)
            first = self._n_swept * len(self.labels)
            swept = sweeps(self._structure, self._f, self._given, self.labels, self._seed, first, 0, _BLOCK, _KEPT)
            self.labels = swept.labels
            self._p += swept.probabilities[:, :, 1]
            self._shares += swept.shares[:, :, 1]
            if self._n_swept == self._met.shape[1]:
                self._met = np.concatenate([self._met, np.empty_like(self._met)], axis=1)
            self._met[:, self._n_swept] = self.labels
            self._n_swept += 1

    def groups(self) -> tuple[Group, ...]:
        """What all sweeps say, for some chains at a time; all groups weigh the same."""
        n = len(self.labels)
        ends = np.arange(min(_GROUPS, n) + 1) * n // min(_GROUPS, n)
        n_met = np.diff(ends) * self._n_swept
        p, shares = (np.add.reduceat(x, ends[:-1]) / n_met[:, None] for x in (self._p, self._shares))
        p -= self._response(shares - p)
        return tuple(
            Group(0.0, np.stack([1.0 - one, one], axis=1), self.met[first:last], int(number) * _BLOCK)
            for one, first, last, number in zip(p, ends[:-1], ends[1:], n_met, strict=True)
        )


def start_chains(
    structure: Structure, f: Potentials, given: Labels | None, seed: int, n_chains: int, deadline: float = np.inf
) -> Chains | None:
    """Chains of one example at exact samples; None where the potentials do not attract, or chains do not meet."""
    is_ordered = structure.is_plain and f.n_labels == 2
    if not is_ordered or not (f.pairwise is None or _core.are_supermodular(f.pairwise)):
        return None
    n_pilots = min(_PILOT, n_chains)
    n_blocks, most = 1, min(_SOON, _WORK // (2 * n_pilots * _BLOCK * max(1, f.n_sites)))
    labels = np.empty((n_chains, f.n_sites), dtype=np.int32)
    have_met = np.zeros(n_chains, dtype=np.uint8)
    for n in sorted({n_pilots, n_chains}):
        while not have_met[:n].all():
            if n_blocks > most or (4 * n_blocks > most and not have_met.any()):
                return None
            _meet(structure, f, given, seed, n_blocks, labels[:n], have_met[:n], deadline)
            n_blocks *= 1 if have_met[:n].all() else 2
        most *= 4
    return Chains(structure, f, given, seed, labels, n_blocks)


def _meet(
    structure: Structure,
    f: Potentials,
    given: Labels | None,
    seed: int,
    n_blocks: int,
    labels: Labels,
    have_met: NDArray[np.uint8],
    deadline: float,
) -> None:
    """Moves chains that have not met by so many blocks, the last of them number 0, to exact samples if they meet.

    To begin earlier changes nothing for chains that have met: the blocks that are common have the same numbers.
    """
    domains = [Domain(Purpose.SWEEPS, 2 + block) for block in range(n_blocks)]
    streams = np.concatenate([streams_in(f, domain) for domain in domains])
    core = f.to_core(given)
    n_threads = threads(structure.n_threads)
    size = max(n_threads, _WORK // 10 // (n_blocks * _BLOCK * max(1, f.n_sites)))
    for first in range(0, len(labels), size):
        _check(deadline)
        part = slice(first, first + size)
        _core.gibbs_from_the_past(core, seed, streams, labels[part], have_met[part], first, _BLOCK, n_threads)


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise OutOfTimeError
