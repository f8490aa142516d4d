"""Labels that -inf in the unary potentials forbids: never taken, whatever is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import perturbmap as pm
from perturbmap import BinaryGraph, BruteForce, Chain, FromSolver, Graph, Matching, Potentials, Structure
from perturbmap.inference import Converging, converging, particles
from perturbmap.potentials import Labels
from perturbmap.testing.instances import a_labelling

from .instances import FORBIDDING, Kind

every_kind = pytest.mark.parametrize("kind", FORBIDDING, ids=lambda kind: repr(kind.structure))


def grid(height: int, width: int, n_labels: int, rng: np.random.Generator, *, attractive: bool = True) -> Potentials:
    """A grid of which a third of the labels are forbidden, one at least being left to each site."""
    edges = pm.grid_edges(height, width)
    unary = rng.normal(size=(height * width, n_labels))
    strength = rng.exponential(0.5, len(edges)) if attractive else rng.normal(size=len(edges))
    forbidden = rng.random(unary.shape) < 1 / 3
    forbidden[np.arange(len(unary)), rng.integers(0, n_labels, len(unary))] = False
    return Potentials(np.where(forbidden, -np.inf, unary), strength[:, None, None] * np.eye(n_labels), edges)


def has_none(f: Potentials, labels: Labels) -> bool:
    """Whether no labelling, ``(..., n_sites)``, has a label that is forbidden."""
    return bool(np.isfinite(f.unary[np.arange(f.n_sites), labels]).all())


@every_kind
@pytest.mark.parametrize("seed", range(2))
def test_a_structure_answers_as_its_definition_does(kind: Kind, seed: int) -> None:
    """Values, bounds, pins, moments, masks, batches, copies, threads and sums, compared with enumeration."""
    pm.testing.check_structure(
        kind.structure, kind.make, kind.definition, sizes=kind.sizes, n_repeats=6, seed=seed, tolerance=1e-11
    )


@every_kind
@pytest.mark.parametrize(
    "objective",
    [pm.LogLikelihood(), pm.MarginalLogLikelihood(pm.BalancedHamming()), pm.StructuredHinge()],
    ids=repr,
)
def test_an_objective_keeps_to_its_contract(objective: pm.Objective, kind: Kind) -> None:
    """Values, and gradients against finite differences, which are zero at forbidden labels."""
    pm.testing.check_objective(objective, kind.structure, kind.make, kind.definition, sizes=kind.sizes, n_repeats=2)


@every_kind
@pytest.mark.parametrize("method", [pm.PINNED, pm.INTEGRATED, pm.COUNTED], ids=repr)
def test_a_marginal_method_keeps_to_its_contract(method: pm.MarginalMethod, kind: Kind) -> None:
    """Probabilities, and their gradient where they are no counts."""
    pm.testing.check_marginal_method(
        method, kind.structure, kind.make, kind.definition, sizes=kind.sizes, is_differentiable=method != pm.COUNTED
    )


@pytest.mark.parametrize(("structure", "n_labels"), [(BinaryGraph(), 2), (Graph(), 2), (Graph(), 4)], ids=repr)
def test_inference_never_takes_what_is_forbidden(structure: Structure, n_labels: int) -> None:
    """Maxima, pins, samples and marginals; the bound on log Z is above it, and its pieces agree with enumeration."""
    f = grid(3, 4, n_labels, np.random.default_rng(0), attractive=n_labels == 2)
    forbidden = np.isneginf(f.unary)
    assert has_none(f, structure.argmax(f))
    np.testing.assert_array_equal(np.isneginf(structure.pinned(f).values), forbidden)
    exact_z, exact = BruteForce(max_labellings=4**12).log_partition(f) if n_labels == 2 else (None, None)
    for method in (pm.PINNED, pm.INTEGRATED, pm.COUNTED, pm.CONVERGING):
        q = pm.marginals(structure, f, method=method, n_perturbations=20, rng=0)
        assert (q.mean[forbidden] == 0).all()
        assert (q.standard_error[forbidden] == 0).all()
        np.testing.assert_allclose(q.mean.sum(axis=1), 1.0)
        if method == pm.CONVERGING and exact is not None:
            np.testing.assert_allclose(q.mean, exact.unary, atol=1e-10)
    for sampled in (pm.sample(structure, f, 50, rng=0), pm.sample(structure, f, 50, method=pm.CONVERGING, rng=0)):
        assert has_none(f, sampled)
    bound = pm.log_partition_bound(structure, f, n_perturbations=100, rng=0)
    found = pm.log_partition(structure, f, rng=0)
    assert bound.mean[0] > found.estimate.mean[0] - 4 * bound.standard_error[0]
    if exact_z is not None:
        np.testing.assert_allclose(found.estimate.mean, exact_z, atol=1e-10)


@pytest.mark.parametrize(("structure", "n_labels"), [(BinaryGraph(), 2), (Graph(), 3)], ids=repr)
def test_particles_and_chains_converge(structure: Structure, n_labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without exact sums, marginals and log Z are within four standard errors of enumeration."""
    monkeypatch.setattr(converging, "exact_answers", lambda structure, f, given: [None] * len(f))
    monkeypatch.setattr(particles, "_SMALL_TABLE", 4)
    f = grid(3, 3, n_labels, np.random.default_rng(1))
    exact_z, exact = BruteForce().log_partition(f)
    q = pm.marginals(structure, f, method=Converging(16, 8), rng=0)
    forbidden = np.isneginf(f.unary)
    assert (q.mean[forbidden] == 0).all()
    assert (np.abs(q.mean - exact.unary) <= 4 * q.standard_error + 1e-3).all()
    found = pm.log_partition(structure, f, n_particles=16, n_groups=8, n_perturbations=40, rng=0)
    assert abs(found.estimate.mean[0] - exact_z[0]) <= 4 * found.estimate.standard_error[0] + 1e-3
    assert found.upper.mean[0] >= exact_z[0] - 4 * found.upper.standard_error[0]
    assert has_none(f, pm.sample(structure, f, 30, method=Converging(8, 4), rng=0))


