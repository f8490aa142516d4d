"""The check of structures: against enumeration, on random small instances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perturbmap.noise import gumbel_noise, perturb
from perturbmap.structures.base import InfeasibleError, Structure
from perturbmap.structures.brute_force import BruteForce
from perturbmap.structures.summable import SummableStructure
from perturbmap.testing.failure import Trial, describe
from perturbmap.testing.instances import SIZES, Case, Make, a_labelling, batches, is_possible, single_cases
from perturbmap.testing.parts import check_part
from perturbmap.testing.pins import check_mask_of_pins, check_pins, random_weights
from perturbmap.testing.sums import check_sums, check_sums_of_batches


def check_structure(
    structure: Structure,
    make: Make,
    definition: Structure | None = None,
    *,
    sizes: Sequence[tuple[int, int]] = SIZES,
    n_repeats: int = 4,
    seed: int = 0,
    tolerance: float = 1e-11,
) -> None:
    """Checks that a structure answers as its definition does, which lists all labellings.

    `ConformanceError` says what is wrong.

    structure : the `Structure` to check
    make : makes the potentials of one random example that fits the structure: `chains`, `forests`, `graphs`,
        `attractive_graphs`, `unaries`, or a function ``(rng, n_sites, n_labels, integers) -> Potentials`` of your own
    definition : the same set of labellings, listed: ``BruteForce(allowed=...)``; by default all labellings
    sizes : pairs (n_sites, n_labels) to try, in this order; say which, where the structure does not take them all
    n_repeats : the number of random instances of each size
    seed : the seed of the instances
    tolerance : the relative and absolute difference that values may have

    Checked are the maximum, given labels and those that no labelling has, scores, upper bounds, pinned values, their
    maximisers, free labels and moments, masks of pins; batches and perturbed copies, which must be their examples one
    by one, bit by bit; threads, which must change no bit; and sums, entropies, spans and samples, if it says
    that it can sum. One that says that it is not exact (``is_exact = False``) may miss a maximum, but its labels must
    be allowed, its values those of its labels, and its bounds true.

    >>> pm.testing.check_structure(pm.Chain(), pm.testing.chains)
    >>> pm.testing.check_structure(
    ...     pm.Matching(),
    ...     pm.testing.unaries,
    ...     pm.BruteForce(allowed=lambda y: len(set(y)) == len(y)),
    ...     sizes=[(1, 1), (1, 2), (2, 2), (2, 3), (3, 3)],
    ... )
    """
    check_part(structure, Structure)
    listed = BruteForce() if definition is None else definition
    _check_what_it_says(structure)
    rng = np.random.default_rng(seed)
    for case in single_cases(rng, make, listed, sizes, n_repeats):
        with Trial(structure, case.describe) as trial:
            before = (case.f.unary.copy(), None if case.f.pairwise is None else case.f.pairwise.copy())
            _check_maximum(trial, structure, listed, case, tolerance)
            check_pins(trial, structure, listed, case, rng, tolerance)
            check_mask_of_pins(trial, structure, case, rng, tolerance)
            if structure.can_sum:
                check_sums(trial, structure, listed, case, rng, tolerance)
            trial.equal("the potentials are left as they are: unary", case.f.unary, before[0])
            trial.equal("the potentials are left as they are: pairwise", case.f.pairwise, before[1])
        _check_scores(structure, listed, case, rng, tolerance)
        _check_what_is_impossible(structure, listed, case, rng)
    for case in batches(rng, make, listed, sizes, n_repeats):
        with Trial(structure, case.describe) as trial:
            _check_batch(trial, structure, case)
            _check_threads(trial, structure, case)
            if structure.can_sum:
                check_sums_of_batches(trial, structure, case, rng, tolerance)


def _check_what_it_says(structure: Structure) -> None:
    trial = Trial(structure, lambda: describe(is_exact=structure.is_exact, can_sum=structure.can_sum))
    trial.holds(
        "one that can sum derives from SummableStructure, and one that derives from it can sum",
        structure.can_sum == isinstance(structure, SummableStructure),
    )
    n_threads = structure.n_threads
    trial.holds("with_threads sets n_threads", structure.with_threads(2).n_threads == 2)
    trial.holds("with_threads leaves the structure itself as it is", structure.n_threads == n_threads)


def _check_maximum(trial: Trial, structure: Structure, definition: Structure, case: Case, tolerance: float) -> None:
    f, given = case.f, case.given
    labels, values = structure.maximise(f, given)
    trial.equal("`maximise` returns one label for each site", labels.shape, (f.n_sites,))
    trial.equal("`maximise` returns one value for each example", values.shape, (len(f),))
    trial.holds(
        "`maximise` returns integers from 0 to n_labels - 1",
        labels.dtype.kind == "i" and ((labels >= 0) & (labels < f.n_labels)).all(),
        f"found: {labels.tolist()}",
    )
    if given is not None:
        fixed = given >= 0
        trial.equal("the labels of `maximise` are the given ones where there are any", labels[fixed], given[fixed])
    trial.holds(
        "the labels of `maximise` are a labelling that the definition allows",
        is_possible(definition, f, labels),
        f"found: {labels.tolist()}",
    )
    own = definition.maximise(f, labels)[1]
    trial.close("the value of `maximise` is the score of its labels", values, own, tolerance, tolerance)
    _, best = definition.maximise(f, given)
    if structure.is_exact:
        trial.close("the value of `maximise` is the maximum", values, best, tolerance, tolerance)
    trial.equal("`argmax` returns the labels of `maximise`", structure.argmax(f, given), labels)

    same, same_values, bounds = structure.maximise_with_bound(f, given)
    trial.equal("`maximise_with_bound` returns the labels of `maximise`", same, labels)
    trial.equal("`maximise_with_bound` returns the values of `maximise`", same_values, values)
    slack = tolerance * (1 + np.abs(best))
    trial.holds(
        "the bound of `maximise_with_bound` is no lower than the maximum",
        bounds >= best - slack,
        f"maximum: {best.tolist()}\nbound:   {bounds.tolist()}",
    )
    if structure.is_exact:
        trial.equal("the bound of an exact structure is the value itself", bounds, values)


def _check_scores(
    structure: Structure, definition: Structure, case: Case, rng: np.random.Generator, tolerance: float
) -> None:
    """Scores of allowed labellings, of one alone and of several at once."""
    f = case.f
    several = np.stack([a_labelling(rng, definition, f) for _ in range(3)])
    with Trial(structure, Case(f, several[0]).describe) as trial:
        one = structure.evaluate(f, several[0])
        expected = definition.maximise(f, several[0])[1]
        trial.close("`evaluate` is the score of the labels", one, expected, tolerance, tolerance)
        alone = np.stack([structure.evaluate(f, y) for y in several])
        trial.equal("`evaluate` of several labellings is that of each", structure.evaluate(f, several), alone)
        labels, values = structure.maximise(f, several[0])
        trial.equal("with all labels given, `maximise` returns them", labels, several[0])
        trial.close("with all labels given, the value is their score", values, expected, tolerance, tolerance)


def _check_what_is_impossible(
    structure: Structure, definition: Structure, case: Case, rng: np.random.Generator
) -> None:
    """Random labels at random sites, whether or not a labelling has them."""
    f = case.f
    wild = np.where(rng.random(f.n_sites) < 0.7, rng.integers(0, f.n_labels, f.n_sites), -1).astype(np.int32)
    with Trial(structure, Case(f, wild).describe) as trial:
        if is_possible(definition, f, wild):
            structure.maximise(f, wild)
            return
        trial.refuses(
            "InfeasibleError says that no labelling has the given labels",
            InfeasibleError,
            lambda: structure.maximise(f, wild),
        )
        known = np.flatnonzero(wild >= 0)
        is_forbidden = np.isneginf(f.unary[known, wild[known]]).any()
        trial.holds(
            "`allows_every_labelling` is true only where no labels are ruled out, but for those with -inf in unary",
            is_forbidden or not structure.allows_every_labelling,
        )


def _check_batch(trial: Trial, structure: Structure, case: Case) -> None:
    """Perturbed copies of a batch give what each copy of each example gives alone."""
    f, given = case.f, case.given
    copies = perturb(f, gumbel_noise(f, seed=1, n_draws=3))
    labels, values, bounds = structure.maximise_with_bound(copies, given)
    pinned = structure.pinned(copies, given=given)
    weights = random_weights(pinned.values, 7)
    moments = pinned.moments(weights)
    tables = None if moments.pairwise is None else np.zeros(moments.pairwise.shape)
    how = "of a batch of perturbed copies are, bit by bit, those of each copy of each example alone"
    for copy in range(3):
        for n in range(len(f)):
            sites = f.layout.sites(n)
            one, known = f[n].with_unary(copies.unary[copy, sites]), None if given is None else given[sites]
            own_labels, own_values, own_bounds = structure.maximise_with_bound(one, known)
            trial.equal(f"the labels {how}", labels[copy, sites], own_labels)
            trial.equal(f"the values {how}", values[copy, n : n + 1], own_values)
            trial.equal(f"the bounds {how}", bounds[copy, n : n + 1], own_bounds)
            alone = structure.pinned(one, given=known)
            trial.equal(f"the free labels of the pins {how}", pinned.free[copy, sites], alone.free)
            trial.equal(f"the pinned values {how}", pinned.values[copy, sites], alone.values)
            part = alone.moments(weights[copy, sites])
            trial.equal(f"the unary moments {how}", moments.unary[copy, sites], part.unary)
            if tables is not None and part.pairwise is not None:
                tables[... if f.is_shared else f.layout.edges_between(n)] += part.pairwise
    if tables is not None and moments.pairwise is not None:
        trial.close("the pairwise moments of a batch add up", moments.pairwise, tables, 1e-11, 1e-11)


def _check_threads(trial: Trial, structure: Structure, case: Case) -> None:
    copies = perturb(case.f, gumbel_noise(case.f, seed=2, n_draws=4))
    one, other = structure.with_threads(1), structure.with_threads(3)
    for name, mine, theirs in zip(
        ("labels", "values"), one.maximise(copies, case.given), other.maximise(copies, case.given), strict=True
    ):
        trial.equal(f"the number of threads changes no bit of the {name} of `maximise`", theirs, mine)
    pins, other_pins = one.pinned(copies, given=case.given), other.pinned(copies, given=case.given)
    trial.equal("the number of threads changes no bit of the pinned values", other_pins.values, pins.values)
    weights = random_weights(pins.values, 7)
    for mine, theirs in zip(pins.moments(weights), other_pins.moments(weights), strict=True):
        trial.equal("the number of threads changes no bit of the moments", theirs, mine)
