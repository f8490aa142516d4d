"""The torch modules: gradients, layouts, the same numbers as the NumPy estimator, states, threads."""

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor

import perturbmap as pm
from perturbmap import nn
from perturbmap.data import Dataset
from perturbmap.noise import Domain, Purpose
from perturbmap.solvers import Problem
from perturbmap.testing.instances import a_labelling
from tests.instances import STRUCTURES, definition, example, n_labels_of

OBJECTIVES: list[pm.Objective] = [
    pm.MarginalLogLikelihood(),
    pm.MarginalLogLikelihood(pm.WeightedHamming()),
    pm.MarginalLogLikelihood(integrate_noise=False),
    pm.LogLikelihood(),
    pm.StructuredHinge(),
    pm.ExactLogLikelihood(),
    pm.ExactMarginalLogLikelihood(),
]
EXACT = (pm.ExactLogLikelihood, pm.ExactMarginalLogLikelihood)
METHODS = [pm.PINNED, pm.INTEGRATED, pm.EXACT]


@pytest.fixture(autouse=True)
def _generator() -> None:
    torch.manual_seed(0)


def ragged(structure: pm.Structure, rng: np.random.Generator, sizes: tuple[int, ...] = (3, 1, 4)) -> tuple[Any, ...]:
    """Potentials of a few examples, as tensors that want a gradient, and labels that the structure allows."""
    k = n_labels_of(structure, 5 if isinstance(structure, pm.Matching) else 3)
    parts = [example(structure, n, k, rng, has_ties=False) for n in sizes]
    unary = [torch.tensor(f.unary, requires_grad=True) for f in parts]
    labels = [torch.tensor(a_labelling(rng, definition(structure), f)) for f in parts]
    if isinstance(structure, pm.Matching):
        return unary, labels, None, None
    attraction = 0.1 * np.eye(k)  # a graph that is cut must bear a finite difference
    pairwise = [torch.tensor(f.tables + attraction, requires_grad=True) for f in parts]
    return unary, labels, pairwise, None if isinstance(structure, pm.Chain) else [f.edges for f in parts]


def gradient(run: Any, *inputs: Any) -> bool:
    """Torch's own check against finite differences, in double precision."""
    flat = tuple(t for part in inputs if part is not None for t in part if t.numel())
    return torch.autograd.gradcheck(lambda *_: run(), flat, eps=1e-7, atol=1e-5, check_batched_grad=False)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_the_gradient_of_every_loss_matches_finite_differences(
    structure: pm.Structure, objective: pm.Objective, rng: np.random.Generator
) -> None:
    """Under common noise, with respect to unary and pairwise potentials, for examples of uneven weight."""
    if isinstance(objective, (pm.ExactLogLikelihood, pm.ExactMarginalLogLikelihood)) and not isinstance(
        structure, pm.SummableStructure
    ):
        with pytest.raises(TypeError, match="sums over all labellings"):
            nn.StructuredLoss(objective, structure)
        return
    unary, labels, pairwise, edges = ragged(structure, rng)
    loss = nn.StructuredLoss(objective, structure, n_perturbations=3, reduction="none", seed=1).eval()
    weights = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)

    def run() -> Tensor:
        value: Tensor = weights @ loss(unary, labels, pairwise, edges)
        return value

    assert gradient(run, unary, pairwise)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_the_gradient_of_marginals_matches_finite_differences(
    structure: pm.Structure, method: pm.MarginalMethod, rng: np.random.Generator
) -> None:
    """Under common noise, through every entry of the marginals."""
    if method is pm.EXACT and not isinstance(structure, pm.SummableStructure):
        with pytest.raises(TypeError, match="use PINNED"):
            nn.Marginals(structure, method)
        return
    unary, _, pairwise, edges = ragged(structure, rng)
    layer = nn.Marginals(structure, method, n_perturbations=4, seed=2).eval()
    assert gradient(lambda: torch.cat(layer(unary, pairwise, edges)), unary, pairwise)


