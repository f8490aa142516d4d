"""A batch of chains as padded tensors, on their own device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from perturbmap.nn.chains.chain import Slopes, TensorChain
from perturbmap.nn.solved import solved
from perturbmap.support.checks import LARGEST


@final
@dataclass(frozen=True, eq=False)
class ChainBatch:
    """Potentials of chains: as tensors, through which gradients go, and as the sweeps take them.

    unary : (n_examples, n_sites, n_labels), in float32 or float64; x is the same without a gradient
    pairwise : one table, one for each edge, padded, or None
    is_site : (n_examples, n_sites), False where a tensor is padded
    dtype : that of the user's potentials
    is_list : whether the examples came one by one, and results go back so
    """

    unary: Tensor
    pairwise: Tensor | None
    is_site: Tensor
    lengths: Tensor
    dtype: torch.dtype
    is_list: bool
    checks: list[Tensor]

    @classmethod
    def of(cls, unary: Any, pairwise: Any, mask: Any) -> ChainBatch | None:
        """None where the tensors are not what they should be: whoever solves them in the core says why."""
        is_list = not isinstance(unary, Tensor)
        padded = _pad(unary) if is_list else unary
        if padded is None or padded.dim() != 3 or 0 in padded.shape or not padded.is_floating_point():
            return None
        n, width, k = padded.shape
        device, checks = padded.device, []
        if is_list:
            if mask is not None:
                return None
            lengths = torch.tensor([len(part) for part in unary], device=device, dtype=torch.int32)
            is_site = torch.arange(width, device=device) < lengths[:, None]
        elif mask is None:
            is_site = torch.ones((1, 1), dtype=torch.bool, device=device).expand(n, width)
            lengths = torch.full((n,), width, dtype=torch.int32, device=device)
        else:
            is_site = torch.as_tensor(mask, device=device)
            if is_site.dtype != torch.bool or is_site.shape != (n, width):
                return None
            lengths = is_site.sum(1, dtype=torch.int32)
            checks.append(~(is_site[:, 1:] & ~is_site[:, :-1]).any())
        tables = _tables(pairwise, is_list, (n, width, k), device)
        if pairwise is not None and tables is None:
            return None
        dtype = torch.promote_types(padded.dtype, torch.float32)
        dtype = dtype if tables is None else torch.promote_types(dtype, tables.dtype)
        x = padded.detach() if mask is None else padded.detach().masked_fill(~is_site[..., None], 0.0)
        checks += [_is_finite(t) for t in (x, tables) if t is not None and t.numel()]
        cast = None if tables is None else tables.to(dtype).contiguous()
        return cls(padded.to(dtype).contiguous(), cast, is_site, lengths, padded.dtype, is_list, checks)

    @property
    def x(self) -> Tensor:
        """The unary potentials as numbers, without a gradient."""
        return self.unary.detach()

    @property
    def chain(self) -> TensorChain:
        """What answers questions about the potentials; a mask of allowed pairs would be added to its tables here."""
        k = self.unary.shape[2]
        tables = self.unary.new_zeros((k, k)) if self.pairwise is None else self.pairwise.detach()
        return TensorChain(tables, self.lengths)

    @property
    def wants_gradient(self) -> bool:
        """Whether somebody may ask for the gradient of what is computed from the potentials."""
        tensors = (self.unary, self.pairwise)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    def passes(self, checks: list[Tensor]) -> bool:
        """Whether the potentials' own checks and these are true: the one moment that waits for the device."""
        return all(torch.stack([*self.checks, *checks]).tolist())

    def padded(self, values: Any) -> Tensor | None:
        """What a user gives in the layout of the potentials, padded, on their device; None if it is not in it."""
        if self.is_list == isinstance(values, (Tensor, np.ndarray)):
            return None
        try:
            tensor = _pad(values) if self.is_list else torch.as_tensor(values, device=self.unary.device)
        except (TypeError, ValueError, RuntimeError):
            return None
        if tensor is None or tensor.shape[:2] != self.unary.shape[:2]:
            return None
        if self.is_list and [len(part) for part in values] != self.lengths.tolist():
            return None
        return tensor.to(self.unary.device)

    def unpadded(self, values: Tensor, fill: float) -> Any:
        """Results in the layout of the potentials; ``fill`` where no site is."""
        if self.is_list:
            return [row[:length] for row, length in zip(values, self.lengths.tolist(), strict=True)]
        return values.masked_fill(~self.is_site.reshape(*self.is_site.shape, *[1] * (values.dim() - 2)), fill)

    def solved(self, values: Tensor, pullback: Any) -> Tensor:
        """Values computed from x, as a tensor whose gradient is that of the slopes that ``pullback`` gives."""

        def pull(gradient: Tensor) -> tuple[Tensor, Tensor | None]:
            slopes: Slopes = pullback(gradient)
            if self.pairwise is None:
                return slopes.unary, None
            if self.pairwise.dim() > 2:
                return slopes.unary, slopes.pairwise
            return slopes.unary, slopes.pairwise.sum(0, dtype=torch.float64).to(self.pairwise.dtype)

        return solved(self.unary, self.pairwise, values, pull)


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
        tables = torch.as_tensor(pairwise).to(device)
    elif is_list and _pad(pairwise) is not None:
        tables = pad_sequence([torch.as_tensor(part) for part in pairwise], batch_first=True).to(device)
    else:
        return None
    is_each = tables.shape == (n, width - 1, k, k) and is_list != isinstance(pairwise, (Tensor, np.ndarray))
    return tables if (tables.shape == (k, k) or is_each) and tables.is_floating_point() else None


def _is_finite(values: Tensor) -> Tensor:
    low, high = values.aminmax()
    return (low >= -LARGEST) & (high <= LARGEST)
