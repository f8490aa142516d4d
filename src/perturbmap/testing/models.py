"""The check of models: potentials, their gradient, and their independence of the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.data import Dataset
from perturbmap.models.base import LinearModel, Model
from perturbmap.potentials import Floats, Moments, Potentials
from perturbmap.testing.differences import inner, is_slope, nearest_slope
from perturbmap.testing.failure import Trial, describe
from perturbmap.testing.parts import check_part

# Products of one example and of many are rounded differently.
_CLOSE = 1e-9


def check_model(
    model: Model, X: Sequence[Any], n_labels: int, *, refused: Sequence[Sequence[Any]] = (), seed: int = 0
) -> None:
    """Checks that a model gives potentials that keep to their examples, and their true gradient.

    `ConformanceError` says what is wrong.

    model : the `Model` to check
    X : examples that fit the model, as for ``fit``; a few small ones, two at least
    n_labels : the number of labels
    refused : lists of examples that do not fit; the model's ``check`` must raise ValueError for each
    seed : the seed of the random weights

    Checked are the blocks of weights; that ``apply`` and ``potentials`` agree; that an example has the same
    potentials and the same random stream in every batch; and that the pullback is the gradient: by finite
    differences, block by block, and for a `LinearModel` as the adjoint.

    >>> rng = np.random.default_rng(0)
    >>> pm.testing.check_model(pm.SequenceModel(), [rng.normal(size=(n, 3)) for n in (1, 2, 4)], n_labels=2)
    """
    check_part(model, Model)
    data, rng = Dataset.from_examples(X), np.random.default_rng(seed)
    if len(data) < 2:
        raise ValueError(f"X must hold two examples at least, to try batches of them, but holds {len(data)}.")
    alone = sorted(range(len(data)), key=lambda n: int(data.layout.site_counts[n]))
    with Trial(model, lambda: _describe(data, n_labels)) as trial:
        model.check(data, n_labels)
        _check_blocks(trial, model, data, n_labels)
    for n in alone:
        _check_batch(model, data.take(np.array([n])), n_labels, rng)
    _check_batch(model, data, n_labels, rng)
    _check_independence(model, data, n_labels, rng)
    for number, examples in enumerate(refused):
        _check_refused(model, Dataset.from_examples(examples), n_labels, f"refused[{number}]")


def _check_refused(model: Model, data: Dataset, n_labels: int, name: str) -> None:
    with Trial(model, lambda: _describe(data, n_labels)) as trial:
        claim = f"`check` refuses examples that do not fit, {name}"
        trial.refuses(claim, ValueError, lambda: model.check(data, n_labels))


def _describe(batch: Dataset, n_labels: int, **more: Any) -> str:
    matrix = batch.features @ np.eye(batch.n_features)
    return describe(
        features=matrix,
        edges=batch.edges,
        edge_features=None
        if batch.edge_features is None
        else batch.edge_features @ np.eye(batch.edge_features.n_columns),
        label_features=batch.label_features,
        site_offsets=batch.layout.site_offsets,
        n_labels=n_labels,
        **more,
    )


def _check_blocks(trial: Trial, model: Model, data: Dataset, n_labels: int) -> None:
    shapes = model.shapes(data, n_labels)
    trial.holds(
        "`shapes` is a dict from the names of blocks to tuples of integers",
        isinstance(shapes, dict)
        and all(isinstance(shape, tuple) and all(isinstance(n, int) for n in shape) for shape in shapes.values()),
        f"found: {shapes!r}",
    )
    n_weights = sum(math.prod(shape) for shape in shapes.values())
    trial.equal("`n_weights` is the size of all blocks", model.n_weights(data, n_labels), n_weights)
    for n in range(len(data)):
        one = model.shapes(data.take(np.array([n])), n_labels)
        trial.holds(
            "the blocks of weights are the same for every batch of the examples",
            one == shapes,
            f"all examples:    {shapes}\nexample {n} alone: {one}",
        )
    blocks = model.unpack(np.arange(float(n_weights)), data, n_labels)
    trial.holds(
        "`unpack` gives every block in its shape",
        {name: block.shape for name, block in blocks.items()} == shapes,
        f"found: { {name: block.shape for name, block in blocks.items()} }",
    )
    trial.holds(
        "every name in `nonnegative` is that of a block",
        set(model.nonnegative) <= set(shapes),
        f"nonnegative: {model.nonnegative}\nblocks:      {list(shapes)}",
    )
    projected = model.unpack(model.project(np.full(n_weights, -1.0), data, n_labels), data, n_labels)
    for name, block in projected.items():
        expected = 0.0 if name in model.nonnegative else -1.0
        trial.holds("`project` makes the nonnegative blocks so, and no others", block == expected, f"block: {name}")
    trial.holds("`squared_length` is a positive number", model.squared_length(data, n_labels) > 0)
    trial.holds("`absolute_length` is a positive number", model.absolute_length(data, n_labels) > 0)
    positions = model.site_weights(data, n_labels)
    if positions is not None:
        _check_site_weights(trial, model, data, n_labels, positions)


def _check_site_weights(
    trial: Trial, model: Model, data: Dataset, n_labels: int, positions: NDArray[np.intp]
) -> None:
    """Positions in w: of each feature and of the bias, of one sign in the scores or of two."""
    rows, w = data.n_features + 1, np.zeros(model.n_weights(data, n_labels))
    trial.equal("`site_weights` has a row for each feature and one for the bias", len(positions), rows)
    signed = np.isin(positions, model.nonnegative_weights(data, n_labels))
    distinct = len(np.unique(positions)) == positions.size
    trial.holds("`site_weights` are distinct weights of either sign", distinct and not signed.any())
    ones = np.hstack([data.features @ np.eye(data.n_features), np.ones((data.n_sites, 1))])
    for row in {0, rows - 1}:
        w[:] = 0.0
        w[positions[row]] = 1.0
        scores = np.abs(model.potentials(w, data, n_labels).unary)
        how = "a weight of `site_weights` multiplies its feature, and the bias 1"
        trial.close(how, scores, np.abs(ones[:, [row] * n_labels]), 1e-6, _CLOSE)


def _random_weights(model: Model, data: Dataset, n_labels: int, rng: np.random.Generator) -> Floats:
    """Weights of both signs, and positive ones where they must not be negative."""
    w = rng.normal(size=model.n_weights(data, n_labels)).round(6)
    positive = model.nonnegative_weights(data, n_labels)
    w[positive] = np.abs(w[positive])
    return w


def _random_moments(f: Potentials, rng: np.random.Generator) -> Moments:
    return Moments(rng.normal(size=f.unary.shape), None if f.pairwise is None else rng.normal(size=f.pairwise.shape))


def _check_batch(model: Model, batch: Dataset, n_labels: int, rng: np.random.Generator) -> None:
    w = _random_weights(model, batch, n_labels, rng)
    with Trial(model, lambda: _describe(batch, n_labels, w=w)) as trial:
        f, pullback = model.apply(w, batch, n_labels)
        trial.equal(
            "there is a row of unary potentials for each site of the batch", f.unary.shape, (batch.n_sites, n_labels)
        )
        trial.equal("the potentials have the examples of the batch", f.site_offsets, batch.layout.site_offsets)
        trial.equal(
            "the potentials keep the random streams of the examples (make them by Potentials.on(batch.layout, ...))",
            f.layout.streams,
            batch.layout.streams,
        )
        same = model.potentials(w, batch, n_labels)
        trial.equal("`potentials` gives the potentials of `apply`: unary", same.unary, f.unary)
        trial.equal("`potentials` gives the potentials of `apply`: pairwise", same.pairwise, f.pairwise)
        trial.equal("`potentials` gives the potentials of `apply`: edges", same.edges, f.edges)
        moments = _random_moments(f, rng)
        gradient = pullback(moments)
        trial.equal("the pullback has one number for each weight", gradient.shape, w.shape)
        if isinstance(model, LinearModel):
            expected = inner(moments, f.unary, f.pairwise)
            trial.close(
                "the pullback of a linear model is its adjoint: w @ pullback(moments) = sum(moments * potentials)",
                w @ gradient,
                expected,
                _CLOSE,
                _CLOSE * (1 + float(np.abs(w) @ np.abs(gradient))),
            )
        trial.holds(
            "`is_linear` is true of a LinearModel, and of no other", model.is_linear == isinstance(model, LinearModel)
        )

        def value(at: Floats) -> float:
            other = model.potentials(at, batch, n_labels)
            return inner(moments, other.unary, other.pairwise)

        for name, block in model.unpack(np.arange(float(len(w))), batch, n_labels).items():
            step = np.zeros(len(w))
            step[block.ravel().astype(np.intp)] = rng.normal(size=block.size)
            expected = float(step @ gradient)
            # Weights that must not be negative are positive here, by more than a step.
            found = nearest_slope(partial(_along, value, w, step), expected)
            trial.holds(
                f"the pullback is the gradient of sum(moments * potentials), by finite differences: block {name!r}",
                is_slope(found, expected, abs(value(w))),
                f"difference quotient: {found}\nfrom the pullback:   {expected}",
            )


def _along(value: Callable[[Floats], float], w: Floats, step: Floats, t: float) -> float:
    return value(w + t * step)


def _check_independence(model: Model, data: Dataset, n_labels: int, rng: np.random.Generator) -> None:
    """An example has the same potentials, and the same noise, whatever else is in the batch."""
    w = _random_weights(model, data, n_labels, rng)
    whole = model.potentials(w, data, n_labels)
    for indices in (rng.permutation(len(data)), rng.permutation(len(data))[: max(1, len(data) // 2)]):
        _check_taken(model, data, n_labels, indices, w, whole)


def _check_taken(
    model: Model, data: Dataset, n_labels: int, indices: NDArray[np.intp], w: Floats, whole: Potentials
) -> None:
    with Trial(model, lambda: _describe(data, n_labels, w=w, taken=indices)) as trial:
        f = model.potentials(w, data.take(indices), n_labels)
        streams = data.layout.streams[indices]
        trial.equal("an example keeps its random stream in every batch", f.layout.streams, streams)
        for place, n in enumerate(indices.tolist()):
            one, other = f[place], whole[n]
            how = "of an example are the same in every batch"
            trial.close(f"the unary potentials {how}", one.unary, other.unary, _CLOSE, _CLOSE)
            trial.equal(f"the edges {how}", one.edges, other.edges)
            trial.close(f"the tables {how}", one.tables, other.tables, _CLOSE, _CLOSE)