def test_counted_marginals_have_the_gradient_of_their_mean(rng: np.random.Generator) -> None:
    """That of INTEGRATED under the same noise, bit by bit; and their values are those of perturbmap.marginals."""
    unary, _, pairwise, _ = ragged(pm.Chain(), rng)
    gradients = []
    for method in (pm.COUNTED, pm.INTEGRATED):
        layer = nn.Marginals(pm.Chain(), method, n_perturbations=50, seed=3)
        q = torch.cat(layer(unary, pairwise))
        f = pm.Potentials.batch([pm.Potentials(u.detach(), p.detach()) for u, p in zip(unary, pairwise, strict=True)])
        domain = Domain(Purpose.LAYER_TRAINING, layer.kind)
        expected = pm.marginals(pm.Chain(), f, method=method, n_perturbations=50, rng=3, domain=domain).mean
        np.testing.assert_allclose(q.detach().numpy(), expected, atol=1e-12)
        gradients.append(torch.autograd.grad(q[:, 0].sum(), [*unary, *pairwise]))
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("is_shared", [True, False], ids=["one table", "a table an edge"])
def test_padded_and_ragged_batches_agree(is_shared: bool, rng: np.random.Generator) -> None:
    """In losses, marginals, labels and gradients; what is padded gets none, whatever stands there."""
    counts, k, width = [3, 5, 1, 4], 3, 6
    mask = torch.arange(width) < torch.tensor(counts)[:, None]
    unary = torch.tensor(rng.normal(size=(4, width, k)), requires_grad=True)
    shape = (k, k) if is_shared else (4, width - 1, k, k)
    pairwise = torch.tensor(rng.normal(size=shape), requires_grad=True)
    labels = torch.tensor(rng.integers(0, k, (4, width)))
    labels[~mask] = -100  # not looked at
    list_of = [unary[n, :c] for n, c in enumerate(counts)]
    tables = pairwise if is_shared else [pairwise[n, : c - 1] for n, c in enumerate(counts)]
    loss, marginals, best = nn.StructuredLoss(seed=0).eval(), nn.Marginals(seed=0).eval(), nn.BestLabelling()
    padded = loss(unary, labels, pairwise, mask=mask)
    apart = loss(list_of, [labels[n, :c] for n, c in enumerate(counts)], tables)
    assert padded.item() == apart.item()
    for one, other in zip(
        torch.autograd.grad(padded, [unary, pairwise]), torch.autograd.grad(apart, [unary, pairwise]), strict=True
    ):
        assert torch.equal(one, other)
    assert (torch.autograd.grad(loss(unary, labels, pairwise, mask=mask), unary)[0][~mask] == 0).all()
    q = marginals(unary, pairwise, mask=mask)
    assert torch.equal(q[mask], torch.cat(marginals(list_of, tables)))
    assert (q[~mask] == 0).all()
    y = best(unary, pairwise, mask=mask)
    assert torch.equal(y[mask], torch.cat(best(list_of, tables)))
    assert (y[~mask] == -1).all()


