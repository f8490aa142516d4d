"""The objectives of the library in tensors of chains; any other is left to the compiled core."""

from __future__ import annotations

from collections.abc import Callable
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

#: The loss of each example, in float64, and from weights of the examples to the slopes of the weighted sum.
Weighed = tuple[Tensor, Callable[[Weights], Slopes]]


@singledispatch
def loss_and_pullback(
    objective: Objective, chain: TensorChain, x: Tensor, perturbed: Tensor | None, t: TensorTargets, keep: bool
) -> Weighed:
    """The negative of `Objective.value_and_grad` in tensors; ``perturbed`` is x with noise, None where nothing is.

    The slopes can be asked for once, and with ``keep`` alone. Perturbed potentials may be overwritten.
    """
    raise NotImplementedError(f"{type(objective).__name__} is solved in the compiled core.")


@cache
def is_known(kind: type[Objective]) -> bool:
    """Whether objectives of this type have a formula here."""
    return loss_and_pullback.dispatch(kind) is not loss_and_pullback.dispatch(object)


def loss_of(
    objective: Objective, batch: ChainBatch, targets: TensorTargets, key: Key | None, n_draws: int, reduction: str
) -> Tensor | None:
    """The negative objective of a batch, the mean over the draws that begin with the key's.

    reduction : "mean" or "sum" over the examples, or "none"

    None where something is wrong with the tensors, or with the labels: whoever solves it in the core says what.
    """
    chain, x, keep = batch.chain, batch.x, batch.wants_gradient
    keys = [None] if key is None else [replace(key, first_draw=key.first_draw + r) for r in range(n_draws)]
    divisor = len(x) if reduction == "mean" else 1
    # A sum over sites may be large: it is never less than float32, as in torch's own losses under autocast.
    dtype = torch.promote_types(batch.dtype, torch.float32)

    def of_draw(each: Key | None, keep: bool) -> Weighed:
        perturbed = None if each is None else chain.perturbed(x, each)
        return loss_and_pullback(objective, chain, x, perturbed, targets, keep)

    def solve() -> Answer:
        if len(keys) == 1:
            losses, pullback = of_draw(keys[0], keep)
            return reduced(losses), lambda g: pullback(Weights(g, divisor))
        # Nothing is kept of several draws, which would fill the memory: each is solved again for its gradient.
        return reduced(torch.stack([of_draw(each, False)[0] for each in keys]).mean(0)), over_draws

    def reduced(losses: Tensor) -> Tensor:
        whole = losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
        return whole.to(dtype)

    def over_draws(g: Tensor) -> Slopes:
        weights = Weights(g, divisor * len(keys))
        total = of_draw(keys[0], True)[1](weights)
        for other in keys[1:]:
            total.add_(of_draw(other, True)[1](weights))
        return total

    loss = batch.solved(solve)
    if chain.rims is not None and not chain.is_possible(x, targets.labels):
        return None
    return loss if targets.report.is_good else None


@loss_and_pullback.register
def _(objective: ExactLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, keep: bool) -> Weighed:
    return _shortfall(chain, x, t, keep, sums=True)


@loss_and_pullback.register
def _(objective: LogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, keep: bool) -> Weighed:
    return _shortfall(chain, perturbed, t, keep, sums=False)


@loss_and_pullback.register
def _(objective: StructuredHinge, chain: TensorChain, x: Any, perturbed: Any, t: Any, keep: bool) -> Weighed:
    c = t.label_weights
    margin = c.sum(2, keepdim=True) - c  # zero for the label that is known, and where none is
    return _shortfall(chain, x + margin, t, keep, sums=False)


@loss_and_pullback.register
def _(
    objective: ExactMarginalLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, keep: bool
) -> Weighed:
    pinned = chain.pinned(x, sums=True)
    losses, w = pinned.toward(x, t.aim, integrate=True)
    return losses, lambda v: pinned.slopes(w, v)


@loss_and_pullback.register
def _(objective: MarginalLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, keep: bool) -> Weighed:
    given, aim = None, t.aim
    if objective.conditional:
        given = torch.where(t.is_complete[:, None], -1, t.labels)
        is_given = given >= 0
        aim = aim.masked_fill(is_given, -1) if aim.dim() == 2 else aim.masked_fill(is_given[..., None], 0.0)
    pinned = chain.pinned(perturbed, given, sums=False)
    losses, w = pinned.toward(x, aim, integrate=objective.integrate_noise)
    return losses, lambda v: pinned.slopes(w, v)


def _shortfall(chain: TensorChain, x: Tensor, t: TensorTargets, keep: bool, *, sums: bool) -> Weighed:
    """The total over all labellings minus that over those which have the known labels."""
    every = chain.total(x, sums=sums, keep=keep, labels=t.labels)
    if t.report.knows_all:
        return every.excess, lambda v: every.slopes(v, less=t.labels)
    known = chain.total(x, t.labels, sums=sums, keep=keep)
    return every.values - known.values, lambda v: every.slopes(v).add_(known.slopes(v.over(-1)))
