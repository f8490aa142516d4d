"""Calibration: the scale of the potentials, for probabilities and for decoding, whatever was learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.inference import LabelPrior
from perturbmap.learning.calibrating import Calibrations, HeldOut, fit_calibrations
from perturbmap.potentials import Floats

from .stored import cutter, graphs


def drawn(scale: float, n: int = 300) -> HeldOut:
    """Labels that were drawn from chains, whose potentials were divided by a number afterwards."""
    rng = np.random.default_rng(0)
    parts = [pm.Potentials(rng.normal(0, 1.5, (6, 2)), pm.potts(0.8)) for _ in range(n)]
    f = pm.Potentials.batch(parts)
    labels = np.concatenate([_exact_sample(part, rng) for part in parts])
    known = pm.SiteLabels.of(labels, 2, f.layout)
    return HeldOut(f.scaled(1 / scale), known.q, known)


def _exact_sample(f: pm.Potentials, rng: np.random.Generator) -> Any:
    each = np.array([[int(c) for c in np.binary_repr(v, 6)] for v in range(64)], dtype=np.int32)
    scores = np.array([f.score(y)[0] for y in each])
    p = np.exp(scores - scores.max())
    return each[rng.choice(64, p=p / p.sum())]


def fitted(held_out: HeldOut, task_loss: pm.TaskLoss | None = None) -> Calibrations:
    prior = LabelPrior(np.ones(2), np.ones(2))
    return fit_calibrations(pm.Chain(), [held_out], prior, task_loss, pm.EXACT, 1, 0)


@pytest.mark.parametrize("scale", [1 / 30, 1.0, 300.0])
def test_the_scale_of_the_scores_is_found(scale: float) -> None:
    """From which the labels were drawn, to a half octave; then nothing is to be shifted."""
    found = fitted(drawn(scale)).marginals
    assert scale / 1.5 < found.scale < scale * 1.5
    np.testing.assert_allclose(found.shift, 0, atol=0.1)


def test_a_shift_is_found_too() -> None:
    """Scores that have forgotten how frequent a label is."""
    held_out = drawn(1.0)
    off = held_out.f.with_unary(held_out.f.unary - [0.0, 1.0])
    found = fitted(held_out._replace(f=off)).marginals
    q = found.marginals(pm.Chain(), off, method=pm.EXACT)
    raw = pm.marginals(pm.Chain(), off, method=pm.EXACT).mean
    share = held_out.known.q[:, 1].mean()
    assert abs(q[:, 1].mean() - share) < 0.01 < abs(raw[:, 1].mean() - share)
    assert found.shift[1] > 0.5


def test_of_many_labels_none_is_shifted_away(rng: np.random.Generator) -> None:
    """A label that no held-out example shows is not ruled out for others; the scale is fitted all the same."""
    f = pm.Potentials(rng.normal([0, 0, -2], 1, (500, 3)))
    noise = rng.gumbel(size=(500, 2))
    known = pm.SiteLabels.of((4.0 * f.unary[:, :2] + noise).argmax(axis=1).astype(np.int32), 3, f.layout)
    prior = LabelPrior(np.ones(3), np.ones(3))
    found = fit_calibrations(pm.Tree(), [HeldOut(f, known.q, known)], prior, None, pm.EXACT, 1, 0).marginals
    q = found.marginals(pm.Tree(), f, method=pm.EXACT)
    np.testing.assert_array_equal(found.shift, 0)
    assert 1.5 < found.scale < 6
    assert q[:, 2].max() > 0.5


def test_decoding_has_the_scale_of_least_loss() -> None:
    """Never a greater held-out loss than by the probabilities, whose scale is the least that is tried."""
    held_out = drawn(4.0, 100)
    found = fitted(held_out, pm.BalancedHamming())
    assert found.decoding is not None
    assert found.decoding.scale / found.marginals.scale in (1.0, 2.0, 4.0, 8.0, 16.0)

    def loss(calibration: pm.Calibration) -> float:
        q = calibration.marginals(pm.Chain(), held_out.f, method=pm.EXACT)
        f, known = held_out.f, held_out.known
        labels = pm.inference.decode_for(pm.BalancedHamming(), q, f.layout, known.sizes)
        return float(np.nanmean(pm.BalancedHamming().value(known, labels)))

    assert loss(found.decoding) <= loss(found.marginals)


def test_a_structured_svm_can_be_read_by_its_loss(tmp_path: Path) -> None:
    """Its scores have a scale of their own, which is found; in a file too. Its best labelling stays what it was."""
    X, y = graphs(90)
    svm: dict[str, Any] = {"solver": pm.BCFW(0.01), "l2": 1.0, "decoding": pm.Decoding.LOSS_AWARE}
    objective = pm.StructuredHinge(pm.BalancedHamming())

    def fit(**more: Any) -> pm.StructuredPredictor:
        est: pm.StructuredPredictor = cutter(**svm, **more).set_params(objective=objective)
        return est.fit(X[:60], y[:60])

    plain, calibrated = fit(), fit(calibration=3)
    assert plain.calibration_ is None
    assert calibrated.calibration_ is not None
    assert calibrated.calibration_.scale > 4
    assert _log_loss(calibrated, X[60:], y[60:]) < _log_loss(plain, X[60:], y[60:]) - 0.05
    calibrated.save(tmp_path / "svm.pm")
    again = pm.StructuredPredictor.load(tmp_path / "svm.pm")
    assert again.decoding_calibration_ is not None
    for a, b in zip(again.predict(X), calibrated.predict(X), strict=True):
        np.testing.assert_array_equal(a, b)
    best = [each.set_params(decoding=pm.Decoding.MAP).predict(X) for each in (plain, calibrated)]
    for a, b in zip(*best, strict=True):
        np.testing.assert_array_equal(a, b)


def _log_loss(est: pm.StructuredPredictor, X: Any, y: Any) -> float:
    q: Floats = np.concatenate(est.predict_marginals(X))
    return -float(np.log(q[np.arange(len(q)), np.concatenate(y)]).mean())


def test_the_folds_of_a_calibration_are_seen_but_not_kept() -> None:
    """A callback hears of them as phase 0; the history is that of what was learned."""
    heard: list[int] = []
    est = cutter(calibration=2).fit(*graphs(20), callback=lambda info: heard.append(info["phase"]))
    assert set(heard) == {0, 1}
    assert heard == sorted(heard)
    assert {entry["phase"] for entry in est.history_} == {1}


def test_another_decoding_needs_no_scale_of_its_own() -> None:
    """Only what is read by a loss has one."""
    X, y = graphs(20)
    assert cutter(calibration=2, decoding=pm.Decoding.MARGINAL).fit(X, y).decoding_calibration_ is None
    assert cutter(calibration=2, decoding=pm.Decoding.LOSS_AWARE).fit(X, y).decoding_calibration_ is not None
