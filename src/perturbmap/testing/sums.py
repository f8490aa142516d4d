"""The sums of a structure over all labellings: log-partition, marginals, pinned sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from perturbmap.noise import gumbel_noise, perturb
from perturbmap.potentials import Potentials
from perturbmap.structures.base import Structure
from perturbmap.structures.summable import SummableStructure
from perturbmap.testing.failure import Trial
from perturbmap.testing.instances import Case, is_possible
from perturbmap.testing.pins import check_same_moments, random_weights

#: What potentials are multiplied by: sums must neither overflow nor lose the smallest of probabilities.
_SCALES = (0.0, 1.0, 30.0, 1e3, 1e5)


def check_sums(
    trial: Trial, structure: Structure, definition: Structure, case: Case, rng: np.random.Generator, tolerance: float
) -> None:
    """Sums are those of the listed distribution, for potentials of any range."""
    own, listed = _summable(structure), _summable(definition)
    _check_sums_of(trial, own, listed, case, tolerance, tolerance, "")
    _check_what_it_tells(trial, own, listed, case, rng, tolerance)
    of_unary, of_tables = rng.choice(_SCALES, 2).tolist()
    tables = None if case.f.pairwise is None else of_tables * case.f.pairwise
    unary = np.multiply(case.f.unary, of_unary, where=np.isfinite(case.f.unary), out=case.f.unary.copy())
    extreme = Case(Potentials.on(case.f.layout, unary, tables), case.given)
    how = f", with unary times {of_unary:g} and pairwise times {of_tables:g}"
    _check_sums_of(trial, own, listed, extreme, tolerance, tolerance * max(1.0, of_unary, of_tables), how)


def _check_sums_of(
    trial: Trial,
    structure: SummableStructure,
    definition: SummableStructure,
    case: Case,
    rtol: float,
    atol: float,
    how: str,
) -> None:
    f, given = case.f, case.given
    value, marginals = structure.log_partition(f, given)
    expected_value, expected_marginals = definition.log_partition(f, given)
    trial.close(f"the log-partition is that of the listed labellings{how}", value, expected_value, rtol, atol)
    claim = f"the marginals are those of the listed distribution{how}"
    check_same_moments(trial, claim, marginals, expected_marginals, rtol, atol)
    sums, expected = structure.pinned_sums(f, given), definition.pinned_sums(f, given)
    trial.close(
        f"pinned sums are those of the labellings with the pin{how}", sums.values, expected.values, rtol, atol
    )
    weights = random_weights(sums.values, 5)
    claim = f"the moments of pinned sums are weighted marginals given the pins{how}"
    check_same_moments(trial, claim, sums.moments(weights), expected.moments(weights), rtol, atol)
    impossible = sums.values == -np.inf
    if impossible.any():
        trial.refuses(
            "a weight on an impossible pin is refused",
            ValueError,
            lambda: sums.moments(np.where(impossible, 1.0, 0.0)),
        )


def _check_what_it_tells(
    trial: Trial,
    structure: SummableStructure,
    definition: SummableStructure,
    case: Case,
    rng: np.random.Generator,
    tolerance: float,
) -> None:
    """Entropy, probabilities of spans, and samples that can be."""
    f, given = case.f, case.given
    trial.close(
        "the entropy is that of the listed distribution",
        structure.entropy(f, given),
        definition.entropy(f, given),
        tolerance,
        tolerance,
    )
    spans = some_spans(rng, f)
    trial.close(
        f"the probability of a span is that of the labellings that have its labels, with spans = {spans}",
        structure.span_probabilities(f, spans, given),
        definition.span_probabilities(f, spans, given),
        tolerance,
        tolerance,
    )
    for y in structure.sample(f, 3, given=given, rng=int(rng.integers(2**31))):
        trial.holds("a sample is allowed", is_possible(definition, f, y), f"found: {y.tolist()}")
        if given is not None:
            trial.equal("a sample has the given labels", y[given >= 0], given[given >= 0])


def some_spans(rng: np.random.Generator, f: Potentials, n: int = 4) -> list[tuple[int, Any, list[int]]]:
    """Spans of consecutive sites, and sites in any order, connected or not, of random examples."""
    spans: list[tuple[int, Any, list[int]]] = []
    for number in range(n):
        example = int(rng.integers(len(f)))
        n_sites = int(f.layout.site_counts[example])
        length = int(rng.integers(0, n_sites + 1))
        labels = rng.integers(0, f.n_labels, length).tolist()
        first = int(rng.integers(0, n_sites - length + 1))
        spans.append((example, rng.permutation(n_sites)[:length].tolist() if number % 2 else first, labels))
    return spans


def check_sums_of_batches(
    trial: Trial, structure: Structure, case: Case, rng: np.random.Generator, tolerance: float
) -> None:
    """Weights of examples, perturbed copies, threads; and log-partition, pinned sums and marginals fit each other."""
    own, given = _summable(structure), case.given
    f = perturb(case.f, gumbel_noise(case.f, seed=3, n_draws=2))
    value, marginals = own.log_partition(f, given)
    sums = own.pinned_sums(f, given).values
    per_site = np.repeat(value, f.layout.site_counts, axis=-1)
    trial.close(
        "at every site the pinned sums add up to the partition function",
        np.logaddexp.reduce(sums, axis=-1),
        per_site,
        tolerance,
        tolerance,
    )
    softmax = np.exp(sums - per_site[..., None])
    trial.close("the softmax of pinned sums is the marginal", softmax, marginals.unary, tolerance, tolerance)
    for n in range(len(f)):
        sites = f.layout.sites(n)
        alone, _ = own.log_partition(f[n], None if given is None else given[sites])
        trial.equal(
            "the log-partition of a batch is that of each example alone, bit by bit", value[:, n : n + 1], alone
        )
    weights = rng.normal(size=len(f))
    same, weighted = own.log_partition(f, given, weights)
    trial.equal("weights of the examples leave the log-partition as it is", same, value)
    each = f.layout.repeat(weights)[:, None]
    trial.close(
        "weights of the examples multiply their marginals",
        weighted.unary,
        each * marginals.unary,
        tolerance,
        tolerance,
    )
    parts = [
        own.log_partition(f[n], None if given is None else given[f.layout.sites(n)], [weights[n]])[1]
        for n in range(len(f))
    ]
    tables = [part.pairwise for part in parts if part.pairwise is not None]
    if weighted.pairwise is not None:
        expected = np.sum(tables, axis=0) if f.is_shared else np.concatenate(tables)
        trial.close("weights multiply pairwise marginals too", weighted.pairwise, expected, tolerance, tolerance)
    _check_samples_of_batches(trial, own, case)
    for n_threads in (1, 3):
        other = own.with_threads(n_threads).log_partition(f, given)
        trial.equal("the number of threads changes no bit of the log-partition", other[0], value)
        trial.equal("the number of threads changes no bit of the marginals", other[1].unary, marginals.unary)
        trial.equal(
            "the number of threads changes no bit of the marginals of edges", other[1].pairwise, marginals.pairwise
        )


def _check_samples_of_batches(trial: Trial, structure: SummableStructure, case: Case) -> None:
    f, given = case.f, case.given
    labels = structure.with_threads(3).sample(f, 5, given=given, rng=1)
    trial.equal(
        "the number of threads changes no sample", structure.with_threads(1).sample(f, 5, given=given, rng=1), labels
    )
    trial.equal("the number of samples changes none of them", structure.sample(f, 2, given=given, rng=1), labels[:2])
    for n in range(len(f)):
        sites = f.layout.sites(n)
        alone = structure.sample(f[n], 5, given=None if given is None else given[sites], rng=1)
        trial.equal("the samples of a batch are those of each example alone", labels[:, sites], alone)


def _summable(structure: Structure) -> SummableStructure:
    if not isinstance(structure, SummableStructure):
        raise TypeError(
            f"definition must be able to sum, as the structure is, but is {structure!r}: use BruteForce(allowed=...)."
        )
    return structure