def test_one_graph_for_all_examples_is_that_graph_for_each(rng: np.random.Generator) -> None:
    """An array of edges stands for a list that repeats it."""
    unary, labels = torch.tensor(rng.normal(size=(3, 12, 2))), torch.tensor(rng.integers(0, 2, (3, 12)))
    edges = pm.grid_edges(3, 4)
    tables = torch.tensor(pm.potts(rng.uniform(0, 1, (3, len(edges)))))
    loss = nn.StructuredLoss(structure=pm.BinaryGraph(), seed=0).eval()
    apart = loss(list(unary), list(labels), list(tables), [edges] * 3)
    assert loss(unary, labels, tables, torch.tensor(edges)).item() == apart.item()


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_a_linear_network_has_the_numbers_of_the_estimator(objective: pm.Objective, rng: np.random.Generator) -> None:
    """Value and gradient of a linear layer with a chain on top are those of SequenceModel's own weights."""
    X = [rng.normal(size=(n, 4)) for n in (5, 2, 7)]
    y = [rng.integers(0, 3, len(x)) for x in X]
    data = Dataset.from_examples(X)
    targets = objective.targets(pm.SiteLabels.of(np.concatenate(y), 3, data.layout))
    domain = Domain(Purpose.LAYER_TRAINING, nn.StructuredLoss.kind)
    problem = Problem(data, targets, 3, pm.SequenceModel(), pm.Chain(), objective, 1e-3, seed=7, domain=domain)
    w = rng.normal(size=problem.n_weights)
    value, expected = problem.value_and_grad(w, draw=0)

    linear = torch.nn.Linear(4, 3, dtype=torch.float64)
    transition, first, last = (torch.nn.Parameter(torch.tensor(part)) for part in np.split(w[15:], [9, 12]))
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(w[:12].reshape(4, 3).T))
        linear.bias.copy_(torch.tensor(w[12:15]))
    unary = [linear(torch.tensor(x)) for x in X]
    ends = [torch.nn.functional.one_hot(torch.tensor([0, len(x) - 1]), len(x)).double() for x in X]
    unary = [u + e[0][:, None] * first + e[1][:, None] * last for u, e in zip(unary, ends, strict=True)]
    loss = nn.StructuredLoss(objective, pm.Chain(), seed=7)(unary, y, transition.reshape(3, 3))
    loss.backward()
    assert loss.item() == pytest.approx(-value, rel=1e-12)
    weights = [linear.weight, linear.bias, transition, first, last]
    found = [np.array([]) if p.grad is None else -p.grad.numpy().T.ravel() for p in weights]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-12)


@pytest.mark.parametrize("objective", [o for o in OBJECTIVES if not isinstance(o, EXACT)], ids=repr)
@pytest.mark.parametrize("kind", ["potts", "directed"])
def test_a_network_on_a_graph_of_four_labels_has_the_numbers_of_the_estimator(
    objective: pm.Objective, kind: Any, rng: np.random.Generator
) -> None:
    """Value and gradient of a linear layer with `Graph` on top are those of GraphModel; marginals, those of NumPy."""
    k, edges = 4, pm.grid_edges(3, 3)
    X = [pm.Example(rng.normal(size=(9, 2)), edges, rng.uniform(size=(len(edges), 1))) for _ in range(3)]
    y = [rng.integers(0, k, 9) for _ in X]
    data, model = Dataset.from_examples(X), pm.GraphModel(kind)
    targets = objective.targets(pm.SiteLabels.of(np.concatenate(y), k, data.layout))
    domain = Domain(Purpose.LAYER_TRAINING, nn.StructuredLoss.kind)
    problem = Problem(data, targets, k, model, pm.Graph(), objective, 1e-3, seed=7, domain=domain)
    w = np.abs(rng.normal(size=problem.n_weights))
    value, expected = problem.value_and_grad(w, draw=0)

    v = torch.tensor(w, requires_grad=True)
    of_sites, bias, of_edges = v[: 2 * k].reshape(k, 2).T, v[2 * k : 3 * k], v[3 * k :]
    table = of_edges[0] * (torch.eye(k).double() - 1) if kind == "potts" else of_edges.reshape(k, k)
    unary = [torch.tensor(x.features) @ of_sites + bias for x in X]
    pairwise = [torch.tensor(x.edge_features)[..., None] * table for x in X]
    loss = nn.StructuredLoss(objective, pm.Graph(), seed=7)(unary, y, pairwise, [edges] * 3)
    loss.backward()
    assert loss.item() == pytest.approx(-value, rel=1e-12)
    assert v.grad is not None
    np.testing.assert_allclose(-v.grad.numpy(), expected, atol=1e-12)
    f = pm.Potentials.batch(
        [pm.Potentials(u.detach(), p.detach(), edges) for u, p in zip(unary, pairwise, strict=True)]
    )
    best = torch.cat(nn.BestLabelling(pm.Graph())(unary, pairwise, [edges] * 3))
    np.testing.assert_array_equal(best.numpy(), pm.Graph().argmax(f))
    q = torch.cat(nn.Marginals(pm.Graph(), seed=3)(unary, pairwise, [edges] * 3)).detach().numpy()
    layer = Domain(Purpose.LAYER_TRAINING, nn.Marginals.kind)
    marginals = pm.marginals(pm.Graph(), f, n_perturbations=16, rng=3, domain=layer).mean
    np.testing.assert_allclose(q, marginals, atol=1e-12)


