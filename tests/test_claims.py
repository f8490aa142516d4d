"""The paper's claims, and ours, as tests. Monte-Carlo claims allow four standard errors; seeds are fixed."""

import numpy as np
import pytest
from hypothesis import given as sampled

from perturbmap import (
    COUNTED,
    INTEGRATED,
    PINNED,
    BinaryGraph,
    BruteForce,
    Chain,
    FromSolver,
    Matching,
    Potentials,
    Structure,
    Tree,
    decode,
    grid_edges,
    gumbel_noise,
    log_partition_bound,
    marginals,
    perturb,
    potts,
    sample,
)
from perturbmap.inference import MarginalMethod
from perturbmap.inference.samples import SAMPLES
from perturbmap.potentials import Floats, Labels

from .instances import STRUCTURES, Instance, definition, example, instances, n_labels_of

every_structure = pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
every_method = pytest.mark.parametrize("method", [COUNTED, INTEGRATED, PINNED], ids=repr)


def attractive_grid(rng: np.random.Generator, side: int = 3, coupling: float = 1.0) -> Potentials:
    edges = grid_edges(side, side)
    unary = np.stack([np.zeros(side * side), rng.normal(0, 1, side * side)], axis=1)
    return Potentials(unary, potts(rng.uniform(0, 2 * coupling, len(edges))), edges)


def small(structure: Structure, rng: np.random.Generator, n: int = 10) -> Potentials:
    k = n_labels_of(structure, 4)
    return Potentials.batch([example(structure, 4, k, rng, has_ties=False) for _ in range(n)])


def separable(rng: np.random.Generator) -> Potentials:
    return Potentials(rng.normal(0, 1.5, (12, 2)))


@every_structure
def test_the_gumbel_bound_is_above_the_log_partition(structure: Structure, rng: np.random.Generator) -> None:
    """A <= A_G (Proposition 1)."""
    f = small(structure, rng)
    bound = log_partition_bound(structure, f, n_perturbations=2000, rng=1)
    exact, _ = definition(structure).log_partition(f)
    assert (bound.mean + 4 * bound.standard_error >= exact).all()


@pytest.mark.parametrize("structure", [Chain(), Tree(), BinaryGraph(), BruteForce()], ids=repr)
def test_the_gumbel_bound_is_tight_for_separable_potentials(structure: Structure, rng: np.random.Generator) -> None:
    """With no pairwise term A_G = A: the noise has the mean it should have."""
    f = separable(rng)
    n = 200 if isinstance(structure, BruteForce) else 4000
    bound = log_partition_bound(structure, f, n_perturbations=n, rng=2)
    exact = np.logaddexp.reduce(f.unary, axis=1).sum()
    assert abs(bound.mean[0] - exact) < 4 * bound.standard_error[0]


@every_structure
def test_the_bound_given_labels_is_above_the_exact_one(structure: Structure, rng: np.random.Generator) -> None:
    """B <= B_G, and a fully given example has its own score, without error."""
    f = small(structure, rng)
    partial = np.tile([0, -1, -1, -1], len(f))
    bound = log_partition_bound(structure, f, given=partial, n_perturbations=2000, rng=3)
    exact, _ = definition(structure).log_partition(f, given=partial)
    assert (bound.mean + 4 * bound.standard_error >= exact).all()
    y = structure.argmax(f)
    full = log_partition_bound(structure, f, given=y, n_perturbations=3, rng=3)
    np.testing.assert_allclose(full.mean, f.score(y), rtol=1e-12)
    np.testing.assert_allclose(full.standard_error, 0, atol=1e-12)


@every_structure
def test_the_gradient_of_the_bound_is_that_of_the_maximiser(structure: Structure, rng: np.random.Generator) -> None:
    """Under common noise, finite differences of the bound are the mean indicators of the maximisers."""
    f = small(structure, rng, n=1)
    noise = gumbel_noise(f, seed=4, n_draws=400)
    direction = rng.normal(size=f.unary.shape)
    step = 1e-6

    def bound(t: float) -> float:
        return float(structure.maximise(perturb(f.with_unary(f.unary + t * direction), noise))[1].mean())

    labels = structure.argmax(perturb(f, noise))
    slope = direction[np.arange(f.n_sites), labels].sum(axis=1).mean()
    # The bound is piecewise linear: only draws whose maximiser changes within the step could differ.
    assert (bound(step) - bound(-step)) / (2 * step) == pytest.approx(slope, abs=1e-6)


