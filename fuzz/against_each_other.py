"""Instances too large to be listed: a batch against its parts, threads, and two structures that both fit."""

from __future__ import annotations

import numpy as np

from fuzz.instances import NUMBERS, Generator, assign, filled, matchings
from fuzz.mutations import choose
from perturbmap import BinaryGraph, Chain, FromSolver, Potentials, Structure, Tree, gumbel_noise, perturb, potts
from perturbmap.inference import COUNTED, INTEGRATED, PINNED, log_partition_bound, marginals, sample
from perturbmap.potentials import Floats, Labels
from perturbmap.structures import SummableStructure
from perturbmap.testing import chains, forests, unaries
from perturbmap.testing.failure import Trial
from perturbmap.testing.instances import Case, Make, some_labels
from tests.instances import KINDS

#: Answers that are for each example, or for each site; pairwise ones are sums over copies, or over all edges.
PER_EXAMPLE = ("values", "log-partition")
PER_SITE = ("labels", "pinned values", "unary moments", "marginals", "pinned sums")
DRAWN = ("bound", "marginals", "samples")


def cut_up(rng: Generator) -> None:
    """A batch of copies: slices, single copies and threads change no bit."""
    structure, f, given = a_batch(rng)
    if rng.random() < 0.7:
        f = perturb(f, gumbel_noise(f, seed=1, n_draws=int(rng.integers(0, 6))))
    with Trial(structure, Case(f, given).describe) as trial:
        whole = answers(structure.with_threads(1), f, given)
        for n_threads in (2, 5):
            for name, found in answers(structure.with_threads(n_threads), f, given).items():
                trial.equal(f"{n_threads} threads change no bit of the {name}", found, whole[name])
        first, last = sorted(rng.integers(0, len(f) + 1, 2).tolist())
        sites, part = f.layout.sites(first, last), f[first:last]
        if f.unary.ndim == 3 and len(f.unary):
            copy = int(rng.integers(len(f.unary)))
            part = part.with_unary(part.unary[copy])
            whole = {name: array[copy] for name, array in whole.items() if name in PER_EXAMPLE + PER_SITE}
        alone = answers(structure, part, None if given is None else given[sites])
        for name in [name for name in PER_EXAMPLE + PER_SITE if name in whole]:
            theirs = whole[name][..., first:last] if name in PER_EXAMPLE else whole[name][..., sites, :]
            trial.equal(f"a part of a batch has its {name}, bit by bit", alone[name], theirs)


def a_batch(rng: Generator) -> tuple[Structure, Potentials, Labels | None]:
    """A structure, a batch of up to 150 examples, some of them without a site, and labels that are given, or none."""
    kind = choose(rng, KINDS)
    make, n_labels = filled(kind.make, choose(rng, NUMBERS)), choose(rng, kind.sizes)[1]
    largest = n_labels if kind is matchings else choose(rng, [3, 12, 40])
    sizes = rng.integers(0, largest + 1, choose(rng, [1, 4, 30, 150])).tolist()
    f = Potentials.batch([make(rng, n, n_labels, False) for n in sizes])
    return kind.structure, f, some_labels(rng, kind.structure, f) if rng.random() < 0.5 else None


def drawn(rng: Generator) -> None:
    """Bounds, marginals and samples: threads change no bit, and neither do the other examples of the batch."""
    structure, f, given = a_batch(rng)
    method, n, seed = choose(rng, [PINNED, INTEGRATED, COUNTED]), int(rng.integers(2, 6)), int(rng.integers(2**32))

    def draw(structure: Structure, f: Potentials, given: Labels | None) -> tuple[Floats, Floats, Labels]:
        bound = log_partition_bound(structure, f, given=given, n_perturbations=n, rng=seed).mean
        q = marginals(structure, f, method=method, given=given, n_perturbations=n, rng=seed).mean
        return bound, q, sample(structure, f, n, given=given, rng=seed)

    with Trial(structure, Case(f, given).describe) as trial:
        whole = draw(structure.with_threads(1), f, given)
        first, last = sorted(rng.integers(0, len(f) + 1, 2).tolist())
        sites = f.layout.sites(first, last)
        alone = draw(structure, f[first:last], None if given is None else given[sites])
        threaded = draw(structure.with_threads(3), f, given)
        for name, one, other in zip(DRAWN, whole, threaded, strict=True):
            trial.equal(f"threads change no bit of the {name}, by {method!r}", other, one)
        parts = whole[0][first:last], whole[1][sites], whole[2][:, sites]
        for name, one, other in zip(DRAWN, parts, alone, strict=True):
            trial.equal(f"a part of a batch has its {name}, by {method!r}, bit by bit", other, one)