def test_a_linear_network_learns_the_weights_of_the_estimator(rng: np.random.Generator) -> None:
    """At the optimum of the exact likelihood with the same penalty, which is unique."""
    X = [rng.normal(size=(n, 3)) for n in rng.integers(2, 8, 40).tolist()]
    y = [(x[:, 0] + 0.5 * rng.normal(size=len(x)) > 0).astype(int) for x in X]
    solver = pm.LBFGS(tolerance=1e-12)
    crf = pm.StructuredPredictor(objective=pm.ExactLogLikelihood(), l2=0.1, solver=solver).fit(X, y)
    w = torch.zeros(len(crf.coef_), dtype=torch.float64, requires_grad=True)
    loss = nn.StructuredLoss(pm.ExactLogLikelihood())
    optimiser = torch.optim.LBFGS([w], max_iter=200, tolerance_change=0, line_search_fn="strong_wolfe")

    def penalised() -> Tensor:
        optimiser.zero_grad()
        unary = [torch.tensor(x) @ w[:6].reshape(3, 2) + w[6:8] for x in X]
        for u in unary:
            u[0] += w[12:14]
            u[-1] += w[14:16]
        value: Tensor = loss(unary, y, w[8:12].reshape(2, 2)) + 0.05 * w @ w
        value.backward()
        return value

    optimiser.step(penalised)
    np.testing.assert_allclose(w.detach().numpy(), crf.coef_, atol=1e-5)


def test_soft_labels_unknown_sites_and_sizes_count_as_in_the_library(rng: np.random.Generator) -> None:
    """One-hot probabilities are labels; an unknown site adds nothing; a size multiplies what its site adds."""
    unary, labels = torch.tensor(rng.normal(size=(1, 4, 3))), torch.tensor([[0, 2, -1, 1]])
    loss = nn.StructuredLoss(pm.MarginalLogLikelihood(pm.WeightedHamming())).eval()
    alone = [-torch.log_softmax(unary[0, d], 0)[y] if y >= 0 else torch.tensor(0.0) for d, y in enumerate(labels[0])]
    assert loss(unary, labels).item() == pytest.approx(float(sum(alone)))  # no edges: the likelihood of each site
    soft = torch.nn.functional.one_hot(labels.clamp(min=0), 3).double()
    sizes = torch.tensor([[1.0, 3.0, 0.0, 2.0]])
    expected = float(alone[0] + 3 * alone[1] + 2 * alone[3])
    assert loss(unary, soft, sizes=sizes).item() == pytest.approx(expected)
    assert loss(unary, labels, sizes=sizes).item() == pytest.approx(expected)
    with pytest.raises(ValueError, match="learns from labels"):
        nn.StructuredLoss(pm.LogLikelihood())(unary, soft)
    for dtype in (torch.float16, torch.bfloat16):  # a teacher's, which sum to 1 in their own precision only
        taught = torch.softmax(unary, -1)
        assert loss(unary, taught.to(dtype)).item() == pytest.approx(loss(unary, taught).item(), rel=0.02)


def test_noise_is_fresh_in_training_and_the_same_in_evaluation(rng: np.random.Generator) -> None:
    """And torch.manual_seed decides it where no seed is given."""
    unary, labels = torch.tensor(rng.normal(size=(2, 5, 3))), torch.tensor(rng.integers(0, 3, (2, 5)))
    table = torch.tensor(rng.normal(size=(3, 3)))

    def values() -> list[float]:
        torch.manual_seed(5)
        loss = nn.StructuredLoss()
        training = [loss(unary, labels, table).item() for _ in range(2)]
        loss.eval()
        return training + [loss(unary, labels, table).item() for _ in range(2)]

    first, second, third, fourth = values()
    assert first != second
    assert third == fourth
    assert values() == [first, second, third, fourth]