@sampled(instances(BinaryGraph()))
def test_pinned_cuts_are_monotone_and_nested(case: Instance) -> None:
    """Pinning a 0 to 1 turns only further 0s to 1s, and S_e lies inside S_d for every e in S_d."""
    f = case.f[0]
    structure = BinaryGraph()
    pinned = structure.pinned(f)
    flipped = np.zeros((f.n_sites, f.n_sites), dtype=bool)
    for d in range(f.n_sites):
        weights = np.zeros(f.unary.shape)
        weights[d, 1 - pinned.free[d]] = 1
        y = pinned.moments(weights).unary.argmax(axis=1)
        flipped[d] = y != pinned.free
        assert flipped[d, d]
        assert (pinned.free[flipped[d]] == pinned.free[d]).all()
    for d in range(f.n_sites):
        for e in np.flatnonzero(flipped[d]):
            assert not (flipped[e] & ~flipped[d]).any()


def test_the_gumbel_reduction_changes_nothing_and_skips_satisfied_pins(rng: np.random.Generator) -> None:
    """A pin that y_A satisfies is y_A: the solver is called once, and once more for each other pin."""
    calls = 0

    def solver(unary: Floats) -> Labels:
        nonlocal calls
        calls += 1
        return np.asarray(unary.argmax(axis=1), dtype=np.int32)

    f = Potentials(rng.normal(size=(5, 3)))
    pinned = FromSolver(solver).pinned(f)
    assert calls == 1 + 5 * 2
    expected = BruteForce().pinned(f)
    np.testing.assert_allclose(pinned.values, expected.values)
    weights = rng.normal(size=f.unary.shape)
    np.testing.assert_allclose(pinned.moments(weights).unary, expected.moments(weights).unary)


@every_structure
def test_integrating_out_a_sites_noise_keeps_every_mean_and_lowers_the_variance(
    structure: Structure, rng: np.random.Generator
) -> None:
    """A_G = E logsumexp_k B'[d, k] for every d, and E softmax B' is the counted marginal."""
    f = small(structure, rng, n=1)
    noise = gumbel_noise(f, seed=5, n_draws=4000)
    pinned = structure.pinned(perturb(f, noise))
    without = pinned.values - noise
    best = pinned.values.max(axis=(1, 2))
    smooth = np.logaddexp.reduce(without, axis=2)
    difference = smooth - best[:, None]
    error = difference.std(axis=0) / np.sqrt(len(noise))
    assert (np.abs(difference.mean(axis=0)) < 4 * error + 1e-12).all()

    counted = np.arange(f.n_labels) == pinned.free[..., None]
    integrated = np.exp(without - smooth[..., None])
    difference = integrated - counted
    error = difference.std(axis=0) / np.sqrt(len(noise))
    assert (np.abs(difference.mean(axis=0)) < 4 * error + 1e-12).all()
    assert (integrated.var(axis=0) <= counted.var(axis=0) + 1e-12).all()
    assert (integrated.var(axis=0).sum()) < 0.5 * counted.var(axis=0).sum()


@every_method
def test_marginals_are_right_for_separable_potentials(method: MarginalMethod, rng: np.random.Generator) -> None:
    """Without edges, all three methods estimate the exact marginals, within four standard errors."""
    f = separable(rng)
    exact = np.exp(f.unary - np.logaddexp.reduce(f.unary, axis=1)[:, None])
    estimate = marginals(BinaryGraph(), f, method=method, n_perturbations=2000, rng=6)
    assert (np.abs(estimate.mean - exact) <= 4 * estimate.standard_error + 1e-9).all()
    np.testing.assert_allclose(estimate.mean.sum(axis=1), 1)


