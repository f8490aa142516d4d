"""The control variate of chains of Gibbs sampling: no bias, and much less variance where coupling is weak."""

import numpy as np
import pytest

import perturbmap as pm
from perturbmap import BinaryGraph, BruteForce, Potentials, grid_edges, potts
from perturbmap.inference.linear_response import LinearResponse
from perturbmap.inference.sweeps import sweeps


def grid(height: int, width: int, coupling: float, seed: int) -> Potentials:
    rng = np.random.default_rng(seed)
    unary = np.stack([np.zeros(height * width), rng.normal(size=height * width)], axis=1)
    return Potentials(unary, potts(coupling), grid_edges(height, width))


def plain_and_corrected(
    f: Potentials, given: np.ndarray | None, slopes_from: np.ndarray, n: int, n_sweeps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean probabilities of label 1 of n chains from exact samples, as they are and corrected, (n, n_sites)."""
    starts = pm.sample(BruteForce(), f, n, method=pm.CONVERGING, given=given, rng=1)
    _, p, shares = sweeps(BinaryGraph(), f, given, starts, 2, 0, 0, n_sweeps)
    response = LinearResponse(f, given, slopes_from)
    plain = p[:, :, 1]
    return plain, plain - response(shares[:, :, 1] - plain)


@pytest.mark.parametrize("coupling", [0.5, 3.0], ids=["weak", "strong"])
@pytest.mark.parametrize("is_given", [False, True], ids=["all free", "one given"])
def test_the_correction_has_no_bias_whatever_the_slopes_are(coupling: float, is_given: bool) -> None:
    """Of 4,000 chains of 8 sweeps, within four standard errors; slopes from two labellings that are rare."""
    f = grid(2, 3, coupling, 0)
    given = np.array([-1, 1, -1, -1, -1, -1], dtype=np.int32) if is_given else None
    odd = np.array([[0, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 0]], dtype=np.int32)
    plain, corrected = plain_and_corrected(f, given, odd, 4000, 8)
    q = BruteForce().log_partition(f, given)[1].unary[:, 1]
    assert (np.abs(corrected.mean(axis=0) - q) <= 4 * corrected.std(axis=0) / np.sqrt(4000) + 1e-12).all()
    assert not np.allclose(plain, corrected)


@pytest.mark.parametrize(("coupling", "gain"), [(0.25, 6), (0.5, 3), (1.0, 1.5)])
def test_standard_deviations_fall_with_the_coupling(coupling: float, gain: float) -> None:
    """Those of long chains, by so much, with slopes from 64 exact samples of their own."""
    f = grid(4, 4, coupling, 1)
    before = pm.sample(BruteForce(), f, 64, method=pm.CONVERGING, rng=5)
    plain, corrected = plain_and_corrected(f, None, before, 200, 200)
    assert plain.std(axis=0).mean() > gain * corrected.std(axis=0).mean()


def test_sites_that_have_no_neighbours_or_no_choice_need_no_correction() -> None:
    """No edges, a forbidden label, labels that are given: the surprise of the others goes nowhere."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, (8, 3)).astype(np.int32)
    apart = LinearResponse(Potentials(rng.normal(size=(3, 2))), None, labels)
    assert not apart(rng.normal(size=(2, 3))).any()
    f = Potentials([[0.0, 0.0], [0.0, -np.inf], [0.0, 0.0]], potts(1.0), [(0, 1), (1, 2)])
    labels[:, 1] = 0
    for one in (LinearResponse(f, None, labels), LinearResponse(f, np.array([-1, 0, -1], dtype=np.int32), labels)):
        answer = one(np.array([[0.3, 0.0, -0.2]]))
        assert not answer.any()
    neighbours = LinearResponse(Potentials(np.zeros((2, 2)), potts(1.0)), None, labels[:, :2])
    assert neighbours(np.array([[0.1, 0.0]]))[0, 1] > 0
