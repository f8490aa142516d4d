"""Chains solved where the tensors are: the same losses, marginals, labels and gradients as in the compiled core."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import perturbmap as pm
from perturbmap import nn
from perturbmap.nn.chains import plain
from perturbmap.nn.chains.sweep import Key
from perturbmap.noise import Domain, Purpose

OBJECTIVES: list[pm.Objective] = [
    pm.MarginalLogLikelihood(),
    pm.MarginalLogLikelihood(pm.WeightedHamming([1.0, 2.0, 0.5])),
    pm.MarginalLogLikelihood(integrate_noise=False),
    pm.MarginalLogLikelihood(conditional=True),
    pm.LogLikelihood(),
    pm.StructuredHinge(),
    pm.StructuredHinge(pm.BalancedHamming()),
    pm.ExactLogLikelihood(),
    pm.ExactMarginalLogLikelihood(),
]
METHODS = [pm.PINNED, pm.INTEGRATED, pm.COUNTED, pm.EXACT]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]
COUNTS, WIDTH, K = [3, 5, 1, 4], 6, 3


class Instance:
    """Potentials of four chains of uneven lengths, in double precision unless something else is said."""

    def __init__(self, rng: np.random.Generator, is_shared: bool, device: str, dtype: torch.dtype = torch.float64):
        self.mask = (torch.arange(WIDTH) < torch.tensor(COUNTS)[:, None]).to(device)
        unary = torch.tensor(rng.normal(size=(4, WIDTH, K)))
        unary[~self.mask.cpu()] = torch.nan  # not looked at
        shape = (K, K) if is_shared else (4, WIDTH - 1, K, K)
        self.unary = unary.to(device, dtype).requires_grad_()
        self.table = torch.tensor(rng.normal(size=shape)).to(device, dtype).requires_grad_()
        self.labels = torch.tensor(rng.integers(0, K, (4, WIDTH)), device=device)

    def padded(self) -> dict[str, Any]:
        return {"unary": self.unary, "pairwise": self.table, "mask": self.mask}

    def ragged(self) -> dict[str, Any]:
        is_shared = self.table.dim() == 2
        tables = self.table if is_shared else [self.table[n, : c - 1] for n, c in enumerate(COUNTS)]
        return {"unary": [self.unary[n, :c] for n, c in enumerate(COUNTS)], "pairwise": tables}

    def gradients(self, value: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(value, (self.unary, self.table))


def on_both(make: Callable[[], Any], run: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The answers of a module that solves chains where they are, and of one that asks the core."""
    here, core = make(), make()
    here.on_device, core.on_device = True, False
    return run(here), run(core)


