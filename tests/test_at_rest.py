"""The warning of a fit that ends while its objective still rises, and how often it cries wolf."""

from __future__ import annotations

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

import perturbmap as pm

from .stored import cutter, graphs


def test_a_fit_that_still_rises_says_so() -> None:
    """With short steps, whose last quarter goes on and on; not with many, nor with those that are the default."""
    X, y = graphs(60)
    with pytest.warns(ConvergenceWarning, match=r"still rose: .* would gain \d+\.\d%"):
        cutter(solver=pm.DoubleSGD(20, step=pm.PlainStep(1e-3)), l2=0.01).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cutter(solver=pm.DoubleSGD(400, step=pm.PlainStep(1.0)), l2=0.1).fit(X, y)
        cutter(solver=None, l2=0.01).fit(X, y)


def test_a_fit_that_was_stopped_says_nothing() -> None:
    """Early stopping has its own reasons."""
    X, y = graphs(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est = cutter(solver=pm.DoubleSGD(50, step=pm.PlainStep(1e-4)), l2=0.01)
        est.fit(X, y, validation=([pm.Example(0 * x.features, x.edges, x.edge_features) for x in X], y), patience=1)
    assert est.n_iter_ < est.solver_for(40).n_iter(40)