@pytest.mark.parametrize("whole", [False, True], ids=["state_dict", "whole module"])
def test_a_network_survives_torch_save(whole: bool, rng: np.random.Generator) -> None:
    """The noise goes on where it was, so that a training that is resumed is the same."""
    unary, labels = torch.tensor(rng.normal(size=(2, 5, 3))), torch.tensor(rng.integers(0, 3, (2, 5)))
    table = torch.tensor(rng.normal(size=(3, 3)))
    net = torch.nn.ModuleDict({"loss": nn.StructuredLoss(pm.MarginalLogLikelihood(pm.WeightedHamming([1, 2, 3])))})
    net["loss"](unary, labels, table)
    file = io.BytesIO()
    torch.save(net if whole else net.state_dict(), file)
    expected = [net["loss"](unary, labels, table).item() for _ in range(2)]
    file.seek(0)
    if whole:
        other = torch.load(file, weights_only=False)
    else:
        other = copy.deepcopy(net)
        other["loss"](unary, labels, table)  # to be undone
        other.load_state_dict(torch.load(file, weights_only=True))
    assert [other["loss"](unary, labels, table).item() for _ in range(2)] == expected


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_the_core_takes_as_many_threads_as_torch(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Unless the structure says how many; and the bits do not depend on it."""
    unary = torch.tensor(rng.normal(size=(64, 30, 4)), requires_grad=True)
    labels, table = torch.tensor(rng.integers(0, 4, (64, 30))), torch.tensor(rng.normal(size=(4, 4)))
    asked: list[int] = []
    pin = pm.structures.compiled.CompiledStructure.pin

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(self.n_threads)
        return pin(self, *args, **kwargs)

    monkeypatch.setattr(pm.structures.compiled.CompiledStructure, "pin", spy)
    own = pm.Chain().with_threads(3)
    results = []
    for n, structure in ((1, pm.Chain()), (2, pm.Chain()), (2, own)):
        torch.set_num_threads(n)
        loss = nn.StructuredLoss(structure=structure, seed=0)(unary, labels, table)
        results.append((loss.item(), torch.autograd.grad(loss, unary)[0]))
    assert asked == [1, 2, 3]
    assert len({value for value, _ in results}) == 1
    assert all(torch.equal(results[0][1], g) for _, g in results)


class _OnDemand(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Marginals computed where they are asked for, and the number of threads there."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        unary = torch.full((1, 40, 3), float(index), dtype=torch.float64)
        return nn.Marginals(seed=index)(unary, torch.eye(3, dtype=torch.float64))[0], torch.get_num_threads()


def test_the_layer_works_inside_the_workers_of_a_data_loader() -> None:
    """Forked after the core has run with threads in the parent; there torch, and so the core, has one."""
    here = [_OnDemand()[i][0] for i in range(6)]
    there = list(torch.utils.data.DataLoader(_OnDemand(), batch_size=None, num_workers=2))
    assert [n for _, n in there] == [1] * 6
    for one, (other, _) in zip(here, there, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_any_floating_dtype_comes_back_as_it_went(dtype: torch.dtype, rng: np.random.Generator) -> None:
    """Gradients and marginals have the dtype of what they belong to; a loss, being a sum, has float32 at least."""
    unary = torch.tensor(rng.normal(size=(2, 3, 3)), dtype=dtype, requires_grad=True)
    table = torch.tensor(rng.normal(size=(3, 3)), dtype=torch.float32, requires_grad=True)
    loss = nn.StructuredLoss()(unary, torch.zeros(2, 3, dtype=torch.long), table)
    loss.backward()
    assert loss.dtype == torch.float32
    assert unary.grad is not None
    assert unary.grad.dtype == dtype
    assert table.grad is not None
    assert table.grad.dtype == torch.float32
    assert nn.Marginals()(unary, table).dtype == dtype


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_tensors_on_a_gpu_give_the_numbers_of_the_cpu(rng: np.random.Generator) -> None:
    """Loss, gradients, marginals and labels, on the device where the potentials are."""
    mask = torch.arange(6) < torch.tensor([6, 3, 5, 1])[:, None]
    results = []
    for device in ("cpu", "cuda"):
        generator = np.random.default_rng(0)
        unary = torch.tensor(generator.normal(size=(4, 6, 3)), device=device, requires_grad=True)
        table = torch.tensor(generator.normal(size=(3, 3)), device=device, requires_grad=True)
        labels = torch.tensor(generator.integers(0, 3, (4, 6)), device=device)
        there = mask.to(device)
        loss = nn.StructuredLoss(seed=0)(unary, labels, table, mask=there)
        loss.backward()
        q = nn.Marginals(seed=0)(unary, table, mask=there)
        y = nn.BestLabelling()(unary, table, mask=there)
        assert {t.device.type for t in (loss, unary.grad, table.grad, q, y) if t is not None} == {device}
        results.append([t.detach().cpu() for t in (loss, unary.grad, table.grad, q, y) if t is not None])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)  # chains are solved there, in another order


def test_the_second_derivative_is_refused(rng: np.random.Generator) -> None:
    """The gradient is piecewise constant in part: what torch would make of it would be wrong.

    Through what gives the potentials too, where there would be a number: that of a gradient held constant.
    """
    x = torch.tensor(rng.normal(size=(1, 3, 3)), requires_grad=True)
    weights, table = torch.eye(3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    weights.requires_grad_(), table.requires_grad_()
    loss = nn.StructuredLoss()(x @ weights, torch.zeros(1, 3, dtype=torch.long), table)
    for value in (loss, loss**2):
        for wanted in (x, table):
            (first,) = torch.autograd.grad(value, wanted, create_graph=True)
            with pytest.raises(RuntimeError, match="no second derivatives"):
                first.sum().backward(retain_graph=True)


@pytest.mark.parametrize("method", [*METHODS, pm.COUNTED], ids=repr)
def test_a_gradient_is_that_of_the_call_whatever_is_changed_in_place_after_it(
    method: pm.MarginalMethod, rng: np.random.Generator
) -> None:
    """The potentials, the table, the result: the core's numbers are its own, in double precision too."""
    values, pairs = torch.tensor(rng.normal(size=(2, 4, 3))), torch.tensor(rng.normal(size=(3, 3)))
    labels, scale = torch.tensor(rng.integers(0, 3, (2, 4))), torch.tensor(rng.normal(size=(2, 4, 3)))
    layer, loss = nn.Marginals(pm.Chain(), method, seed=0).eval(), nn.StructuredLoss(reduction="none", seed=0).eval()

    def gradients(is_changed: bool) -> tuple[Tensor, ...]:
        unary, table = values.clone().requires_grad_(), pairs.clone().requires_grad_()
        q, losses = layer(unary, table), loss(unary, labels, table)
        q, losses = (q.mul_(2), losses.mul_(3)) if is_changed else (q * 2, losses * 3)
        total = (q * scale).sum() + losses @ torch.tensor([1.0, 2.0], dtype=torch.float64)
        if is_changed:
            with torch.no_grad():
                unary.mul_(-5)
                table.add_(torch.eye(3))
        return torch.autograd.grad(total, (unary, table))

    for plain, changed in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(plain, changed)


UNARY, LABELS, TABLE = torch.zeros(2, 4, 3), torch.zeros(2, 4, dtype=torch.long), torch.zeros(3, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": torch.zeros(4, 3)}, r"A single example is a batch of one"),
        ({"unary": [torch.zeros(4)]}, r"unary\[0\] must be a tensor of shape \(n_sites, n_labels\)"),
        ({"unary": [torch.zeros(4, 3), torch.zeros(4, 2)]}, "same number of labels"),
        ({"unary": []}, "at least one example"),
        ({"unary": torch.full((2, 4, 3), torch.nan)}, "unary must be finite"),
        ({"unary": UNARY.long()}, "unary must hold floating-point numbers, but its dtype is torch.int64"),
        ({"labels": LABELS[0]}, r"labels must have shape \(2, 4, \.\.\.\), as unary is padded, but has shape \(4,\)"),
        ({"pairwise": np.zeros((2, 2))}, r"pairwise must be one table \(3, 3\)"),
        ({"labels": LABELS - 100}, r"labels must be labels 0\.\.2 or -1"),
        ({"labels": LABELS[:, :3]}, r"labels must have shape \(2, 4, \.\.\.\), as unary is padded"),
        ({"labels": torch.ones(2, 4, 3)}, "every row must sum to 1"),
        ({"labels": list(LABELS[:1])}, "labels must be a padded tensor"),
        ({"labels": LABELS.float()}, "labels must hold integers"),
        ({"labels": np.full((2, 4), "a")}, "labels must be tensors or arrays of integers"),
        ({"edges": nx.path_graph(4), "pairwise": torch.zeros(2, 3, 3, 3)}, "Take the edges out first"),
        ({"unary": [np.zeros((4, 3))]}, "torch.from_numpy"),
        ({"pairwise": torch.zeros(2, 2)}, r"pairwise must be one table \(3, 3\)"),
        ({"pairwise": torch.zeros(2, 4, 3, 3)}, r"pairwise must have shape \(2, 3, \.\.\.\)"),
        ({"pairwise": None, "edges": np.zeros((0, 2), int)}, "edges were given without pairwise"),
        ({"edges": np.array([[0, 4]])}, r"edges must join sites 0\.\.3"),
        ({"edges": [np.array([[0, 1]])]}, "one graph for each example, 2, but has 1"),
        ({"edges": np.array([[0, 1]]), "mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()}, "give a list"),
        ({"mask": torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]]).bool()}, "example 1 has a gap"),
        ({"mask": torch.ones(2, 4)}, "mask must be boolean"),
        ({"sizes": -torch.ones(2, 4)}, "sizes must be finite numbers, one for each site, none negative"),
    ],
)
def test_bad_tensors_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    """Before any work, saying what is expected."""
    arguments: dict[str, Any] = {"unary": UNARY, "labels": LABELS, "pairwise": TABLE, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        nn.StructuredLoss(pm.MarginalLogLikelihood(pm.WeightedHamming()))(**arguments)


@pytest.mark.parametrize(
    ("module", "parameters", "message"),
    [
        (nn.StructuredLoss, {"objective": pm.Chain()}, "objective must be an Objective"),
        (nn.StructuredLoss, {"structure": "chain"}, "structure must be a Structure"),
        (nn.StructuredLoss, {"reduction": "average"}, "reduction must be"),
        (nn.StructuredLoss, {"n_perturbations": 0}, "n_perturbations must be"),
        (nn.StructuredLoss, {"seed": -1}, "seed must be"),
        (nn.Marginals, {"method": "pinned"}, "method must be a MarginalMethod"),
        (nn.BestLabelling, {"structure": "chain"}, "structure must be a Structure"),
        (nn.Samples, {"n_samples": 0}, "n_samples must be"),
        (nn.Samples, {"seed": -1}, "seed must be"),
        (nn.Samples, {"structure": pm.BinaryGraph()}, r"Samples sums .* not for BinaryGraph: use perturbmap\.sample"),
    ],
)
def test_bad_parameters_are_refused_when_the_module_is_made(
    module: Any, parameters: dict[str, Any], message: str
) -> None:
    """Not at the first batch."""
    with pytest.raises((ValueError, TypeError), match=message):
        module(**parameters)


@pytest.mark.parametrize("method", [*METHODS, pm.COUNTED], ids=repr)
def test_a_copy_of_a_layer_gives_the_same_marginals(method: pm.MarginalMethod, rng: np.random.Generator) -> None:
    """As networks are copied for averages of weights, pickled, and saved whole."""
    unary, table = torch.tensor(rng.normal(size=(2, 5, 3))), torch.tensor(rng.normal(size=(3, 3)))
    layer = nn.Marginals(pm.Chain(), method).eval()
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)):
        assert other.method == method
        assert torch.equal(other(unary, table), layer(unary, table))


