"""The pinned problems of a structure: values, maximisers, moments, masks."""

from __future__ import annotations

import numpy as np

from perturbmap.potentials import Floats, Labels, Moments, Potentials
from perturbmap.structures.base import Pinned, Structure
from perturbmap.testing.failure import Trial
from perturbmap.testing.instances import Case, is_possible


def random_weights(values: Floats, seed: int) -> Floats:
    """Weights of both signs, some zero, none on an impossible pin."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=values.shape) * (rng.random(values.shape) < 0.7)
    return np.where(np.isneginf(values), 0.0, weights)


def check_pins(
    trial: Trial, structure: Structure, definition: Structure, case: Case, rng: np.random.Generator, tolerance: float
) -> None:
    """Every pin among many has the value, and a maximiser, that it has alone."""
    f, given = case.f, case.given
    pinned, expected = structure.pinned(f, given=given), definition.pinned(f, given=given).values
    free, best = structure.maximise(f, given)
    trial.equal("the free labels of the pins are those of `maximise`", pinned.free, free)
    trial.equal(
        "a pinned value is -inf exactly where no labelling has the pin", pinned.values == -np.inf, expected == -np.inf
    )
    satisfied = np.take_along_axis(pinned.values, free[:, None].astype(np.intp), axis=1)[:, 0]
    trial.equal("a pin that the free labels satisfy has their value, bit by bit", satisfied, f.layout.repeat(best))
    if structure.is_exact:
        trial.close(
            "a pinned value is the maximum over the labellings that have the pin",
            pinned.values,
            expected,
            tolerance,
            tolerance,
        )
    trial.holds(
        "no pinned value exceeds the maximum over the labellings that have the pin",
        pinned.values <= expected + tolerance * (1 + np.abs(np.where(np.isfinite(expected), expected, 0))),
        f"maximum: {expected.tolist()}\nfound:   {pinned.values.tolist()}",
    )
    for name, mine, theirs in zip(
        ("free labels", "values"), structure.pinned_values(f, given), (pinned.free, pinned.values), strict=True
    ):
        trial.equal(f"`pinned_values` returns the {name} of `pinned`", mine, theirs)
    maximisers = _check_maximisers(trial, definition, case, pinned, tolerance)
    _check_moments(trial, f, pinned, maximisers, rng)


def _check_maximisers(
    trial: Trial, definition: Structure, case: Case, pinned: Pinned, tolerance: float
) -> dict[tuple[int, int], Labels]:
    """The labelling of every pin, as its moments show it."""
    f, given = case.f, case.given
    found: dict[tuple[int, int], Labels] = {}
    for d, k in np.argwhere(np.isfinite(pinned.values)).tolist():
        pin = f"with site {d} pinned to label {k}"
        unary = pinned.moments(_one_weight(f, d, k)).unary
        y = unary.argmax(axis=1).astype(np.int32)
        trial.close(
            f"the moments of one pin are the indicators of a labelling, {pin}", unary, f.indicators(y).unary, 0, 1e-12
        )
        trial.holds(f"the maximiser of a pin has it, {pin}", y[d] == k, f"found: {y.tolist()}")
        if given is not None:
            trial.equal(f"the maximiser of a pin has the given labels, {pin}", y[given >= 0], given[given >= 0])
        trial.holds(
            f"the maximiser of a pin is allowed, {pin}", is_possible(definition, f, y), f"found: {y.tolist()}"
        )
        own = definition.maximise(f, y)[1]
        trial.close(
            f"a pinned value is the score of its maximiser, {pin}", pinned.values[d, k], own[0], tolerance, tolerance
        )
        found[d, k] = y
    return found


def _check_moments(
    trial: Trial,
    f: Potentials,
    pinned: Pinned,
    maximisers: dict[tuple[int, int], Labels],
    rng: np.random.Generator,
) -> None:
    weights = random_weights(pinned.values, int(rng.integers(2**31)))
    unary = np.zeros(f.unary.shape)
    tables = None if f.pairwise is None else np.zeros(f.pairwise.shape)
    for (d, k), y in maximisers.items():
        part = f.indicators(y, weights[d, k])
        unary += part.unary
        if tables is not None and part.pairwise is not None:
            tables += part.pairwise
    check_same_moments(
        trial,
        "moments are the weighted sum over the pinned maximisers",
        pinned.moments(weights),
        Moments(unary, tables),
    )
    impossible = np.argwhere(~np.isfinite(pinned.values))
    if len(impossible):
        d, k = impossible[0].tolist()
        trial.refuses(
            f"a weight on the impossible pin of site {d} to label {k} is refused",
            ValueError,
            lambda: pinned.moments(_one_weight(f, d, k)),
        )


def check_same_moments(
    trial: Trial, claim: str, found: Moments, expected: Moments, rtol: float = 1e-11, atol: float = 1e-11
) -> None:
    """Unary and pairwise moments are nearly the same; where there are no tables, neither has pairwise ones."""
    trial.close(f"{claim}: unary", found.unary, expected.unary, rtol, atol)
    if found.pairwise is None or expected.pairwise is None:
        trial.equal(f"{claim}: pairwise", found.pairwise, expected.pairwise)
    else:
        trial.close(f"{claim}: pairwise", found.pairwise, expected.pairwise, rtol, atol)


def check_mask_of_pins(
    trial: Trial, structure: Structure, case: Case, rng: np.random.Generator, tolerance: float
) -> None:
    """A mask of pins changes which values are there, not what they are."""
    f, given = case.f, case.given
    mask = rng.random(f.unary.shape) < 0.5
    everything = structure.pinned(f, given=given).values
    some = structure.pinned(f, pins=mask, given=given)
    known = mask | (np.arange(f.n_labels) == some.free[:, None])
    trial.close(
        f"pins that a mask asks for have their values, with pins = {mask.tolist()}",
        some.values[known],
        everything[known],
        tolerance,
        tolerance,
    )
    trial.holds(
        f"pins that a mask leaves out, and the free labels do not satisfy, are NaN, with pins = {mask.tolist()}",
        np.isnan(some.values[~known]),
        f"found: {some.values.tolist()}",
    )
    left_out = np.argwhere(~known)
    if len(left_out):
        d, k = left_out[0].tolist()
        trial.refuses(
            f"a weight on a pin that the mask leaves out is refused, with pins = {mask.tolist()}",
            ValueError,
            lambda: some.moments(_one_weight(f, d, k)),
        )


def _one_weight(f: Potentials, d: int, k: int) -> Floats:
    weights = np.zeros(f.unary.shape)
    weights[d, k] = 1.0
    return weights
