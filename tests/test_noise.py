"""The noise: its numbers, its distribution, its streams, and that no two purposes share a draw."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import perturbmap as pm
from perturbmap import Potentials, gumbel_noise, perturb
from perturbmap.noise import Domain, Purpose, seed_of
from perturbmap.solvers.problem import FRESH


def philox_4x32_10(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 from the definition in Salmon et al. 2011, one block."""
    c, k = list(counter), list(key)
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (high >> 32) ^ c[1] ^ k[0],
            high & 0xFFFFFFFF,
            (low >> 32) ^ c[3] ^ k[1],
            low & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_the_reference_generator_gives_the_published_numbers() -> None:
    """The known answers that come with the definition of Philox4x32-10."""
    assert philox_4x32_10([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox_4x32_10([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]


@pytest.mark.parametrize(("seed", "draw"), [(0, 0), (2**63 + 12345678901, 7)])
def test_the_noise_is_the_gumbel_transform_of_philox(seed: int, draw: int) -> None:
    """Number i of a draw is a pure function of seed, stream, draw and i."""
    f = Potentials.batch([Potentials(np.zeros((n, 3))) for n in (1, 4, 50)])
    noise = gumbel_noise(f, seed, n_draws=1, first_draw=draw)[0]
    for stream, part in enumerate(f.split(noise)):
        expected = []
        for block in range((part.size + 1) // 2):
            w = philox_4x32_10([block, draw, stream, 0], [seed & 0xFFFFFFFF, seed >> 32])
            for bits in (w[0] << 32 | w[1], w[2] << 32 | w[3]):
                u = (bits >> 12) * 2.0**-52 + 2.0**-53
                expected.append(-np.log(-np.log(u)) - np.euler_gamma)
        np.testing.assert_allclose(part.ravel(), expected[: part.size], rtol=1e-13, atol=1e-13)


def test_the_noise_is_gumbel_with_mean_zero() -> None:
    """Kolmogorov-Smirnov against exp(-exp(-(z + c))), and the mean: an unshifted draw would be off by 0.577."""
    z = gumbel_noise(Potentials(np.zeros((50_000, 2))), seed=3, n_draws=4).ravel()
    assert stats.kstest(z + np.euler_gamma, "gumbel_r").pvalue > 1e-3
    assert abs(z.mean()) < 4 * z.std() / np.sqrt(z.size)
    assert z.std() == pytest.approx(np.pi / np.sqrt(6), rel=0.01)


def test_streams_draws_and_sites_are_independent() -> None:
    """Correlations between neighbouring sites, labels, draws and examples vanish."""
    f = Potentials.batch([Potentials(np.zeros((1000, 2)))] * 2)
    z = gumbel_noise(f, seed=4, n_draws=50)
    pairs = [
        (z[:, :1000], z[:, 1000:]),
        (z[:-1], z[1:]),
        (z[:, :-1], z[:, 1:]),
        (z[..., 0], z[..., 1]),
        (z, gumbel_noise(f, seed=5, n_draws=50)),
    ]
    for a, b in pairs:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / np.sqrt(a.size)


def test_an_examples_noise_does_not_depend_on_its_batch() -> None:
    """Slices of a batch keep the streams of their examples; draws can be made in any chunks."""
    f = Potentials.batch([Potentials(np.zeros((n, 3))) for n in (2, 5, 1, 4)])
    everything = gumbel_noise(f, seed=6, n_draws=5)
    np.testing.assert_array_equal(gumbel_noise(f[1:3], seed=6, n_draws=5), everything[:, 2:8])
    np.testing.assert_array_equal(gumbel_noise(f, seed=6, n_draws=2, first_draw=3), everything[3:])
    np.testing.assert_array_equal(gumbel_noise(f, seed=6, n_draws=5, n_threads=1), everything)


def test_perturbing_adds_noise_to_the_unary_potentials_only() -> None:
    """The copies share edges and tables."""
    f = Potentials(np.ones((3, 2)), np.eye(2))
    g = perturb(f, gumbel_noise(f, seed=0, n_draws=4))
    assert g.unary.shape == (4, 3, 2)
    assert g.pairwise is not None
    np.testing.assert_array_equal(g.pairwise, np.eye(2))


def test_seeds_come_from_integers_generators_or_entropy() -> None:
    """An integer is the seed, a Generator draws one each time, None never repeats."""
    assert seed_of(5) == 5
    assert seed_of(np.random.default_rng(1)) == seed_of(np.random.default_rng(1))
    assert seed_of(None) != seed_of(None)
    for bad in (-1, 2**64, 1.5, "seed", True):
        with pytest.raises(ValueError, match="rng must be"):
            seed_of(bad)  # type: ignore[arg-type]  # the wrong type is the point


def test_no_two_purposes_share_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit in two phases with its calibration, what is predicted from it, and all of inference, under one seed.

    No number is ever used twice: not by two steps, not by both phases or two folds, not by marginals and samples.
    But for comparisons, which are made under the same noise: of scales, by a calibration, and of weights, under draws
    that are never learned from.
    """
    used: Counter[tuple[int, int, int]] = Counter()
    from perturbmap import _core as core

    def gumbel(seed: int, streams: Any, offsets: Any, first_draw: int, out: Any, n_threads: int) -> None:
        used.update((seed, stream, first_draw + draw) for stream in streams.tolist() for draw in range(len(out)))
        core.gumbel(seed, streams, offsets, first_draw, out, n_threads)

    monkeypatch.setattr("perturbmap.noise._core", SimpleNamespace(gumbel=gumbel))
    rng = np.random.default_rng(0)
    y: list[Any] = [rng.integers(3, size=n) for n in rng.integers(2, 6, 16)]
    X = [np.eye(3)[labels] + rng.normal(0, 0.5, (len(labels), 3)) for labels in y]
    known = [*y[:12], *[None] * 4]
    est = pm.StructuredPredictor(solver=pm.DoubleSGD(3, batch_size=4), calibration=3, random_state=5)
    est.fit(X, known)
    n_training = len(used)
    assert n_training > 0
    est.predict_marginals(X)
    f = est.potentials(X)
    pm.log_partition_bound(pm.Chain(), f, n_perturbations=50, rng=5)
    pm.sample(pm.Chain(), f, 50, rng=5)
    gumbel_noise(f, 5, 50)
    torch = pytest.importorskip("torch")
    unary, labels = [torch.tensor(part) for part in f.split(f.unary)], [torch.tensor(part) for part in y]
    loss, marginals = pm.nn.StructuredLoss(seed=5), pm.nn.Marginals(seed=5)
    for _ in range(3):
        loss(unary, labels)
        marginals(unary)
    loss.eval()(unary, labels)
    marginals.eval()(unary)
    assert len(used) > n_training
    calibrating = Domain(Purpose.CALIBRATION).code
    once = Counter({key: n for key, n in used.items() if key[1] >> 48 != calibrating and key[2] < FRESH})
    assert 0 < len(once) < len(used)
    assert max(once.values()) == 1, f"{once.most_common(1)} is used more than once"


def test_domains_have_noise_of_their_own() -> None:
    """Purposes and their numbers differ in all draws; a number that does not fit is refused."""
    f = Potentials(np.zeros((200, 2)))
    domains = [Domain(purpose, number) for purpose in Purpose for number in (0, 1, 4095)]
    draws = [gumbel_noise(f, 1, domain=domain).ravel() for domain in domains]
    assert len({domain.code for domain in domains}) == len(domains)
    assert len(np.unique(np.concatenate(draws))) == sum(map(len, draws))
    with pytest.raises(ValueError, match="number must be from 0 to 4095"):
        Domain(Purpose.TRAINING, 4096)
