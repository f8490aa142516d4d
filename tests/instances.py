"""The structures of the package, each with the instances that fit it and the enumeration that defines it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from perturbmap import BinaryGraph, BruteForce, Chain, Graph, Matching, Potentials, Structure, Transitions, Tree
from perturbmap.potentials import Labels
from perturbmap.testing import attractive_graphs, chains, forests, graphs, unaries
from perturbmap.testing.instances import SIZES, Make, some_labels


def is_injective(y: Labels) -> bool:
    return len(set(y.tolist())) == len(y)


@dataclass(frozen=True)
class Kind:
    """A structure, and what `perturbmap.testing.check_structure` needs to know of it."""

    structure: Structure
    make: Make
    definition: BruteForce
    sizes: Sequence[tuple[int, int]]


#: Of three labels, each may follow itself and one other; label 2 never comes first, label 1 never last.
RULES = Transitions(
    [[True, True, False], [False, True, True], [True, False, True]], [True, True, False], [True, False, True]
)


def keeps_the_rules(y: Labels) -> bool:
    rules = RULES.rules(3)
    return bool(rules.starts[y[0]] and rules.ends[y[-1]] and rules.pairs[y[:-1], y[1:]].all())


KINDS = [
    Kind(Chain(), chains, BruteForce(), SIZES),
    Kind(Tree(), forests, BruteForce(), SIZES),
    Kind(Chain(allowed=RULES), chains, BruteForce(allowed=keeps_the_rules), [size for size in SIZES if size[1] == 3]),
    Kind(BinaryGraph(), attractive_graphs, BruteForce(), [size for size in SIZES if size[1] == 2]),
    Kind(Graph(), graphs, BruteForce(), SIZES),
    Kind(Matching(), unaries, BruteForce(allowed=is_injective), [size for size in SIZES if size[0] <= size[1]]),
]


def forbidding(make: Make) -> Make:
    """The same instances with some labels forbidden; a labelling is left, a matching where there can be one."""

    def made(rng: np.random.Generator, n_sites: int, n_labels: int, integers: bool) -> Potentials:
        f = make(rng, n_sites, n_labels, integers)
        forbidden = rng.random(f.unary.shape) < 0.35
        kept = rng.permutation(max(n_sites, n_labels))[:n_sites] % n_labels  # different ones where there are enough
        forbidden[np.arange(n_sites), kept] = False
        return f.with_unary(np.where(forbidden, -np.inf, f.unary))

    return made


#: The same structures, where some labels are forbidden by -inf.
FORBIDDING = [
    replace(kind, make=forbidding(kind.make)) for kind in KINDS if kind.definition.allowed != keeps_the_rules
]

STRUCTURES: list[Structure] = [kind.structure for kind in KINDS]


@dataclass(frozen=True)
class Instance:
    """A batch, some given labels (or none), and whether potentials are integers, so that ties are likely."""

    f: Potentials
    given: Labels | None
    has_ties: bool


def kind_of(structure: Structure) -> Kind:
    return next(kind for kind in KINDS if kind.structure == structure)


def n_labels_of(structure: Structure, wanted: int) -> int:
    """As many labels as are wanted, unless the structure has one number of labels alone."""
    possible = {n_labels for _, n_labels in kind_of(structure).sizes}
    return possible.pop() if len(possible) == 1 else wanted


def definition(structure: Structure) -> BruteForce:
    return kind_of(structure).definition


def example(structure: Structure, n: int, k: int, rng: np.random.Generator, has_ties: bool) -> Potentials:
    return kind_of(structure).make(rng, n, k, has_ties)


@st.composite
def instances(draw: st.DrawFn, structure: Structure) -> Instance:
    """Batches of one to three examples of one to six sites."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    has_ties = draw(st.booleans())
    sizes = kind_of(structure).sizes
    k = draw(st.sampled_from(sorted({n_labels for _, n_labels in sizes})))
    counts = [n for n, n_labels in sizes if n_labels == k]
    chosen = draw(st.lists(st.sampled_from(counts), min_size=1, max_size=3))
    f = Potentials.batch([example(structure, n, k, rng, has_ties) for n in chosen])
    given = some_labels(rng, definition(structure), f) if draw(st.booleans()) else None
    return Instance(f, given, has_ties)
