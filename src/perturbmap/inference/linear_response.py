"""Less variance for Gibbs sampling: what chance has done to the labels of a chain is followed to its neighbours.

A label is drawn with a probability p that depends on the neighbours. What it differs from p by has mean zero,
whatever came before; call its mean over a chain the surprise s. If p were linear in the neighbours' labels with
slopes A, then mean labels were off by s + A s + A^2 s + ... = (I - A)^-1 s, and mean probabilities by A (I - A)^-1 s.
That is subtracted: a control variate, of mean zero whatever A is. It follows the error closely at weak coupling.

A holds for each edge how much a neighbour's label changes p, on average over some labellings, times one factor: where
p is far from linear, the sum of all neighbours explains more than each of them alone. If the labellings are those
that the chains start from, or older ones, nothing here is biased.

Reference: Dellaportas and Kontoyiannis, Control variates for estimation based on reversible Markov chain Monte Carlo
samplers, JRSS B 2012.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from perturbmap.potentials import Floats, Labels, Potentials

# The largest eigenvalue of the slopes that is believed, and what of the sum over all powers may be left out.
_LARGEST, _REST = 0.98, 0.05


@final
class LinearResponse:
    """How mean probabilities of two labels answer to labels that were drawn by chance, on one attractive example.

    ``labels`` (n_labellings, n_sites) are those that slopes are averaged over.
    """

    def __init__(self, f: Potentials, given: Labels | None, labels: Labels) -> None:
        slopes, p = _mean_slopes(f, given, labels)
        linear = labels @ slopes.T
        linear -= linear.mean(axis=0)
        # One factor for all, by least squares.
        slopes *= max(0.0, (linear * p).sum()) / max((linear**2).sum(), 1e-300)
        largest = _largest_eigenvalue(slopes)
        self._slopes = slopes * min(1.0, _LARGEST / max(largest, 1e-300))
        self._n_terms = int(np.ceil(np.log(_REST) / np.log(np.clip(largest, 1e-9, _LARGEST))))

    def __call__(self, surprise: Floats) -> Floats:
        """What mean probabilities of label 1 are off by, as far as they are linear; both are (n_chains, n_sites)."""
        drawn = np.ascontiguousarray(surprise.T)
        error = np.zeros_like(drawn)
        for _ in range(self._n_terms):
            error = self._slopes @ (drawn + error)
        return np.asarray(error.T)


def _mean_slopes(f: Potentials, given: Labels | None, labels: Labels) -> tuple[Any, Floats]:
    """How much p changes with each neighbour, a sparse matrix, and p at each labelling, (n_labellings, n_sites)."""
    from scipy import sparse  # perturb-and-MAP does without it

    # For each end of each edge: what the neighbour's labels add to the log-odds of the site.
    site, neighbour = np.concatenate([f.edges, f.edges[:, ::-1]]).T
    pulls = np.concatenate([f.tables[:, 1] - f.tables[:, 0], f.tables[:, :, 1] - f.tables[:, :, 0]])
    fields = f.unary[:, 1] - f.unary[:, 0]
    if given is not None:
        fields[given >= 0] = np.where(given[given >= 0] == 1, np.inf, -np.inf)
    slopes, p = np.zeros(len(pulls)), np.empty(labels.shape)
    for i, y in enumerate(labels):
        now = pulls[np.arange(len(pulls)), y[neighbour]]
        log_odds = fields + np.bincount(site, now, f.n_sites)
        others = log_odds[site] - now
        slopes += (_probability(others + pulls[:, 1]) - _probability(others + pulls[:, 0])) / len(labels)
        p[i] = _probability(log_odds)
    return sparse.csr_array((slopes, (site, neighbour)), shape=(f.n_sites, f.n_sites)), p


def _largest_eigenvalue(slopes: Any) -> float:
    """Nearly so, by powers of a matrix that is not negative."""
    v, largest = np.ones(slopes.shape[0]), 0.0
    for _ in range(32):
        v = slopes @ v
        largest = float(v.max(initial=0.0))
        v /= max(largest, 1e-300)
    return largest


def _probability(log_odds: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-log_odds)))