def assert_same(here: Any, core: Any, rtol: float = 1e-9) -> None:
    torch.testing.assert_close(here, core, rtol=rtol, atol=1e-2 * rtol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("known", ["all", "some", "soft"])
@pytest.mark.parametrize("is_shared", [True, False], ids=["one table", "a table for each edge"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_losses_and_gradients_are_the_cores(
    objective: pm.Objective, is_shared: bool, known: str, device: str, rng: np.random.Generator
) -> None:
    """Padded and as lists, for examples of uneven weight, whatever is known of the labels, in training and after."""
    at = Instance(rng, is_shared, device)
    labels, sizes = at.labels, torch.tensor(rng.uniform(0.5, 2, (4, WIDTH)), device=device)
    if known == "some":
        labels[rng.random((4, WIDTH)) < 0.4] = -1
    if known == "soft":
        if not objective.takes_soft_labels:
            pytest.skip("the objective learns from labels alone")
        labels = torch.tensor(rng.dirichlet(np.ones(K), (4, WIDTH)), device=device)
    weights = torch.tensor([1.0, 0.5, 2.0, -1.0], dtype=torch.float64, device=device)

    def run(loss: Any) -> Any:
        loss(**at.padded(), labels=labels, sizes=sizes)  # moves the noise on
        values = loss(**at.padded(), labels=labels, sizes=sizes)
        results = [values, *at.gradients(weights @ values)]
        parts = [[t[n, :c] for n, c in enumerate(COUNTS)] for t in (labels, sizes)]
        loss.eval()
        values = loss(**at.ragged(), labels=parts[0], sizes=parts[1])
        return [*results, values, *at.gradients(weights @ values)]

    assert_same(*on_both(lambda: nn.StructuredLoss(objective, n_perturbations=2, reduction="none", seed=3), run))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("is_shared", [True, False], ids=["one table", "a table for each edge"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_the_gradient_that_comes_with_a_loss_is_the_cores(
    objective: pm.Objective, is_shared: bool, device: str, rng: np.random.Generator
) -> None:
    """Of a mean and of a sum it is computed with the value, and scaled by what comes back: of an odd batch too."""
    at = Instance(rng, is_shared, device)
    tables = at.table if is_shared else at.table[:3]

    def run(reduction: str, loss: Any) -> Any:
        loss.reduction = reduction
        value = loss(at.unary[:3], at.labels[:3], tables, mask=at.mask[:3])
        return [value, *at.gradients(-2.5 * value)]

    for reduction in ("mean", "sum"):
        make = partial(nn.StructuredLoss, objective, n_perturbations=2, seed=3)
        assert_same(*on_both(make, partial(run, reduction)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("objective", [pm.ExactLogLikelihood(), pm.MarginalLogLikelihood()], ids=repr)
@pytest.mark.parametrize("shape", [(32, 50, 26), (64, 512, 9)], ids=str)
def test_a_loss_takes_little_memory(objective: pm.Objective, shape: tuple[int, int, int]) -> None:
    """Value and gradient together need no more than three times the memory of the unary potentials."""
    unary = torch.randn(shape, device="cuda", requires_grad=True)
    table = torch.randn(shape[2:] * 2, device="cuda", requires_grad=True)
    labels, loss = torch.zeros(shape[:2], dtype=torch.long, device="cuda"), nn.StructuredLoss(objective)
    torch.autograd.grad(loss(unary, labels, table), (unary, table))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(loss(unary, labels, table), (unary, table))
    assert torch.cuda.max_memory_allocated() - before <= 3 * unary.nbytes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("is_shared", [True, False], ids=["one table", "a table for each edge"])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_marginals_and_their_gradients_are_the_cores(
    method: pm.MarginalMethod, is_shared: bool, device: str, rng: np.random.Generator
) -> None:
    """Padded, where they are zero beyond an example, and as lists."""
    at, scale = Instance(rng, is_shared, device), torch.tensor(rng.normal(size=(4, WIDTH, K)), device=device)

    def run(layer: Any) -> Any:
        q, parts = layer(**at.padded()), layer(**at.ragged())
        return [q, *parts, *at.gradients((q * scale).sum()), *at.gradients(sum((p**2).sum() for p in parts))]

    assert_same(*on_both(lambda: nn.Marginals(pm.Chain(), method, n_perturbations=5, seed=1), run))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("is_shared", [True, False], ids=["one table", "a table for each edge"])
def test_best_labels_are_the_cores(is_shared: bool, device: str, rng: np.random.Generator) -> None:
    """Ties too, which go to the smallest label, from the first site on: potentials are small integers."""
    for _ in range(10):
        at = Instance(rng, is_shared, device)
        with torch.no_grad():
            at.unary.copy_(at.unary.round().nan_to_num())
            at.table.copy_(at.table.round())
        padded, ragged = at.padded(), at.ragged()
        here, core = on_both(nn.BestLabelling, partial(_labels, padded, ragged))
        for one, other in zip(here, core, strict=True):
            assert torch.equal(one, other)


def _labels(padded: Any, ragged: Any, best: Any) -> list[Tensor]:
    return [best(**padded), *best(**ragged)]


@pytest.mark.parametrize("objective", [pm.ExactLogLikelihood(), pm.ExactMarginalLogLikelihood()], ids=repr)
@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_is_enough_for_long_chains(
    objective: pm.Objective, device: str, rng: np.random.Generator
) -> None:
    """Gradients agree with the core's to 1e-5 of their size: what is added up along a chain is kept small."""
    unary = torch.tensor(rng.normal(size=(2, 300, 9)) * 3, dtype=torch.float32, device=device, requires_grad=True)
    table = torch.tensor(rng.normal(size=(9, 9)), dtype=torch.float32, device=device, requires_grad=True)
    labels = torch.tensor(rng.integers(0, 9, (2, 300)), device=device)

    def run(loss: Any) -> Any:
        return torch.autograd.grad(loss(unary, labels, table), (unary, table))

    for one, other in zip(*on_both(lambda: nn.StructuredLoss(objective), run), strict=True):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


@pytest.mark.parametrize("seed", [0, 2**64 - 3])
def test_the_noise_is_that_of_the_core(seed: int, rng: np.random.Generator) -> None:
    """A function of seed, example, domain, draw and place; the logarithm alone may differ in its last bits."""
    f = pm.Potentials.batch([pm.Potentials(rng.normal(size=(5, 3))) for _ in range(4)])
    domain = Domain(Purpose.LAYER_EVALUATION, 1)
    for first in (0, 2**31 - 2):
        expected = f.unary + pm.gumbel_noise(f, seed, 2, first, domain=domain)
        x = torch.tensor(f.unary).reshape(4, 5, 3)
        ours = plain.perturbed(x, torch.full((4,), 5), Key(seed, first, domain.code), 2)
        np.testing.assert_allclose(ours.reshape(2, 20, 3).numpy(), expected, rtol=0, atol=1e-14)


ALLOWED = pm.Transitions(
    [[True, False, True], [True, True, True], [False, True, False]],
    starts=[True, True, False],
    ends=[False, True, True],
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("is_shared", [True, False], ids=["one table", "a table for each edge"])
def test_forbidden_transitions_are_impossible_here_too(
    is_shared: bool, device: str, rng: np.random.Generator
) -> None:
    """Pairs, starts and ends: losses, marginals, best labels and their gradients are the core's."""
    at, chain = Instance(rng, is_shared, device), pm.Chain(allowed=ALLOWED)
    scale = torch.tensor(rng.normal(size=(4, WIDTH, K)), device=device)
    with torch.no_grad():
        at.labels.copy_(nn.BestLabelling(chain)(at.unary.flip(2).nan_to_num(), at.table, mask=at.mask))
    some = at.labels.masked_fill(torch.tensor(rng.random((4, WIDTH)) < 0.4, device=device), -1)

    def losses(loss: Any) -> Any:
        values = [loss(**at.padded(), labels=labels) for labels in (at.labels, some)]
        return [v for value in values for v in (value, *at.gradients(value))]

    def probabilities(layer: Any) -> Any:
        q = layer(**at.padded())
        return [q, *at.gradients((q * scale).sum())]

    for objective in OBJECTIVES:
        assert_same(*on_both(partial(nn.StructuredLoss, objective, chain, seed=3), losses))
    for method in METHODS:
        assert_same(*on_both(partial(nn.Marginals, chain, method, n_perturbations=5, seed=1), probabilities))
    here, core = on_both(partial(nn.BestLabelling, chain), partial(_labels, at.padded(), at.ragged()))
    for one, other in zip(here, core, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("objective", [pm.ExactLogLikelihood(), pm.MarginalLogLikelihood()], ids=repr)
def test_labels_that_are_not_allowed_are_refused_here_too(objective: pm.Objective) -> None:
    """By the core's words, and the noise of the call that failed is that of the next."""
    loss, labels = nn.StructuredLoss(objective, pm.Chain(allowed=ALLOWED), seed=0), torch.tensor([[0, 1, 1]])
    loss.on_device = True
    with pytest.raises(ValueError, match="has label 0 at site 0 and then label 1 at site 1, which allowed forbids"):
        loss(torch.zeros(1, 3, K), labels, torch.zeros(K, K))
    assert loss.n_draws == 0


@pytest.mark.parametrize("objective", [pm.ExactLogLikelihood(), pm.MarginalLogLikelihood()], ids=repr)
@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_can_be_asked_for_again(objective: pm.Objective, device: str, rng: np.random.Generator) -> None:
    """The first takes the place of the messages in memory, and they are made anew for the second: the same bits."""
    at = Instance(rng, True, device)
    loss = nn.StructuredLoss(objective, seed=0)
    loss.on_device = True
    value = loss(**at.padded(), labels=at.labels)
    first, second = (torch.autograd.grad(value, (at.unary, at.table), retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    with torch.no_grad():
        at.table.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(value, at.unary)


KERNELS_AGREE = """
import itertools, torch
from perturbmap.nn.chains import kernels, plain
from perturbmap.nn.chains.sweep import Key, Sweep, Way, Weights

torch.manual_seed(0)
flags = [True, False]
cases = [
    *itertools.product([(4, 4, 3)], flags, flags, [Way.BOTH], flags, flags),
    *itertools.product([(2, 2, 2), (2, 1, 5)], flags, [True], [Way.FORWARDS, Way.BACKWARDS], [True], flags),
]
for (n, width, k), is_shared, has_given, way, sums, is_even in cases:
    x, half = torch.randn(n, width, k, dtype=torch.float64), n // 2
    tables = torch.randn((k, k) if is_shared else (half, width - 1, k, k), dtype=torch.float64)
    tables[..., 0, 1] = -torch.inf
    lengths = None if is_even else torch.randint(1, width + 1, (half,), dtype=torch.int32)
    given = torch.randint(-1, k, (n, width)) if has_given else None
    labels, rims = torch.randint(0, k, (n, width)), torch.zeros(2, k, dtype=torch.float64)
    rims[1, 0] = -torch.inf
    sweep = Sweep(x, tables, rims if is_even else None, lengths, given, way, sums)
    is_site = torch.arange(width) < (torch.full((half,), width) if is_even else lengths)[:, None]
    is_site = is_site.repeat(2, 1)
    is_there = is_site.repeat(sweep.n_rows // n, 1)
    one, two = (route.messages(sweep, keep=True, labels=None if has_given else labels) for route in (plain, kernels))
    torch.testing.assert_close(two[0][is_there], one[0][is_there])
    torch.testing.assert_close(two[1], one[1])
    if not has_given:
        torch.testing.assert_close(two[2], one[2])
    v = Weights(torch.randn(n, dtype=torch.float64), -2)
    for w, less in ((None, None), (None, labels), (torch.randn_like(x) * is_site[..., None], None)):
        expected = plain.flow(sweep, one[0].clone(), v, w, less)
        torch.testing.assert_close(kernels.flow(sweep, two[0].clone(), v, w, less), expected)
    key, few = Key(2**63 + 5, 2**31 - 1, 8 << 12), x[:half]
    a, b = (route.perturbed(few, lengths, key, 2) for route in (plain, kernels))
    torch.testing.assert_close(b[is_site], a[is_site], rtol=0, atol=1e-14)
    if way is Way.BACKWARDS:
        drawn = [route.sample(sweep, each[0], key, 5) for route, each in ((plain, one), (kernels, two))]
        assert torch.equal(drawn[1][is_site], drawn[0][is_site])
    if way is Way.BOTH:
        for integrate, aim in itertools.product(flags, [labels[:half], torch.rand_like(few)]):
            results = []
            for route in (plain, kernels):
                noisy = sweep._replace(x=route.perturbed(few, lengths, key, 1), given=None)
                w = noisy.x if integrate else torch.empty_like(few)
                values = route.toward(noisy, route.messages(noisy, keep=True)[0], few, aim, integrate, w)
                results.append([values, w[is_site[:half]]])
            torch.testing.assert_close(results[1], results[0])
    for spoilt in ("nothing", "x", "table", "mask", "label", "open"):
        some, table, y, mask = few.clone(), tables.clamp(min=-1.0), labels[:half].clone(), is_site[:half].clone()
        some[-1, 0, 0] = torch.nan if spoilt == "x" else 0.0
        table[..., -1] = torch.inf if spoilt == "table" else 0.0
        mask[0, 0] = spoilt != "mask"
        y[0, 0] = {"label": k, "open": -1}.get(spoilt, 0)
        reports = [route.look(some, table, lengths, mask, y).tolist() for route in (plain, kernels)]
        has_edges = is_shared or bool(is_site[:, 1:].any())
        is_bad = spoilt in ("x", "mask", "label") or (spoilt == "table" and has_edges)
        assert reports == [[is_bad, spoilt == "open"]] * 2, (spoilt, reports)
"""


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("triton"), reason="no Triton here")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run themselves on this GPU; interpreters differ")
def test_the_kernels_agree_with_the_plain_operations() -> None:
    """Interpreted, since there may be no GPU: both ways, shared tables or not, given labels, forbidden pairs."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", KERNELS_AGREE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": torch.full((2, 4, 3), torch.nan)}, "unary must be finite"),
        ({"pairwise": torch.zeros(2, 2)}, r"pairwise must be one table \(3, 3\)"),
        ({"labels": torch.full((2, 4), 3)}, r"labels must be labels 0\.\.2 or -1"),
        ({"labels": torch.ones(2, 4, 3)}, "every row must sum to 1"),
        ({"labels": torch.zeros(2, 4)}, "labels must hold integers"),
        ({"mask": torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]]).bool()}, "example 1 has a gap"),
        ({"sizes": -torch.ones(2, 4)}, "sizes must be finite numbers"),
    ],
)
def test_bad_tensors_are_refused_as_by_the_core(change: dict[str, Any], message: str) -> None:
    """It is asked what is wrong wherever something is."""
    arguments: dict[str, Any] = {
        "unary": torch.zeros(2, 4, 3),
        "labels": torch.zeros(2, 4, dtype=torch.long),
        "pairwise": torch.zeros(3, 3),
    }
    loss = nn.StructuredLoss()
    loss.on_device = True
    with pytest.raises(ValueError, match=message):
        loss(**{**arguments, **change})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.filterwarnings("ignore")  # torch's compiler has warnings of its own
def test_it_works_under_autocast_checkpoints_and_compilation(device: str, rng: np.random.Generator) -> None:
    """The loss of a network in bfloat16 is near that in float32; a checkpoint and a compiler change no gradient."""
    x = torch.tensor(rng.normal(size=(3, 6, 4)), dtype=torch.float32, device=device)
    labels = torch.tensor(rng.integers(0, K, (3, 6)), device=device)
    network, table = torch.nn.Linear(4, K, device=device), torch.eye(K, device=device, requires_grad=True)
    loss = nn.StructuredLoss(pm.ExactLogLikelihood())
    loss.on_device = True

    def run(x: Tensor) -> Tensor:
        value: Tensor = loss(network(x), labels, table)
        return value

    value = run(x)
    expected = torch.autograd.grad(value, (network.weight, table))
    with torch.autocast(device, torch.bfloat16):
        short = run(x)
    assert short.dtype == torch.float32
    assert short.item() == pytest.approx(value.item(), rel=0.02)
    again = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
    for other in (again, torch.compile(run, backend="aot_eager", fullgraph=True)(x)):
        assert_same(torch.autograd.grad(other, (network.weight, table)), expected, rtol=1e-5)


def test_the_second_derivative_is_refused_here_too() -> None:
    """As where the core computes the gradient."""
    unary = torch.zeros(1, 3, 2, requires_grad=True)
    loss = nn.StructuredLoss(pm.ExactLogLikelihood())
    loss.on_device = True
    value = loss(unary, torch.zeros(1, 3, dtype=torch.long), torch.eye(2))
    (first,) = torch.autograd.grad(value, unary, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()


@pytest.mark.filterwarnings("ignore")  # torch's own, of the process group
def test_it_works_under_distributed_training(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of one process: the gradients of a network and of a table are those without it."""
    x, labels = (
        torch.tensor(rng.normal(size=(3, 6, 4)), dtype=torch.float32),
        torch.tensor(rng.integers(0, K, (3, 6))),
    )
    loss = nn.StructuredLoss(seed=0).eval()
    loss.on_device = True

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.pairs = torch.nn.Linear(4, K), torch.nn.Parameter(torch.eye(K))

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            value: Tensor = loss(self.network(x), labels, self.pairs)
            return value

    tagger = Tagger()
    expected = torch.autograd.grad(tagger(x, labels), list(tagger.parameters()))
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        torch.nn.parallel.DistributedDataParallel(tagger)(x, labels).backward()
    finally:
        torch.distributed.destroy_process_group()
    assert_same([p.grad for p in tagger.parameters()], list(expected), rtol=1e-6)
