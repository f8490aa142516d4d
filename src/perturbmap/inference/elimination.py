"""Exact sums over the labellings of graphs whose tables stay small when their sites are summed out one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perturbmap import _core
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures.compiled import empty_moments

#: Entries of all tables together up to which an example is summed over exactly: 64 megabytes, a fraction of a second.
LARGEST_TABLES = 2**22


class ExactSums(NamedTuple):
    """Sums over all labellings: ``values``, log Z of each example, NaN where tables were too large; marginals."""

    values: Floats
    marginals: Floats


def sum_out(f: Potentials, given: Labels | None, n_threads: int, max_entries: int = LARGEST_TABLES) -> ExactSums:
    """Log Z and marginals of the examples that have small tables once the given labels are put in."""
    values = np.empty((1, len(f)))
    unary, tables = empty_moments(f)
    _core.elimination_sum(f.to_core(given), np.ones(len(f)), values, unary, tables, max_entries, n_threads)
    return ExactSums(values[0], unary[0])


def sample_out(f: Potentials, given: Labels | None, uniform: Floats, n_threads: int) -> tuple[Floats, Labels]:
    """Log Z of examples with small tables, and exact samples, one for each row ``(n, n_sites)`` of uniform ones."""
    labels = np.empty((1, *uniform.shape), dtype=np.int32)
    values = np.empty((1, len(f)))
    _core.elimination_sample(f.to_core(given), uniform[None], values, labels, most_entries(f), n_threads)
    if np.isnan(values).any():
        raise ValueError("the tables of an example are too large to be summed over.")
    return values[0], labels[0]


def most_entries(f: Potentials) -> int:
    """Entries of all tables that are allowed once sites are fixed: at least what a forest needs."""
    return max(LARGEST_TABLES, f.n_sites * f.n_labels**2)


def cut_sites(f: Potentials, given: Labels | None, max_width: int) -> NDArray[np.intp]:
    """Sites of one example, in the order to fix them, without which its tables are small.

    No site has more than so many neighbours when it is summed out, and all tables together can be summed over.
    """
    place = np.empty(f.n_sites, dtype=np.int32)
    while _core.elimination_cut(f.to_core(given), place, max_width) > LARGEST_TABLES and max_width > 1:
        max_width -= 1
    order = np.argsort(place, kind="stable")
    return order[np.count_nonzero(place < 0) :]