def test_a_shaken_search_stays_with_what_is_allowed() -> None:
    """More effort gives random labels to sites, none of them forbidden."""
    f = grid(6, 6, 5, np.random.default_rng(2), attractive=False)
    once, often = Graph().maximise(f), Graph(effort=40).maximise(f)
    assert has_none(f, often[0])
    assert often[1][0] >= once[1][0]


def test_a_binary_label_that_is_forbidden_is_the_other_one_given() -> None:
    """Cuts, pins and moments of a large graph are those with the label given, but for its site's own pin."""
    rng = np.random.default_rng(3)
    edges = pm.grid_edges(20, 30)
    f = Potentials(rng.normal(size=(600, 2)), rng.exponential(2.0, len(edges))[:, None, None] * np.eye(2), edges)
    given = np.where(rng.random(600) < 0.2, rng.integers(0, 2, 600), -1)
    forbidding = np.where((given[:, None] >= 0) & (given[:, None] != [0, 1]), -np.inf, f.unary)
    expected, found = BinaryGraph().pinned(f, given=given), BinaryGraph().pinned(f.with_unary(forbidding))
    np.testing.assert_array_equal(found.free, expected.free)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-12)
    weights = np.where(np.isfinite(expected.values), rng.normal(size=(600, 2)), 0.0)
    np.testing.assert_allclose(found.moments(weights).unary, expected.moments(weights).unary, atol=1e-9)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: Potentials([[0.0, 1.0], [-np.inf, -np.inf]]), ValueError, "all labels of site 1 are forbidden"),
        (lambda: Potentials([[-np.inf, np.nan]]), ValueError, r"unary must be finite, but unary\[0, 1\] is nan"),
        (lambda: Potentials([[-np.inf, np.inf]]), ValueError, r"unary\[0, 1\] is inf"),
        (
            lambda: Potentials(np.zeros((2, 2)), [[0.0, -np.inf], [0.0, 0.0]]),
            ValueError,
            r"pairwise must be finite.*To forbid pairs of labels, use Chain\(allowed",
        ),
        (
            lambda: Graph().maximise(Potentials([[0.0, 1.0], [0.0, -np.inf]]), [-1, 1]),
            pm.InfeasibleError,
            r"given\[1\] is 1, but unary\[1, 1\] is -inf",
        ),
        (
            lambda: Matching().pinned(Potentials([[0.0, -np.inf, -np.inf]] * 2)),
            pm.InfeasibleError,
            "leave no matching of example 0",
        ),
        (
            lambda: FromSolver(lambda unary: np.zeros(2, dtype=int)).argmax(Potentials([[-np.inf, 0.0], [0.0, 0.0]])),
            pm.InfeasibleError,
            "without forbidden ones",
        ),
    ],
)
def test_what_leaves_no_labelling_is_named(ask: Callable[[], object], error: type[Exception], message: str) -> None:
    """A site without labels, a given label that is forbidden, no matching: none of them is answered."""
    with pytest.raises(error, match=message):
        ask()


@pytest.mark.parametrize("objective", [pm.LogLikelihood(), pm.MarginalLogLikelihood(), pm.ExactLogLikelihood()])
def test_a_target_that_is_forbidden_is_an_error(objective: pm.Objective) -> None:
    """Its likelihood would be minus infinity."""
    unary = torch.tensor([[[0.0, 1.0], [0.0, -torch.inf]]])
    with pytest.raises(pm.InfeasibleError, match=r"labels\[1\] is 1"):
        pm.nn.StructuredLoss(objective, Chain())(unary, torch.tensor([[0, 1]]), torch.eye(2))


@every_kind
def test_layers_have_no_gradient_where_labels_are_forbidden(kind: Kind) -> None:
    """Losses, marginals and best labellings of torch, of tensors with -inf in them."""
    rng = np.random.default_rng(4)
    n, k = max(kind.sizes)
    f = kind.make(rng, n, k, False)
    forbidden = np.isneginf(f.unary)
    unary = torch.tensor(f.unary[None], requires_grad=True)
    edges: dict[str, Any] = {} if not f.n_edges else {"pairwise": torch.tensor(f.tables[None]), "edges": [f.edges]}
    y = torch.tensor(a_labelling(rng, kind.definition, f)[None].astype(np.int64))
    q = pm.nn.Marginals(kind.structure, seed=0)(unary, **edges)
    loss = pm.nn.StructuredLoss(structure=kind.structure, seed=0)(unary, y, **edges)
    for value in ((q * torch.tensor(rng.normal(size=(1, n, k)))).sum(), loss):
        (gradient,) = torch.autograd.grad(value, unary)
        assert torch.isfinite(gradient).all()
        assert (gradient[0].numpy()[forbidden] == 0).all()
        assert gradient.abs().sum() > 0 or forbidden.sum() == forbidden.size - n
    assert (q[0].detach().numpy()[forbidden] == 0).all()
    assert has_none(f, pm.nn.BestLabelling(kind.structure)(unary, **edges)[0].numpy())
