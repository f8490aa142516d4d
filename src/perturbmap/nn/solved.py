"""Values that were computed without torch's tape, as tensors with a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: From the gradient with respect to the values to those with respect to unary and pairwise potentials.
Pullback = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def solved(
    unary: Tensor, pairwise: Tensor | None, values: Tensor, pullback: Pullback, *, needs_inputs: bool = False
) -> Tensor:
    """Values computed from potentials, as a tensor of its own whose gradient ``pullback`` gives.

    ``values`` must be nobody else's: whoever gets the tensor may change it in place. With ``needs_inputs``, the
    pullback reads the potentials: torch says so if they have been changed in place before it is called.
    """
    result: Tensor = _Solved.apply(unary, pairwise, _Answer(values, pullback, needs_inputs))  # type: ignore[no-untyped-call]
    return result


class _Answer(NamedTuple):
    values: Tensor
    pullback: Pullback
    needs_inputs: bool


class _Solved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, unary: Tensor, pairwise: Tensor | None, answer: _Answer) -> Tensor:
        ctx.pullback = answer.pullback
        if answer.needs_inputs:
            ctx.save_for_backward(unary, pairwise)
        return answer.values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        _ = ctx.saved_tensors  # an error if they were changed
        unary, pairwise = ctx.pullback(gradient.detach())
        if torch.is_grad_enabled():  # create_graph=True
            unary = _Refused.apply(unary.requires_grad_())  # type: ignore[no-untyped-call]
            pairwise = None if pairwise is None else _Refused.apply(pairwise.requires_grad_())  # type: ignore[no-untyped-call]
        return unary, pairwise, None


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
        raise RuntimeError(
            "perturbmap.nn has no second derivatives: its gradient cannot be differentiated again. Leave "
            "create_graph=True out, or detach what comes from perturbmap."
        )
