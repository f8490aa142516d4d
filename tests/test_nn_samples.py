"""The torch module that draws labellings: frequencies, noise, and the same samples wherever they are drawn."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import perturbmap as pm
from perturbmap import nn

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]
ALLOWED = pm.Transitions(
    [[True, False, True], [True, True, True], [False, True, False]],
    starts=[True, True, False],
    ends=[False, True, True],
)
COUNTS = [3, 5, 1, 0, 4]


def chains(
    rng: np.random.Generator, counts: list[int], k: int, is_shared: bool, device: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Potentials of chains of uneven lengths, in double precision: padded, and as lists."""
    n, width = len(counts), max(counts) + 1
    mask = torch.arange(width) < torch.tensor(counts)[:, None]
    unary = torch.tensor(rng.normal(size=(n, width, k)))
    unary[~mask] = torch.nan  # not looked at
    tables = torch.tensor(rng.normal(size=(k, k) if is_shared else (n, width - 1, k, k)))
    unary, tables, mask = unary.to(device), tables.to(device), mask.to(device)
    parts = tables if is_shared else [tables[i, : max(0, c - 1)] for i, c in enumerate(counts)]
    padded = {"unary": unary, "pairwise": tables, "mask": mask}
    return padded, {"unary": [unary[i, :c] for i, c in enumerate(counts)], "pairwise": parts}


def samples(structure: pm.Structure, n_samples: int, on_device: bool | None, seed: int = 3) -> nn.Samples:
    layer = nn.Samples(structure, n_samples, seed=seed)
    layer.on_device = on_device
    return layer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("is_shared", [True, False], ids=["one table", "a table for each edge"])
@pytest.mark.parametrize("structure", [pm.Chain(), pm.Chain(allowed=ALLOWED)], ids=["all pairs", "some forbidden"])
def test_samples_are_the_cores(
    structure: pm.Structure, is_shared: bool, device: str, rng: np.random.Generator
) -> None:
    """Of chains solved where they are, in training and after it, padded with -1 and as lists, empty ones too."""
    padded, ragged = chains(rng, COUNTS, 3, is_shared, device)
    results = []
    for on_device in (True, False):
        layer = samples(structure, 70, on_device)
        given = [layer(**padded), layer(**padded), *layer(**ragged)]
        layer.eval()
        results.append([*given, layer(**padded), *layer(**ragged)])
        assert given[0].shape == (70, *padded["mask"].shape)
        assert ((given[0] >= 0) == padded["mask"]).all()
        assert [tuple(part.shape) for part in given[2:]] == [(70, count) for count in COUNTS]
    for one, other in zip(*results, strict=True):
        assert one.device.type == device
        assert one.dtype == torch.int64
        assert torch.equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (9, 16), (26, 5), (50, 33), (128, 2), (130, 2)], ids=str)
def test_any_number_of_labels_and_samples_will_do(
    shape: tuple[int, int], device: str, rng: np.random.Generator
) -> None:
    """From one of each to more labels than the kernels take: the core's samples."""
    k, n_samples = shape
    padded, _ = chains(rng, [12, 7], k, True, device)
    here, core = (samples(pm.Chain(), n_samples, on_device)(**padded) for on_device in (True, False))
    assert torch.equal(here, core)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("shape", [(70_000, 1, 2, 128), (1, 70_000, 2, 3)], ids=str)