@pytest.mark.parametrize(
    "objective",
    [o for o in OBJECTIVES if "Exact" not in repr(o)],
    ids=[repr(o) for o in OBJECTIVES if "Exact" not in repr(o)],
)
@pytest.mark.parametrize(
    "structure",
    [pm.Matching(), pm.BruteForce(allowed=lambda y: len(set(y)) == len(y))],
    ids=["Matching", "BruteForce"],
)
def test_labels_that_the_structure_forbids_are_refused(structure: pm.Structure, objective: pm.Objective) -> None:
    """As by the estimator: such a likelihood has no bound, and learning would run away with it."""
    loss = nn.StructuredLoss(objective, structure)
    assert loss(torch.zeros(1, 3, 3), torch.tensor([[2, 0, 1]])).isfinite()
    with pytest.raises(ValueError, match=r"labels hold what .* does not allow"):
        loss(torch.zeros(1, 3, 3), torch.tensor([[1, -1, 1]]))


def test_a_table_that_is_not_learned_may_be_an_array(rng: np.random.Generator) -> None:
    """Such as ``potts`` gives it: one for all edges."""
    unary, labels = torch.tensor(rng.normal(size=(2, 4, 3))), torch.zeros(2, 4, dtype=torch.long)
    loss = nn.StructuredLoss(seed=0).eval()
    assert loss(unary, labels, pm.potts(0.7, 3)) == loss(unary, labels, torch.tensor(pm.potts(0.7, 3)))


