"""A batch of chains as padded tensors, on their own device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from perturbmap.nn.chains.chain import Slopes, TensorChain, route
from perturbmap.nn.chains.sweep import Key
from perturbmap.nn.solved import solved
from perturbmap.structures.transitions import Rules

#: Values, and from the gradient with respect to them to the slopes, which can be asked for once.
Answer = tuple[Tensor, Callable[[Tensor], Slopes]]


@final
@dataclass(frozen=True, eq=False)
class ChainBatch:
    """Potentials of chains: as tensors, through which gradients go, and as the sweeps take them.

    unary : (n_examples, n_sites, n_labels), in float32 or float64
    x : the same as numbers, without a gradient
    pairwise : one table, one for each edge, padded, or None
    mask : (n_examples, n_sites), False where a tensor is padded; None where nothing is, or nothing but of a list
    lengths : (n_examples,), int32; None if all are as long as the tensor
    counts : the lengths of examples that came one by one, and whose results go back so; else None
    dtype : that of the user's potentials
    chain : what answers questions about x
    """

    unary: Tensor
    x: Tensor
    pairwise: Tensor | None
    mask: Tensor | None
    lengths: Tensor | None
    counts: list[int] | None
    dtype: torch.dtype
    chain: TensorChain

    @classmethod
    def of(
        cls, unary: Any, pairwise: Any, mask: Any, allowed: Callable[[int], Rules] | None = None
    ) -> ChainBatch | None:
        """None where the tensors are not what they should be: whoever solves them in the core says why.

        allowed : from the number of labels to the pairs, starts and ends that are; all by default
        """
        is_list = not isinstance(unary, Tensor)
        padded = _pad(unary) if is_list else unary
        if padded is None or padded.dim() != 3 or 0 in padded.shape or not padded.is_floating_point():
            return None
        if is_list and mask is not None:
            return None
        (n, width, k), device = padded.shape, padded.device
        counts = [len(part) for part in unary] if is_list else None
        lengths = None if counts is None else torch.tensor(counts, dtype=torch.int32, device=device)
        if mask is not None:
            mask = torch.as_tensor(mask, device=device).contiguous()
            if mask.dtype != torch.bool or mask.shape != (n, width):
                return None
            lengths = mask.sum(1, dtype=torch.int32)
        tables = _tables(pairwise, is_list, (n, width, k), device)
        if pairwise is not None and tables is None:
            return None
        dtype = torch.promote_types(padded.dtype, torch.float32)
        dtype = dtype if tables is None else torch.promote_types(dtype, tables.dtype)
        tables = None if tables is None else tables.to(dtype).contiguous()
        chain = _chain(tables, lengths, k, dtype, device, allowed)
        whole = padded.to(dtype).contiguous()
        return cls(whole, whole.detach(), tables, mask, lengths, counts, padded.dtype, chain)

    @property
    def is_site(self) -> Tensor:
        """(n_examples, n_sites), or what is as good: False where a tensor is padded."""
        if self.mask is not None:
            return self.mask
        if self.lengths is None:
            return torch.ones((), dtype=torch.bool, device=self.unary.device).expand(self.unary.shape[:2])
        return torch.arange(self.unary.shape[1], device=self.unary.device) < self.lengths[:, None]

    @property
    def wants_gradient(self) -> bool:
        """Whether somebody may ask for the gradient of what is computed from the potentials."""
        tensors = (self.unary, self.pairwise)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    def look(self, labels: Tensor | None = None) -> Report:
        """Begins to look at the potentials and at labels, (n_examples, n_sites), without waiting for the device."""
        return Report(route(self.x).look(self.x, self.pairwise, self.lengths, self.mask, labels), self.x.device)

    def padded(self, values: Any) -> Tensor | None:
        """What a user gives in the layout of the potentials, padded, on their device; None if it is not in it."""
        is_list = self.counts is not None
        if is_list == isinstance(values, (Tensor, np.ndarray)):
            return None
        try:
            tensor = _pad(values) if is_list else torch.as_tensor(values, device=self.unary.device)
        except (TypeError, ValueError, RuntimeError):
            return None
        if tensor is None or tensor.shape[:2] != self.unary.shape[:2]:
            return None
        if is_list and [len(part) for part in values] != self.counts:
            return None
        return tensor.to(self.x.device).contiguous()

    def unpadded(self, values: Tensor, fill: float) -> Any:
        """Results in the layout of the potentials; ``fill`` where no site is."""
        if self.counts is not None:
            return [row[:length] for row, length in zip(values, self.counts, strict=True)]
        if self.mask is None:
            return values
        return values.masked_fill(~self.mask.reshape(*self.mask.shape, *[1] * (values.dim() - 2)), fill)

    def best_labels(self) -> Any:
        """The best labels in the layout of the potentials, -1 where no site is; None where something is wrong."""
        chain, x, report = self.chain, self.x, self.look()
        labels = chain.best(x)
        is_possible = chain.rims is None or chain.is_possible(x)
        return self.unpadded(labels, -1) if is_possible and report.is_good else None

    def samples(self, key: Key, n_draws: int) -> Any:
        """Exact samples in the layout of the potentials, with a last axis for the draws, -1 where no site is.

        None where something is wrong: whoever solves it in the core says what.
        """
        chain, report = self.chain, self.look()
        total = chain.total(self.x, sums=True, keep=True)
        labels = total.sample(key, n_draws)
        is_possible = chain.rims is None or bool(total.values.isfinite().all())
        return self.unpadded(labels, -1) if is_possible and report.is_good else None

    def solved(self, solve: Callable[[], Answer]) -> Tensor:
        """Values that ``solve`` computes from x, as a tensor with a gradient; asked for another, it solves again."""
        values, first = solve()
        pullbacks = [first]

        def pull(gradient: Tensor) -> tuple[Tensor, Tensor | None]:
            slopes = (pullbacks.pop() if pullbacks else solve()[1])(gradient)
            return slopes.unary, None if self.pairwise is None else slopes.pairwise

        return solved(self.unary, self.pairwise, values, pull, needs_inputs=True)


@final
class Report:
    """What a look at tensors has found: it is on its way to the CPU, and waited for when it is asked."""

    def __init__(self, report: Tensor, device: torch.device) -> None:
        self._on_cpu = report.to("cpu", non_blocking=True)  # into pinned memory, where it may be already
        self._event = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    @property
    def is_good(self) -> bool:
        """Whether all numbers are finite, the mask without gaps, and labels what they should be."""
        return not self._read()[0]

    @property
    def knows_all(self) -> bool:
        """Whether no label was missing."""
        return not self._read()[1]

    def _read(self) -> list[int]:
        if self._event is not None:
            self._event.synchronize()
        found: list[int] = self._on_cpu.tolist()
        return found


def _chain(
    tables: Tensor | None, lengths: Tensor | None, k: int, dtype: torch.dtype, device: torch.device, allowed: Any
) -> TensorChain:
    """The tables without a gradient, -inf where a pair is forbidden; zeros where there are none."""
    own = torch.zeros((k, k), dtype=dtype, device=device) if tables is None else tables.detach()
    if allowed is None:
        return TensorChain(own, None, lengths)
    rules = allowed(k)
    pairs, rims = (
        torch.from_numpy(np.where(mask, 0.0, -np.inf)).to(device, dtype)
        for mask in (rules.pairs, np.stack([rules.starts, rules.ends]))
    )
    return TensorChain(own + pairs, rims, lengths)


def _pad(parts: Any) -> Tensor | None:
    """A list of tensors or arrays that differ in length alone, padded with zeros; else None."""
    if not isinstance(parts, Sequence) or len(parts) == 0:
        return None
    if not all(isinstance(part, (Tensor, np.ndarray)) and part.ndim > 0 for part in parts):
        return None
    tensors = [torch.as_tensor(part) for part in parts]
    if len({(t.shape[1:], t.dtype, t.device) for t in tensors}) > 1:
        return None
    return pad_sequence(tensors, batch_first=True)


def _tables(pairwise: Any, is_list: bool, shape: tuple[int, int, int], device: torch.device) -> Tensor | None:
    """One table, or one for each edge of padded chains; None if it is neither."""
    n, width, k = shape
    if isinstance(pairwise, (Tensor, np.ndarray)):
        tables = torch.as_tensor(pairwise, device=device)
    elif is_list and _pad(pairwise) is not None:
        tables = pad_sequence([torch.as_tensor(part) for part in pairwise], batch_first=True).to(device)
    else:
        return None
    is_each = tables.shape == (n, width - 1, k, k) and is_list != isinstance(pairwise, (Tensor, np.ndarray))
    return tables if (tables.shape == (k, k) or is_each) and tables.is_floating_point() else None
