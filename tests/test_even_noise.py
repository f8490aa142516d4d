"""Noise that is spread evenly: each draw has the distribution of any noise, and all together hardly vary."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import perturbmap as pm
from perturbmap.inference.even_noise import even_noise
from perturbmap.noise import gumbel_noise
from perturbmap.potentials import Potentials


@pytest.mark.parametrize("n_labels", [2, 3, 5])
def test_a_draw_is_gumbel_noise_less_its_mean(n_labels: int) -> None:
    """The first of two draws, at 20,000 sites: differences of labels are logistic, and none depends on another."""
    z = even_noise(np.random.default_rng(0), 2, 20_000, n_labels)[0]
    np.testing.assert_allclose(z.mean(axis=-1), 0, atol=1e-9)
    for k in range(1, n_labels):
        assert stats.kstest(z[:, k] - z[:, 0], "logistic").pvalue > 1e-3
    plain = gumbel_noise(Potentials(np.zeros((20_000, n_labels))), 1)[0]
    plain -= plain.mean(axis=-1, keepdims=True)
    assert stats.ks_2samp(z.max(axis=-1), plain.max(axis=-1)).pvalue > 1e-3
    assert stats.ks_2samp(z.min(axis=-1), plain.min(axis=-1)).pvalue > 1e-3


def test_a_site_has_one_draw_in_each_part() -> None:
    """Of two labels: of twenty draws one each has a difference with a probability below 1/20, 2/20, ..."""
    z = even_noise(np.random.default_rng(1), 20, 7, 2)
    u = stats.logistic.cdf(z[..., 1] - z[..., 0])
    np.testing.assert_array_equal(np.sort(np.floor(20 * u), axis=0), np.tile(np.arange(20.0)[:, None], 7))
    order = np.argsort(u, axis=0)
    assert len({tuple(column) for column in order.T.tolist()}) == 7


@pytest.mark.parametrize("n_labels", [2, 4])
def test_means_of_separable_maxima_hardly_vary(n_labels: int) -> None:
    """From their exact value, log Z, with a few hundredths of the variance of independent draws."""
    f = Potentials(np.random.default_rng(2).normal(size=(30, n_labels)))
    log_z = np.logaddexp.reduce(f.unary, axis=1).sum()

    def errors(noise: list[np.ndarray]) -> np.ndarray:
        return np.array([pm.perturb(f, z).unary.max(axis=-1).sum(axis=-1).mean() - log_z for z in noise])

    ours = errors([even_noise(np.random.default_rng(i), 25, 30, n_labels) for i in range(100)])
    plain = errors([gumbel_noise(f, i, 25) for i in range(100)])
    assert abs(ours.mean()) <= 4 * ours.std() / 10
    assert ours.var() < plain.var() * (0.05 if n_labels == 2 else 0.3)


def test_there_may_be_one_label_or_no_site() -> None:
    assert (even_noise(np.random.default_rng(0), 4, 3, 1) == 0).all()
    assert even_noise(np.random.default_rng(0), 4, 0, 2).shape == (4, 0, 2)
