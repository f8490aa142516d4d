"""Exact sums over the labellings of a grid by transfer matrices: a reference that shares no code with ours."""

from __future__ import annotations

import numpy as np

from perturbmap.potentials import Floats, Potentials


def transfer(f: Potentials, height: int) -> tuple[float, Floats]:
    """Log Z and marginals of a grid with two labels, by sums over the labels of ``height`` sites at a time.

    Sites come column by column; the state holds the labels of the last ones, one for each row.
    """
    n = f.n_sites // height
    tables = {(int(i), int(j)): t for (i, j), t in zip(f.edges, f.tables, strict=True)}
    sites = [(r, r * n + c) for c in range(n) for r in range(height)]
    none = np.zeros((2, 2))

    def step(r: int, site: int) -> Floats:
        """What the site adds: (label above, label to the left, its own)."""
        above = tables[site - n, site] if r else none
        left = tables[site - 1, site] if site % n else none
        return np.asarray(above[:, None, :] + left + f.unary[site])

    def bits(state: Floats, r: int) -> Floats:
        """The state with axes of its own for the row above and the row."""
        return state.reshape((2 ** (r - 1), 2, 2, -1) if r else (1, 1, 2, -1))

    forward = [np.where(np.arange(2**height) == 0, 0.0, -np.inf)]  # before the first column, all labels are 0
    for r, site in sites:
        a = step(r, site)[: 2 if r else 1, :, :, None]
        old = bits(forward[-1], r)
        new = np.logaddexp(old[:, :, 0, None] + a[None, :, 0], old[:, :, 1, None] + a[None, :, 1])
        forward.append(new.ravel())
    backward, q = np.zeros(2**height), np.empty((f.n_sites, 2))
    log_z = float(np.logaddexp.reduce(forward[-1]))
    for (r, site), after in zip(reversed(sites), reversed(forward), strict=False):
        q[site] = np.exp(np.logaddexp.reduce(bits(after + backward, r), axis=(0, 1, 3)) - log_z)
        a = step(r, site)[: 2 if r else 1, :, :, None]
        later = bits(backward, r)
        backward = np.logaddexp(
            later[:, :, None, 0] + a[None, :, :, 0], later[:, :, None, 1] + a[None, :, :, 1]
        ).ravel()
    return log_z, q
