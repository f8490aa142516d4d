"""The objectives of the library in tensors of chains; any other is left to the compiled core."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from perturbmap.nn.chains.batch import ChainBatch
from perturbmap.nn.chains.chain import Slopes, TensorChain
from perturbmap.nn.chains.sweep import Key
from perturbmap.nn.chains.targets import TensorTargets
from perturbmap.objectives import (
    ExactLogLikelihood,
    ExactMarginalLogLikelihood,
    LogLikelihood,
    MarginalLogLikelihood,
    Objective,
    StructuredHinge,
)

#: The value of each example, in float64, and its gradient if it was asked for.
Answer = tuple[Tensor, Slopes | None]


@singledispatch
def value_and_slopes(
    objective: Objective, chain: TensorChain, x: Tensor, perturbed: Tensor | None, t: TensorTargets, slopes: bool
) -> Answer:
    """`Objective.value_and_grad` in tensors; ``perturbed`` is x with noise, None where nothing is perturbed."""
    raise NotImplementedError(f"{type(objective).__name__} is solved in the compiled core.")


def is_known(objective: Objective) -> bool:
    """Whether the objective has a formula here."""
    return value_and_slopes.dispatch(type(objective)) is not value_and_slopes.dispatch(object)


def objective_of(
    objective: Objective, batch: ChainBatch, targets: TensorTargets, key: Key | None, n_draws: int
) -> Tensor:
    """The objective of each example of a batch, the mean over the draws that begin with the key's."""
    chain, x = batch.chain, batch.x
    keys = [None] if key is None else [replace(key, first_draw=key.first_draw + r) for r in range(n_draws)]
    answers = []
    for each in keys:
        perturbed = None if each is None else chain.perturbed(x, each)
        answers.append(value_and_slopes(objective, chain, x, perturbed, targets, batch.wants_gradient))
    values = torch.stack([value for value, _ in answers]).mean(0)
    slopes = [s for _, s in answers if s is not None]

    def pullback(g: Tensor) -> Slopes:
        return sum(slopes[1:], slopes[0]).scaled(g / len(slopes))

    # A sum over sites may be large: it is never less than float32, as in torch's own losses under autocast.
    return batch.solved(values.to(torch.promote_types(batch.dtype, torch.float32)), pullback)


@value_and_slopes.register
def _(objective: ExactLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, slopes: bool) -> Answer:
    return chain.gain(x, t.labels, sums=True, slopes=slopes)


@value_and_slopes.register
def _(objective: LogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, slopes: bool) -> Answer:
    return chain.gain(perturbed, t.labels, sums=False, slopes=slopes)


@value_and_slopes.register
def _(objective: StructuredHinge, chain: TensorChain, x: Any, perturbed: Any, t: Any, slopes: bool) -> Answer:
    margin = t.label_weights.sum(2, keepdim=True) - t.label_weights
    known, observed = chain.total(x, t.labels, sums=False, slopes=slopes)
    worst, found = chain.total(x + margin, sums=False, slopes=slopes)
    return known - worst, None if observed is None or found is None else observed - found


@value_and_slopes.register
def _(
    objective: ExactMarginalLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, slopes: bool
) -> Answer:
    pinned, c = chain.pinned(x, sums=True), t.label_weights
    log_p = (pinned.others + x).log_softmax(2)
    return _weighted(c, log_p), pinned.slopes(_toward(c, log_p.exp()), spend=True) if slopes else None


@value_and_slopes.register
def _(objective: MarginalLogLikelihood, chain: TensorChain, x: Any, perturbed: Any, t: Any, slopes: bool) -> Answer:
    given, c = None, t.label_weights
    if objective.conditional:
        given = torch.where(t.is_complete[:, None], -1, t.labels)
        c = c.masked_fill(given[..., None] >= 0, 0.0)
    pinned = chain.pinned(perturbed, given, sums=False)
    if objective.integrate_noise:
        log_p = (pinned.others + x).log_softmax(2)
        p = log_p.exp()
    else:
        values = pinned.others + perturbed
        log_p = values - values.amax(2, keepdim=True)
        p = torch.zeros_like(values).scatter_(2, values.argmax(2, keepdim=True), 1.0)
    return _weighted(c, log_p), pinned.slopes(_toward(c, p), spend=True) if slopes else None


def _weighted(c: Tensor, log_p: Tensor) -> Tensor:
    """``sum_d sum_k c[d, k] log_p[d, k]``; where c is zero, log p may be anything."""
    return torch.where(c != 0, c * log_p, 0.0).sum((1, 2), dtype=torch.float64)


def _toward(c: Tensor, p: Tensor) -> Tensor:
    """``c - (sum_k c) p``, zero where nothing is to be learned."""
    total = c.sum(2, keepdim=True)
    return torch.where(total != 0, c - total * p, 0.0)