def answers(structure: Structure, f: Potentials, given: Labels | None) -> dict[str, np.ndarray]:
    """All that a structure says, by name."""
    labels, values = structure.maximise(f, given)
    pinned = structure.pinned(f, given=given)
    moments = pinned.moments(weights(pinned.values))
    found: dict[str, np.ndarray] = {
        "labels": labels[..., None],
        "values": values,
        "pinned values": pinned.values,
        "unary moments": moments.unary,
        "pairwise moments": f.tables[:0] if moments.pairwise is None else moments.pairwise,
    }
    if isinstance(structure, SummableStructure):
        found["log-partition"], q = structure.log_partition(f, given)
        found["marginals"] = q.unary
        found["pairwise marginals"] = f.tables[:0] if q.pairwise is None else q.pairwise
        found["pinned sums"] = structure.pinned_sums(f, given).values
    return found


def weights(values: Floats) -> Floats:
    """Weights of pins that are the same numbers, whatever else is in the batch: made from the values themselves."""
    digits = np.where(np.isfinite(values), values, 0.0) * 977.0
    return np.where(np.isfinite(values), digits - np.floor(digits) - 0.3, 0.0)


def each_other(rng: Generator) -> None:
    """Two structures have the same maximum, and a pin is a given label."""
    make, structures, n_labels = choose(rng, PAIRS)
    n_sites = int(rng.integers(1, 80))
    f = choose(rng, NUMBERS)(rng, make, n_sites, n_labels or n_sites + int(rng.integers(0, 5)))
    one, other = structures
    given = some_labels(rng, one, f) if rng.random() < 0.5 else None
    with Trial(one, Case(f, given).describe) as trial:
        best = one.maximise(f, given)[1]
        trial.close(f"the maximum is that of {other!r}", best, other.maximise(f, given)[1], 1e-11, 1e-9)
        pinned = one.pinned(f, given=given).values
        for d in rng.integers(0, n_sites, 3).tolist():
            k = int(rng.integers(f.n_labels))
            if pinned[d, k] > -np.inf:
                pin = np.full(n_sites, -1, np.int32) if given is None else given.copy()
                pin[d] = k
                for structure in structures:
                    claim = f"the pin of site {d} to label {k} has the value of the given label, by {structure!r}"
                    trial.close(claim, pinned[d, k], structure.maximise(f, pin)[1][0], 1e-11, 1e-9)


def attractive_forests(rng: Generator, n_sites: int, n_labels: int, integers: bool) -> Potentials:
    """Forests whose tables are those of an attractive graph: for minimum cuts and for dynamic programming."""
    f = forests(rng, n_sites, n_labels, integers)
    tables = np.abs(f.tables[:, :1, :1]) * potts(1.0, n_labels) + f.tables[:, :, :1] + f.tables[:, :1, :]
    return Potentials(f.unary, tables, f.edges)


#: Instances, two structures that both fit them, and a number of labels; None is that of the sites, or some more.
PAIRS: list[tuple[Make, tuple[Structure, Structure], int | None]] = [
    (chains, (Chain(), Tree()), 2),
    (chains, (Tree(), Chain()), 26),
    (attractive_forests, (BinaryGraph(), Tree()), 2),
    (unaries, (matchings.structure, FromSolver(assign)), None),
]