@pytest.mark.parametrize("on_device", [None, True], ids=["in the core", "in torch operations"])
@pytest.mark.filterwarnings("ignore")  # torch's compiler has warnings of its own
def test_a_compiled_network_holds_the_modules_in_one_graph(on_device: bool | None, rng: np.random.Generator) -> None:
    """Padded and as lists, called once and again: the same numbers, gradients and noise as without the compiler."""
    x, labels = torch.tensor(rng.normal(size=(2, 4, 3))), torch.zeros(2, 4, dtype=torch.long)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    learned = [torch.tensor(rng.normal(size=(3, 3)), requires_grad=True) for _ in range(2)]
    best, potts = nn.BestLabelling(), pm.potts(0.7, 3)

    def run(x: Tensor, loss: nn.StructuredLoss, layer: nn.Marginals) -> Tensor:
        unary, table = x @ learned[0], learned[1]
        parts = [unary[0], unary[1, :2]]
        total: Tensor = loss(unary, labels, table, mask=mask)
        total = total - 2 * loss(parts, [labels[0], labels[1, :2]], potts)
        total = total + (layer(unary, table, mask=mask) ** 2).sum() + best(unary, table).sum()
        for q, y in zip(layer(parts), best(parts), strict=True):
            total = total + (q**3).sum() * y.sum()
        return total

    made = nn.StructuredLoss(seed=0), nn.Marginals(seed=0, n_perturbations=2)
    for module in (*made, best):
        module.on_device = on_device
    others = copy.deepcopy(made)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        ours, expected = compiled(x, *made), run(x, *others)
        assert ours == expected
        for one, other in zip(*(torch.autograd.grad(each, learned) for each in (ours, expected)), strict=True):
            torch.testing.assert_close(one, other)
    assert [module.n_draws for module in made] == [4, 8]


