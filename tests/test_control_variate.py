"""What is subtracted from maxima under noise: it has mean zero, and follows them closely."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

import perturbmap as pm
from perturbmap.inference.control_variate import mean_distance, subtract
from perturbmap.potentials import Floats, Labels, Potentials


def draws_of(f: Potentials, n: int, seed: int) -> tuple[Floats, Labels, Floats]:
    """Pinned values of the first site and, last, the maximum of n draws; maximisers and noise; by enumeration."""
    noise = pm.gumbel_noise(f, seed, n)
    perturbed = pm.perturb(f, noise)
    labels, best = pm.BruteForce().maximise(perturbed)
    given = np.full((f.n_labels, f.n_sites), -1, dtype=np.int32)
    given[:, 0] = np.arange(f.n_labels)
    pinned = [pm.BruteForce().maximise(perturbed, one)[1] for one in given]
    return np.concatenate([*pinned, best], axis=1), labels, noise


@pytest.mark.parametrize("c", [0.0, -1.5, 20.0])
def test_the_mean_distance_of_one_logistic_variable(c: float) -> None:
    """By numerical integration of its density."""

    def density(x: float) -> float:
        return float(np.exp(-abs(x)) / (1 + np.exp(-abs(x))) ** 2)

    exact = quad(lambda x: abs(c + x) * density(x), -90, 90, points=[-c, 0.0], limit=500)[0]
    assert mean_distance(1, c) == pytest.approx(exact, abs=1e-9)
    assert mean_distance(0, c) == abs(c)


@pytest.mark.parametrize("m", [2, 7, 400])
@pytest.mark.parametrize("c", [0.0, 3.0, -60.0])
def test_the_mean_distance_of_many(m: int, c: float) -> None:
    """By 100,000 draws, within four standard errors."""
    drawn = np.abs(c + np.random.default_rng(m).logistic(size=(m, 100_000)).sum(axis=0))
    assert abs(mean_distance(m, c) - drawn.mean()) <= 4 * drawn.std() / np.sqrt(drawn.size)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_the_mean_stays(n_labels: int) -> None:
    """Over 1,500 sets of ten draws, within four standard errors: as many as could be fitted to are few."""
    rng = np.random.default_rng(0)
    f = Potentials(rng.normal(size=(4, n_labels)), 1.5 * np.eye(n_labels), [(0, 1), (1, 2), (2, 3), (3, 0)])
    values, labels, noise = draws_of(f, 15_000, 0)
    means = np.array(
        [
            (subtract(values[some], labels[some], noise[some]) - values[some]).mean(axis=0)
            for some in np.arange(15_000).reshape(-1, 10)
        ]
    )
    assert (np.abs(means.mean(axis=0)) <= 4 * means.std(axis=0) / np.sqrt(len(means))).all()
    assert (means.std(axis=0) > 0.1).all()


@pytest.mark.parametrize(("coupling", "least"), [(0.0, 10.0), (0.3, 2.0), (5.0, 3.0)])
def test_it_follows_maxima(coupling: float, least: float) -> None:
    """Of separable potentials all but a tenth, since shares are counted in 100 draws; of others most.

    Where all labels change together, it is the modes that explain the most.
    """
    f = Potentials(np.zeros((9, 2)), pm.potts(coupling), pm.grid_edges(3, 3))
    values, labels, noise = draws_of(f, 200, 1)
    rest = subtract(values, labels, noise)
    assert values[:, -1].std() / rest[:, -1].std() > least


def test_draws_of_one_kind_have_no_modes() -> None:
    """One label of the site is always best: nothing is made of a kind that no draw is of."""
    f = Potentials([[50.0, 0.0], [0.0, 0.3], [0.0, 0.0]], pm.potts(1.0), [(0, 1), (1, 2)])
    values, labels, noise = draws_of(f, 40, 2)
    assert (labels[:, 0] == 0).all()
    rest = subtract(values, labels, noise)
    assert np.isfinite(rest).all()
    assert rest[:, -1].std() < values[:, -1].std()
