"""The objectives of the library in tensors of chains; any other is left to the compiled core."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, singledispatch
from typing import Any

import torch
from torch import Tensor

from perturbmap.nn.chains.batch import Answer, ChainBatch
from perturbmap.nn.chains.chain import Slopes, TensorChain
from perturbmap.nn.chains.sweep import Key, Weights
from perturbmap.nn.chains.targets import TensorTargets
from perturbmap.objectives import (
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    LogLikelihood,
    MarginalLogLikelihood,
    Objective,
    StructuredHinge,
)

#: The loss of each example, in float64, and the slopes of their weighted sum; None where no weights were given.
Solved = tuple[Tensor, Slopes | None]

# The pins of so many parts of a batch are solved one after another: their messages are twice as large as potentials.
_PARTS = 2


@singledispatch
def loss_and_slopes(
    objective: Objective,
    chain: TensorChain,
    x: Tensor,
    perturbed: Tensor | None,
    t: TensorTargets,
    weights: Weights | None,
) -> Solved:
    """The negative of `Objective.value_and_grad` in tensors; ``perturbed`` is x with noise, None where nothing is.

    The slopes may take the place of the perturbed potentials.
    """
    raise NotImplementedError(f"{type(objective).__name__} is solved in the compiled core.")


@cache
def is_known(kind: type[Objective]) -> bool:
    """Whether objectives of this type have a formula here."""
    return loss_and_slopes.dispatch(kind) is not loss_and_slopes.dispatch(object)


def loss_of(
    objective: Objective, batch: ChainBatch, targets: TensorTargets, key: Key | None, n_draws: int, reduction: str
) -> Tensor | None:
    """The negative objective of a batch, the mean over the draws that begin with the key's.

    reduction : "mean" or "sum" over the examples, or "none"

    None where something is wrong with the tensors, or with the labels: whoever solves it in the core says what.
    """
    chain, x = batch.chain, batch.x
    keys = [None] if key is None else [replace(key, first_draw=key.first_draw + r) for r in range(n_draws)]
    divisor = len(keys) * (len(x) if reduction == "mean" else 1)
    # A sum over sites may be large: it is never less than float32, as in torch's own losses under autocast.
    dtype = torch.promote_types(batch.dtype, torch.float32)

    def over_draws(weights: Weights | None) -> Solved:
        """One draw after another, in the memory of one."""
        losses, slopes = of_draw(keys[0], weights)
        for each in keys[1:]:
            more, steeper = of_draw(each, weights)
            losses = losses + more
            slopes = None if slopes is None or steeper is None else slopes.add_(steeper)
        return losses, slopes

    def of_draw(each: Key | None, weights: Weights | None) -> Solved:
        perturbed = None if each is None else chain.perturbed(x, each)
        return loss_and_slopes(objective, chain, x, perturbed, targets, weights)

    def solve() -> Answer:
        if reduction == "none" or not batch.wants_gradient:
            return reduced(over_draws(None)[0]), lambda g: _there(over_draws(Weights(g, divisor))[1])
        # The gradient with the value: the device is at work while torch gets ready for its backward pass.
        losses, slopes = over_draws(Weights(None, divisor))
        return reduced(losses), _there(slopes).scale_

    def reduced(losses: Tensor) -> Tensor:
        losses = losses if len(keys) == 1 else losses / len(keys)
        if reduction == "none":
            return losses.to(dtype)
        return losses.mean(dtype=dtype) if reduction == "mean" else losses.sum(dtype=dtype)

    loss = batch.solved(solve)
    if chain.rims is not None and not chain.is_possible(x, targets.labels):
        return None
    return loss if targets.report.is_good else None


@loss_and_slopes.register
def _(objective: ExactLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, weights: Any) -> Solved:
    return _shortfall(chain, x, t, weights, sums=True)


@loss_and_slopes.register
def _(objective: LogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, weights: Any) -> Solved:
    return _shortfall(chain, perturbed, t, weights, sums=False)


@loss_and_slopes.register
def _(objective: StructuredHinge, chain: TensorChain, x: Any, perturbed: Any, t: Any, weights: Any) -> Solved:
    c = t.label_weights
    margin = c.sum(2, keepdim=True) - c  # zero for the label that is known, and where none is
    return _shortfall(chain, x + margin, t, weights, sums=False)


@loss_and_slopes.register
def _(
    objective: ExactMarginalLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, weights: Any
) -> Solved:
    return _pins(chain, x, x, None, t.aim, weights, sums=True, integrate=True)


@loss_and_slopes.register
def _(objective: MarginalLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, weights: Any) -> Solved:
    given, aim = None, t.aim
    if objective.conditional:
        given = torch.where(t.is_complete[:, None], -1, t.labels)
        is_given = given >= 0
        aim = aim.masked_fill(is_given, -1) if aim.dim() == 2 else aim.masked_fill(is_given[..., None], 0.0)
    return _pins(chain, x, perturbed, given, aim, weights, sums=False, integrate=objective.integrate_noise)


def _pins(
    chain: TensorChain,
    x: Tensor,
    noisy: Tensor,
    given: Tensor | None,
    aim: Tensor,
    weights: Weights | None,
    *,
    sums: bool,
    integrate: bool,
) -> Solved:
    """All pinned problems of noisy potentials, some examples after others; those of x are there without noise."""
    out = torch.empty_like(x) if noisy is x else noisy
    size = -(-len(x) // _PARTS)
    losses, tables = [], []
    for some in (slice(first, first + size) for first in range(0, len(x), size)):
        pinned = chain.part(some).pinned(noisy[some], None if given is None else given[some], sums=sums)
        values, w = pinned.toward(x[some], aim[some], integrate=integrate, out=out[some])
        losses.append(values)
        if weights is not None:
            tables.append(pinned.slopes(w, weights.part(some)).pairwise)
        del pinned  # its messages make room for the next
    if weights is None:
        return torch.cat(losses), None
    return torch.cat(losses), Slopes(out, sum(tables[1:], tables[0]) if tables[0].dim() == 2 else torch.cat(tables))


def _shortfall(chain: TensorChain, x: Tensor, t: TensorTargets, weights: Weights | None, *, sums: bool) -> Solved:
    """The total over all labellings minus that over those which have the known labels."""
    keep = weights is not None
    every = chain.total(x, sums=sums, keep=keep, labels=t.labels)
    if t.report.knows_all:
        return every.excess, None if weights is None else every.slopes(weights, less=t.labels)
    known = chain.total(x, t.labels, sums=sums, keep=keep)
    losses = every.values - known.values
    return losses, None if weights is None else every.slopes(weights).add_(known.slopes(weights.over(-1)))


def _there(slopes: Slopes | None) -> Slopes:
    assert slopes is not None
    return slopes
