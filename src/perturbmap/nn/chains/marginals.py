"""The ways to marginals of the library in tensors of chains; any other is left to the compiled core."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from perturbmap.inference import MarginalMethod
from perturbmap.inference.marginal_methods import (
    CountedMarginals,
    ExactMarginals,
    IntegratedMarginals,
    PinnedMarginals,
)
from perturbmap.nn.chains.batch import Answer, ChainBatch
from perturbmap.nn.chains.chain import Slopes, TensorChain
from perturbmap.nn.chains.sweep import Key, Weights


@singledispatch
def marginals_and_pullback(method: MarginalMethod, chain: TensorChain, x: Tensor, perturbed: Tensor | None) -> Answer:
    """`MarginalMethod.with_pullback` in tensors; ``perturbed`` has the draws one after another.

    The gradients that the pullback is given, once, are zero beyond an example's length.
    """
    raise NotImplementedError(f"{type(method).__name__} is computed in the compiled core.")


def is_known(method: MarginalMethod) -> bool:
    """Whether the method has a formula here."""
    return marginals_and_pullback.dispatch(type(method)) is not marginals_and_pullback.dispatch(object)


def marginals_of(method: MarginalMethod, batch: ChainBatch, key: Key | None, n_draws: int) -> Any:
    """Marginals from the draws that begin with the key's, in the layout and dtype of the potentials.

    None where something is wrong with the potentials: whoever solves it in the core says what.
    """
    chain, x, report = batch.chain, batch.x, batch.look()

    def solve() -> Answer:
        perturbed = None if key is None else chain.perturbed(x, key, n_draws)
        q, pullback = marginals_and_pullback(method, chain, x, perturbed)
        # A copy: the pullback needs the marginals, and whoever gets them may change them in place.
        return q.clone(), pullback

    q = batch.solved(solve)
    if chain.rims is not None and not chain.is_possible(x):
        return None
    return batch.unpadded(q.to(batch.dtype), 0.0) if report.is_good else None


@marginals_and_pullback.register
def _(method: ExactMarginals, chain: TensorChain, x: Any, perturbed: Any) -> Answer:
    pinned = chain.pinned(x, sums=True)
    q = (pinned.others + x).softmax(2)
    return q, lambda g: pinned.slopes(_softmax_pullback(q, g), Weights(None))


@marginals_and_pullback.register
def _(method: PinnedMarginals, chain: TensorChain, x: Any, perturbed: Any) -> Answer:
    pinned = chain.pinned(perturbed, sums=False)
    others = pinned.others.unflatten(0, (-1, len(x)))
    q, n = (others.mean(0) + x).softmax(2), len(others)
    return q, lambda g: _over_draws(
        pinned.slopes((_softmax_pullback(q, g) / n).repeat(n, 1, 1), Weights(None)), len(x)
    )


@marginals_and_pullback.register
def _(method: IntegratedMarginals, chain: TensorChain, x: Any, perturbed: Any) -> Answer:
    pinned = chain.pinned(perturbed, sums=False)
    p = (pinned.others.unflatten(0, (-1, len(x))) + x).softmax(3)
    return p.mean(0), lambda g: _over_draws(
        pinned.slopes((_softmax_pullback(p, g) / len(p)).flatten(0, 1), Weights(None)), len(x)
    )


@marginals_and_pullback.register
def _(method: CountedMarginals, chain: TensorChain, x: Any, perturbed: Any) -> Answer:
    best = chain.best(perturbed).unflatten(0, (-1, len(x)))
    counted = torch.nn.functional.one_hot(best, x.shape[2]).to(x.dtype).mean(0)

    def pull(g: Tensor) -> Slopes:
        return marginals_and_pullback(IntegratedMarginals(), chain, x, perturbed)[1](g)

    return counted, pull


def _over_draws(slopes: Slopes, n_examples: int) -> Slopes:
    """The sum over several draws of the same examples, which are one after another."""
    pairwise = slopes.pairwise
    if pairwise.dim() > 2:
        pairwise = pairwise.unflatten(0, (-1, n_examples)).sum(0)
    return Slopes(slopes.unary.unflatten(0, (-1, n_examples)).sum(0), pairwise)


def _softmax_pullback(p: Tensor, g: Tensor) -> Tensor:
    """Where no gradient comes in, none goes out, whatever stands there."""
    return torch.where((g != 0).any(-1, keepdim=True), p * (g - (g * p).sum(-1, keepdim=True)), 0.0)