def test_so_many_samples_or_examples_are_drawn_on_a_gpu(shape: tuple[int, ...]) -> None:
    """More than a grid of programs has in its second direction: still the core's samples."""
    n_samples, *rest, k = shape
    unary = torch.randn(*rest, k, device="cuda", dtype=torch.float64)
    here, core = (samples(pm.Chain(), n_samples, on_device)(unary) for on_device in (True, False))
    assert torch.equal(here, core)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("structure", "on_device"),
    [
        (pm.Chain(), True),
        (pm.Chain(), False),
        (pm.Chain(allowed=ALLOWED), True),
        (pm.Chain(allowed=ALLOWED), False),
        (pm.Tree(), None),
        (pm.BruteForce(), None),
    ],
    ids=["chain here", "chain in the core", "forbidden here", "forbidden in the core", "tree", "brute force"],
)
def test_frequencies_are_the_exact_marginals(
    structure: pm.SummableStructure, on_device: bool | None, device: str, rng: np.random.Generator
) -> None:
    """Those of labels and of pairs of neighbours, within four standard errors, in single precision."""
    edges = np.array([[0, 1], [1, 2], [1, 3]]) if on_device is None else None
    f = pm.Potentials(rng.normal(size=(4, 3)), rng.normal(size=(3, 3, 3)), edges)
    n = 2000 if isinstance(structure, pm.BruteForce) else 10_000
    unary, tables = (torch.tensor(x[None], dtype=torch.float32, device=device) for x in (f.unary, f.tables))
    y = samples(structure, n, on_device)(unary, tables, edges)[:, 0]
    shown = torch.nn.functional.one_hot(y, 3).double().cpu().numpy()
    _, moments = structure.log_partition(f)
    pairs = np.stack([np.einsum("ra,rb->ab", shown[:, i], shown[:, j]) / n for i, j in f.edges])
    assert moments.pairwise is not None
    for seen, p in ((shown.mean(0), moments.unary), (pairs, moments.pairwise)):
        assert (np.abs(seen - p) <= 4 * np.sqrt(np.clip(p * (1 - p), 0, None) / n)).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("on_device", [True, False], ids=["here", "in the core"])
