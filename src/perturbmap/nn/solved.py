"""Values that were computed without torch's tape, as tensors with a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: From the gradient with respect to the values to those with respect to unary and pairwise potentials.
Pullback = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def solved(unary: Tensor, pairwise: Tensor | None, values: Tensor, pullback: Pullback) -> Tensor:
    """Values computed from potentials, as a tensor of its own whose gradient ``pullback`` gives."""
    result: Tensor = _Solved.apply(unary, pairwise, values, pullback)  # type: ignore[no-untyped-call]
    return result


class _Solved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, unary: Tensor, pairwise: Tensor | None, values: Tensor, pullback: Pullback) -> Tensor:
        ctx.pullback = pullback
        # A copy: the pullback needs the values, and whoever gets the tensor may change it in place.
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        unary, pairwise = ctx.pullback(gradient.detach())
        if torch.is_grad_enabled():  # create_graph=True
            unary = _Refused.apply(unary.requires_grad_())  # type: ignore[no-untyped-call]
            pairwise = None if pairwise is None else _Refused.apply(pairwise.requires_grad_())  # type: ignore[no-untyped-call]
        return unary, pairwise, None, None


class _Refused(torch.autograd.Function):
    """The gradient as it is, and an error for whoever differentiates it.

    torch's ``once_differentiable`` takes it for a constant unless the incoming gradient wants one, which that of a
    plain loss does not.
    """

    @staticmethod
    def forward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise RuntimeError("perturbmap.nn has no second derivatives: its gradient cannot be differentiated again.")
