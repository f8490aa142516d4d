"""Which labels may stand first, last and side by side: rules that a labelling must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.potentials import Labels, Layout, Mask, Potentials
from perturbmap.support.parts import Part


class Rules(NamedTuple):
    """Checked masks of pairs, ``(n_labels, n_labels)``, of starts and of ends, ``(n_labels,)``."""

    pairs: Mask
    starts: Mask
    ends: Mask


@final
class Transitions(Part):
    """Which labels may come first, last and one after another in a `Chain`; all else is impossible.

    pairs : (n_labels, n_labels) booleans, whether the label of the column may follow that of the row
    starts : (n_labels,) booleans, whether a chain may begin with the label; any by default
    ends : (n_labels,) booleans, whether a chain may end with the label; any by default
    labels : names of the labels, which errors then use, and which must be the classes of a fit; optional

    `bio_transitions` makes those of tags for entities.

    >>> no_return = pm.Transitions([[True, True], [False, True]])  # after label 1 comes no label 0
    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0], [3.0, 0.2]])
    >>> pm.Chain(allowed=no_return).maximise(f)
    (array([0, 0, 0], dtype=int32), array([3.5]))
    """

    def __init__(
        self,
        pairs: ArrayLike,
        starts: ArrayLike | None = None,
        ends: ArrayLike | None = None,
        labels: Sequence[Any] | None = None,
    ) -> None:
        self.pairs = pairs
        self.starts = starts
        self.ends = ends
        self.labels = labels

    def rules(self, n_labels: int) -> Rules:
        """The masks for so many labels; raises ValueError where they do not fit, or allow nothing."""
        pairs = _mask("pairs", self.pairs, (n_labels, n_labels))
        every = np.ones(n_labels, dtype=bool)
        starts = every if self.starts is None else _mask("starts", self.starts, (n_labels,))
        ends = every if self.ends is None else _mask("ends", self.ends, (n_labels,))
        if self.labels is not None and len(self.labels) != n_labels:
            raise ValueError(
                f"allowed has names for {len(self.labels)} labels, but there are {n_labels}: make it for those."
            )
        return Rules(pairs, starts, ends)

    def name(self, label: int) -> str:
        """A label as errors show it."""
        return f"label {label}" if self.labels is None else repr(self.labels[label])

    def first_break(self, layout: Layout, y: Labels, n_labels: int) -> str | None:
        """The first example whose labels break the rules by themselves, in words; None where there is none.

        ``layout`` has the edges to which the pairs belong; y has -1 where a label is not known.
        """
        rules = self.rules(n_labels)
        found = [
            *self._ends_that_break(layout.site_offsets[:-1], y, layout, rules.starts, "begins with"),
            *self._ends_that_break(layout.site_offsets[1:] - 1, y, layout, rules.ends, "ends with"),
        ]
        a, b = y[layout.edges[:, 0]], y[layout.edges[:, 1]]
        bad = np.flatnonzero((a >= 0) & (b >= 0) & ~rules.pairs[a, b])
        if bad.size:
            i, j = (int(site) for site in layout.edges[bad[0]])
            n = _example_of(layout, i)
            first = int(layout.site_offsets[n])
            what = (
                f"has {self.name(int(y[i]))} at site {i - first} and then {self.name(int(y[j]))} at site {j - first}"
            )
            found.append((n, what))
        if not found:
            return None
        n, what = min(found)
        return f"example {n} {what}, which allowed forbids"

    def _ends_that_break(self, sites: Any, y: Labels, layout: Layout, mask: Mask, what: str) -> list[tuple[int, str]]:
        sites = sites[layout.site_counts > 0]
        bad = sites[(y[sites] >= 0) & ~mask[y[sites]]]
        if not bad.size:
            return []
        n = _example_of(layout, int(bad[0]))
        site = int(bad[0] - layout.site_offsets[n])
        return [(n, f"{what} {self.name(int(y[bad[0]]))}, at site {site}")]


def as_transitions(allowed: Transitions | ArrayLike) -> Transitions:
    """Transitions as they are; a mask of pairs as transitions that begin and end anywhere."""
    return allowed if isinstance(allowed, Transitions) else Transitions(allowed)


def bio_transitions(labels: Sequence[str]) -> Transitions:
    """The `Transitions` of tags that mark entities: BIO, or BIOES if there are tags E or S.

    An entity of type X is B-X, then any number of I-X; in BIOES it ends with E-X, or is S-X alone. All else is O.
    ``labels`` are the names in the order of the classes; a fit sorts them, unless it is told ``classes=``.

    >>> allowed = pm.bio_transitions(["B-NP", "I-NP", "O"])
    >>> allowed.pairs.astype(int)
    array([[1, 1, 1],
           [1, 1, 1],
           [1, 0, 1]])
    >>> allowed.starts
    array([ True, False,  True])
    """
    names = list(labels)
    tags = [_tag(name) for name in names]
    if len(set(names)) != len(names):
        raise ValueError(f"labels must not repeat a name, but are {names}.")
    has_ends = any(prefix in ("E", "S") for prefix, _ in tags)
    is_inside = np.array([prefix in ("I", "E") for prefix, _ in tags], dtype=bool)  # goes on with an entity
    is_open = np.array([prefix in ("B", "I") for prefix, _ in tags], dtype=bool)  # an entity may go on after it
    same_type = np.array([[a == b for _, b in tags] for _, a in tags], dtype=bool).reshape(len(tags), len(tags))
    goes_on = is_open[:, None] & is_inside & same_type
    # In BIOES an open entity must go on; in BIO it may also end here.
    begins = ~is_inside & (~is_open[:, None] if has_ends else np.ones((len(tags), 1), dtype=bool))
    ends = ~is_open if has_ends else np.ones(len(tags), dtype=bool)
    return Transitions(goes_on | begins, ~is_inside, ends, names)


def _tag(name: Any) -> tuple[str, str]:
    """The prefix and the type of a tag; O has no type."""
    if isinstance(name, str):
        prefix, _, kind = name.partition("-")
        if name == "O" or (prefix in ("B", "I", "E", "S") and kind):
            return prefix, kind
    raise ValueError(f'labels must be "O" or tags such as "B-NP", "I-NP", "E-NP" and "S-NP", but one is {name!r}.')


def _mask(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Mask:
    mask = np.asarray(values)
    if mask.shape != shape or mask.dtype != np.bool_:
        raise ValueError(
            f"the {name} of allowed must be booleans of shape {shape}, one for each label or pair, but have "
            f"shape {mask.shape} and dtype {mask.dtype}."
        )
    if not mask.any():
        raise ValueError(f"the {name} of allowed must allow something, but are all False.")
    return mask


def _example_of(layout: Layout, site: int) -> int:
    return int(np.searchsorted(layout.site_offsets, site, side="right")) - 1


def forbid(f: Potentials, rules: Rules) -> Potentials:
    """The potentials of chains with -inf for what the rules forbid; consecutive sites are joined if they were not."""
    layout, pairwise = f.layout, f.pairwise
    if pairwise is None or not f.n_edges:
        chain = Layout.of_counts(layout.site_counts)
        layout = layout.with_edges(chain.edges, chain.edge_offsets)
        pairwise = np.zeros((f.n_labels, f.n_labels))
    unary = f.unary
    if not (rules.starts.all() and rules.ends.all()):
        unary = unary.copy()
        has_sites = layout.site_counts > 0
        for sites, mask in ((layout.site_offsets[:-1], rules.starts), (layout.site_offsets[1:] - 1, rules.ends)):
            ends = sites[has_sites]
            unary[..., ends, :] = np.where(mask, unary[..., ends, :], -np.inf)
    return Potentials.trusted(layout, unary, np.where(rules.pairs, pairwise, -np.inf))


def forbid_pairs(f: Potentials, pairs: Mask) -> Potentials:
    """The potentials with -inf for pairs that are forbidden, the row being the label of an edge's first site."""
    if f.pairwise is None or not f.n_edges:
        return f
    return Potentials.trusted(f.layout, f.unary, np.where(pairs, f.pairwise, -np.inf))