def test_noise_is_fresh_in_training_the_same_in_evaluation_and_saved(on_device: bool, device: str) -> None:
    """A training that is resumed draws on; torch.manual_seed decides where no seed is given."""
    unary = torch.zeros(2, 20, 3, device=device)
    layer = samples(pm.Chain(), 2, on_device)
    first, state = layer(unary), layer.state_dict()
    second = layer(unary)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[:, 0], first[:, 1])
    layer.load_state_dict(state)
    assert torch.equal(layer(unary), second)
    layer.eval()
    third = layer(unary)
    assert torch.equal(layer(unary), third)
    assert not torch.equal(third, first)
    torch.manual_seed(5)
    seeds = [nn.Samples().seed for _ in range(2)]
    torch.manual_seed(5)
    assert [nn.Samples().seed for _ in range(2)] == seeds
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("on_device", [True, False], ids=["here", "in the core"])
def test_an_example_has_the_same_samples_in_any_batch(on_device: bool, device: str, rng: np.random.Generator) -> None:
    """Whatever comes after it, however wide the padding is, and with any number of threads and samples."""
    padded, _ = chains(rng, [12, 40, 7, 33], 9, True, device)
    unary, table, mask = (
        padded["unary"].nan_to_num().float(),
        padded["pairwise"].float(),
        padded["mask"],
    )
    y = samples(pm.Chain(n_threads=2), 5, on_device).eval()(unary, table, mask=mask)
    fewer = samples(pm.Chain(n_threads=1), 5, on_device).eval()(unary[:3], table, mask=mask[:3])
    wider = torch.nn.functional.pad(unary, (0, 0, 0, 30)), torch.nn.functional.pad(mask, (0, 30))
    wide = samples(pm.Chain(), 5, on_device).eval()(wider[0], table, mask=wider[1])
    more = samples(pm.Chain(), 23, on_device).eval()(unary, table, mask=mask)
    assert torch.equal(fewer, y[:, :3])
    assert torch.equal(wide[..., : mask.shape[1]], y)
    assert torch.equal(more[:5], y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("on_device", [True, False], ids=["here", "in the core"])
def test_forbidden_labels_are_never_drawn(on_device: bool, device: str) -> None:
    """-inf in the unary potentials, where other labels have hardly any weight; one label of a site may be left."""
    unary = torch.tensor([[[-torch.inf, -80.0, 0.0], [0.0, -torch.inf, -80.0], [-torch.inf, -900.0, -torch.inf]]])
    y = samples(pm.Chain(), 200, on_device)(unary.to(device), torch.zeros(3, 3, device=device))
    assert (y == torch.tensor([2, 0, 1], device=device)).all()


@pytest.mark.parametrize("device", DEVICES)
def test_long_chains_of_strong_potentials_are_drawn_in_single_precision(
    device: str, rng: np.random.Generator
) -> None:
    """Nothing overflows, and nearly all labels are those drawn in double precision from the same noise."""
    unary = torch.tensor(rng.normal(size=(2, 1000, 9)) * 30, device=device)
    table = torch.tensor(rng.normal(size=(9, 9)) * 30, device=device)
    exact = samples(pm.Chain(), 4, False)(unary, table)
    y = samples(pm.Chain(), 4, True)(unary.float(), table.float())
    assert (y == exact).double().mean() > 0.999


@pytest.mark.parametrize("on_device", [True, False], ids=["here", "in the core"])
def test_where_no_labelling_is_possible_the_core_says_so(on_device: bool) -> None:
    """In the same words wherever chains are solved."""
    only_once = np.array([[False, True], [False, False]])  # 1 after 0, and nothing after 1
    layer = samples(pm.Chain(allowed=pm.Transitions(only_once)), 2, on_device)
    with pytest.raises(pm.InfeasibleError, match="example 0"):
        layer(torch.zeros(1, 4, 2))


@pytest.mark.parametrize("on_device", [True, False], ids=["here", "in the core"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.filterwarnings("ignore")  # torch's compiler has warnings of its own
def test_a_compiled_network_draws_the_same_samples(device: str, on_device: bool, rng: np.random.Generator) -> None:
    """In one graph, padded and as lists, with fresh noise at each call, and without a gradient."""
    x = torch.tensor(rng.normal(size=(2, 4, 3)), device=device)
    weights = torch.tensor(rng.normal(size=(3, 3)), device=device, requires_grad=True)
    mask = torch.tensor([[True] * 4, [True, True, False, False]], device=device)

    def run(x: Tensor, layer: nn.Samples) -> list[Tensor]:
        unary = x @ weights
        return [layer(unary, weights, mask=mask), layer(unary, weights), *layer([unary[0], unary[1, :2]])]

    made = samples(pm.Chain(), 8, on_device)
    other = copy.deepcopy(made)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        for ours, expected in zip(compiled(x, made), run(x, other), strict=True):
            assert torch.equal(ours, expected)
            assert not ours.requires_grad
    assert made.n_draws == other.n_draws == 48


def test_an_expected_loss_has_a_gradient_by_samples(rng: np.random.Generator) -> None:
    """REINFORCE beside the mean of the others: the exact gradient of the expected Hamming loss, in four errors."""
    n, unary, table = 20_000, torch.tensor(rng.normal(size=(1, 4, 3))), torch.tensor(rng.normal(size=(3, 3)))
    truth = torch.tensor([0, 2, 1, 1])
    y = samples(pm.Chain(), n, None)(unary, table)[:, 0]
    risk = (y != truth).double().sum(1)
    copies = unary.expand(n, -1, -1).clone().requires_grad_()
    minus_log_p = nn.StructuredLoss(pm.ExactLogLikelihood(), reduction="none")(copies, y, table)
    advantage = (risk - risk.mean()) * n / (n - 1)
    (terms,) = torch.autograd.grad((-advantage * minus_log_p).sum(), copies)
    unary.requires_grad_()
    q = nn.Marginals(pm.Chain(), pm.EXACT)(unary, table)
    (exact,) = torch.autograd.grad((1 - q[0, torch.arange(4), truth]).sum(), unary)
    assert ((terms.mean(0) - exact[0]).abs() <= 4 * terms.std(0) / n**0.5).all()