def test_pinned_marginals_are_exact_after_one_perturbation_of_separable_potentials(
    rng: np.random.Generator,
) -> None:
    """B'(d, k) is then unary[d, k] plus what does not depend on k."""
    f = separable(rng)
    exact = np.exp(f.unary - np.logaddexp.reduce(f.unary, axis=1)[:, None])
    estimate = marginals(BinaryGraph(), f, method=PINNED, n_perturbations=1, rng=7)
    np.testing.assert_allclose(estimate.mean, exact, atol=1e-12)
    assert np.isnan(estimate.standard_error).all()


def test_pinned_marginals_are_closer_than_counting_on_attractive_grids(rng: np.random.Generator) -> None:
    """Mean absolute error over 60 random 3x3 grids; the mean difference is many standard errors from zero."""
    differences = []
    for i in range(60):
        f = attractive_grid(rng, coupling=0.75)
        exact = BruteForce().log_partition(f)[1].unary
        counted, pinned = (
            np.abs(marginals(BinaryGraph(), f, method=m, n_perturbations=200, rng=i).mean - exact).mean()
            for m in (COUNTED, PINNED)
        )
        differences.append(counted - pinned)
    mean, error = np.mean(differences), np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert mean > 4 * error


@every_method
@every_structure
def test_standard_errors_are_those_of_repeated_estimates(
    structure: Structure, method: MarginalMethod, rng: np.random.Generator
) -> None:
    """Estimates under different seeds spread as their standard errors say."""
    f = small(structure, rng, n=1)
    runs = [marginals(structure, f, method=method, n_perturbations=128, rng=seed) for seed in range(200)]
    spread = np.std([r.mean for r in runs], axis=0, ddof=1)
    claimed = np.sqrt(np.mean([r.standard_error**2 for r in runs], axis=0))
    visible = spread > 1e-3
    # 200 repetitions know a standard deviation to 5 %; four of those.
    np.testing.assert_allclose(claimed[visible], spread[visible], rtol=0.2)


@every_structure
def test_conditional_marginals_respect_what_is_given(structure: Structure, rng: np.random.Generator) -> None:
    """A given site has probability one, without error; the others are near the exact conditional ones."""
    f = small(structure, rng, n=2)
    known = np.tile([1, -1, -1, -1], 2)
    estimate = marginals(structure, f, given=known, n_perturbations=500, rng=8)
    np.testing.assert_array_equal(estimate.mean[known >= 0], np.arange(f.n_labels) == np.full((2, 1), 1))
    np.testing.assert_array_equal(estimate.standard_error[known >= 0], 0)
    exact = definition(structure).log_partition(f, given=known)[1].unary
    assert np.abs(estimate.mean - exact).mean() < 0.05


def test_samples_are_counted_by_the_counted_marginals(rng: np.random.Generator) -> None:
    """Samples and COUNTED marginals under the same perturbations; by default they have other ones."""
    f = Potentials.batch([attractive_grid(rng), attractive_grid(rng, side=2)])
    labels = sample(BinaryGraph(), f, 300, rng=9)
    estimate = marginals(BinaryGraph(), f, method=COUNTED, n_perturbations=300, rng=9, domain=SAMPLES)
    np.testing.assert_allclose(estimate.mean[:, 1], labels.mean(axis=0))
    other = marginals(BinaryGraph(), f, method=COUNTED, n_perturbations=300, rng=9)
    assert (other.mean[:, 1] != labels.mean(axis=0)).any()
    assert sample(Matching(), Potentials(rng.normal(size=(3, 3))), rng=1).shape == (1, 3)


def test_decoding_minimises_the_expected_weighted_loss(rng: np.random.Generator) -> None:
    """No labelling has a smaller expected loss sum_d theta_d(y_d) [y_d != k] than the decoded one."""
    q = rng.dirichlet(np.ones(3), size=6)
    theta = rng.uniform(0, 2, (6, 3))
    losses = (q * theta).sum(axis=1, keepdims=True) - q * theta
    np.testing.assert_array_equal(decode(q, theta), losses.argmin(axis=1))
    np.testing.assert_array_equal(decode(q), q.argmax(axis=1))
    np.testing.assert_array_equal(decode(q, theta[:1]), decode(q, theta[0]))