@pytest.mark.filterwarnings("ignore")  # torch's compiler has warnings of its own
def test_errors_come_out_of_a_compiled_network() -> None:
    """Whoever gives what is wrong to it reads the same words."""
    loss = torch.compile(nn.StructuredLoss(), backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match=r"labels must be labels 0\.\.2 or -1"):
        loss(torch.zeros(1, 4, 3), torch.full((1, 4), 3))


@pytest.mark.parametrize("on_device", [None, True], ids=["in the core", "in torch operations"])
@pytest.mark.parametrize("make", [nn.StructuredLoss, nn.Marginals])
@pytest.mark.filterwarnings("ignore")  # torch's compiler has warnings of its own
def test_what_a_compiled_call_keeps_goes_with_its_module(make: Any, on_device: bool | None) -> None:
    """A gradient that nobody asks for leaves nothing behind."""
    module, unary = make(), torch.zeros(1, 4, 3, requires_grad=True)
    module.on_device = on_device
    labels = [torch.zeros(1, 4, dtype=torch.long)] if make is nn.StructuredLoss else []
    compiled: Any = torch.compile(module, backend="aot_eager", fullgraph=True)
    compiled(unary, *labels)
    gone = weakref.ref(module)
    del module, compiled
    gc.collect()
    assert gone() is None
