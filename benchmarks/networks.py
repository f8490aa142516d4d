"""A chain on top of a network: the loss of tensors, forward and backward, beside PyTorch's chain layers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import Chain, ExactLogLikelihood
from perturbmap.nn import StructuredLoss

#: Loss of potentials (unary, labels, table); the mean over examples.
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]

SHAPES = ((32, 50, 26), (32, 200, 9), (8, 1000, 5))


def pytorch_crf(n_labels: int, device: str = "cpu") -> Loss:
    """The module of pytorch-crf, made once; its own scores of first and last labels are zero."""
    from torchcrf import CRF

    crf = CRF(n_labels, batch_first=True).to(device)
    torch.nn.init.zeros_(crf.start_transitions)
    torch.nn.init.zeros_(crf.end_transitions)

    def loss(unary: Tensor, labels: Tensor, table: Tensor) -> Tensor:
        del crf.transitions
        crf.transitions = table  # a tensor in place of the module's parameter: all sides learn the same table
        value: Tensor = -crf(unary, labels, reduction="mean")
        return value

    return loss


def torch_struct(unary: Tensor, labels: Tensor, table: Tensor) -> Tensor:
    """The log-partition of torch-struct minus the score of the labels.

    Its own ``log_prob`` makes indicators of the labels in a Python loop over sites; looking the scores up is faster.
    """
    from torch_struct import LinearChainCRF

    edges = table.T + unary[:, 1:, :, None]  # (n_examples, n_edges, label, label before)
    first = torch.nn.functional.pad(unary[:, :1], (0, 0, 0, edges.shape[1] - 1))
    total = LinearChainCRF(edges + first[:, :, None, :]).partition
    score = unary.gather(2, labels[..., None]).sum((1, 2)) + table[labels[:, :-1], labels[:, 1:]].sum(1)
    loss: Tensor = (total - score).mean()
    return loss


def potentials(shape: tuple[int, int, int], device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Random potentials that want a gradient, and labels: unary, labels, table."""
    n, length, k = shape
    generator = torch.Generator().manual_seed(0)
    unary, table = torch.randn(n, length, k, generator=generator), torch.randn(k, k, generator=generator)
    labels = torch.randint(k, (n, length), generator=generator)
    return unary.to(device).requires_grad_(), labels.to(device), table.to(device).requires_grad_()


def forward_and_backward(loss: Loss, unary: Tensor, labels: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """The loss and its gradients, without anything added up from call to call."""
    value = loss(unary, labels, table)
    return value.detach(), *torch.autograd.grad(value, (unary, table))


def chain_loss(shape: tuple[int, int, int], bar: float) -> Iterator[Line]:
    """One thread, CPU time; three calls in a row, as in training, so that nobody starts on another's cache alone."""
    inputs = potentials(shape)
    ours: Loss = StructuredLoss(ExactLogLikelihood(), Chain())
    peers: dict[str, Loss] = {"pytorch-crf": pytorch_crf(shape[2]), "torch-struct": torch_struct}
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both peers use what torch has deprecated
            for name, peer in peers.items():
                both = [partial(forward_and_backward, loss, *inputs) for loss in (ours, peer)]
                for one, other in zip(*(run() for run in both), strict=True):  # peers add up whole chains in float32
                    torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)
                our_s, their_s = interleaved([partial(_thrice, run) for run in both], 5, time.process_time)
                yield Line(_name(shape), f"{name}, {1e3 * their_s / 3:.3g} ms", their_s / our_s, bar)
    finally:
        torch.set_num_threads(before)


def _thrice(run: Callable[[], object]) -> None:
    for _ in range(3):
        run()


def _name(shape: tuple[int, int, int]) -> str:
    return f"network: chain loss and gradient, {' x '.join(f'{n:,}' for n in shape)}, 1 thread"


BENCHMARKS = [Benchmark(_name(shape), partial(chain_loss, shape, 8)) for shape in SHAPES]
