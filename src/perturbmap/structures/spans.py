"""Spans: sites of an example with labels, whose probability can be asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perturbmap.potentials import Labels, Potentials, offsets_of
from perturbmap.potentials.types import Offsets


class Span(NamedTuple):
    """Some sites of an example and a label for each, such as an entity in a sentence.

    example : the number of the example in the batch
    sites : the first of consecutive sites, as many as there are labels; or the sites one by one, connected or not
    labels : a label for each of the sites

    Sites are counted from the first of the example. A plain tuple of the three will do.

    >>> f = pm.Potentials([[0.0, 1.0], [0.5, 0.0], [0.0, 0.2]], pm.potts(1.0))
    >>> pm.Chain().span_probabilities(f, [pm.Span(0, sites=1, labels=[1, 1]), (0, [0, 2], [1, 1])]).round(3)
    array([0.389, 0.419])
    """

    example: int
    sites: Any
    labels: Any


SpanLike = Span | tuple[int, Any, Any]


@dataclass(frozen=True)
class CheckedSpans:
    """Spans sorted by their examples.

    place : (n_spans,), where each is among the sorted ones
    span_offsets : (n_examples + 1,), where those of each example begin
    offsets : (n_spans + 1,), where the sites of each begin
    """

    place: NDArray[np.intp]
    span_offsets: Offsets
    offsets: Offsets
    sites: Labels
    labels: Labels

    def __len__(self) -> int:
        return len(self.place)

    def each(self) -> Iterator[tuple[int, Labels, Labels]]:
        """(example, sites, labels) of each, sorted."""
        examples = np.repeat(np.arange(len(self.span_offsets) - 1), np.diff(self.span_offsets))
        for n, (first, last) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            yield int(examples[n]), self.sites[first:last], self.labels[first:last]


def check_spans(f: Potentials, spans: Sequence[SpanLike]) -> CheckedSpans:
    """Checks spans; raises ValueError naming the first that does not fit."""
    parts = [_read(number, span) for number, span in enumerate(spans)]
    examples = np.array([example for example, _, _ in parts], dtype=np.int64)
    _check_range("spans[{}] must be of an example", examples, np.arange(len(parts)), len(f))
    order = np.argsort(examples, kind="stable")
    nothing = np.empty(0, dtype=np.int64)
    offsets = offsets_of([len(parts[i][2]) for i in order])
    number = np.repeat(order, np.diff(offsets))
    sites = np.concatenate([nothing, *(parts[i][1] for i in order)])
    labels = np.concatenate([nothing, *(parts[i][2] for i in order)])
    _check_range("the labels of spans[{}] must be", labels, number, f.n_labels)
    _check_range("the sites of spans[{}] must be", sites, number, f.layout.site_counts[examples[number]])
    if len(np.unique(number * (f.n_sites + 1) + sites)) < len(sites):
        twice = next(n for n, (_, own, _) in enumerate(parts) if len(np.unique(own)) < len(own))
        raise ValueError(f"spans[{twice}] must not name a site twice, but its sites are {parts[twice][1].tolist()}.")
    counts = np.bincount(examples, minlength=len(f)) if len(parts) else np.zeros(len(f), dtype=np.int64)
    return CheckedSpans(
        np.argsort(order), offsets_of(counts), offsets, sites.astype(np.int32), labels.astype(np.int32)
    )


def _read(number: int, span: SpanLike) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """The example, the sites and the labels of a span; what they are is still to be checked."""
    if not isinstance(span, tuple) or len(span) != 3 or not isinstance(span[0], (int, np.integer)):
        raise ValueError(f"spans[{number}] must be a tuple (example, sites, labels), but is {span!r}.")
    labels = _integers("labels", number, span[2])
    if isinstance(span[1], (int, np.integer)) or np.ndim(span[1]) == 0:
        sites = _integers("sites", number, [span[1]]) + np.arange(len(labels))
    else:
        sites = _integers("sites", number, span[1])
    if len(sites) != len(labels):
        raise ValueError(
            f"spans[{number}] must have one label for each site, but has {len(sites)} sites and {len(labels)} labels."
        )
    return int(span[0]), sites, labels


def _integers(what: str, number: int, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"the {what} of spans[{number}] must be integers, one after another, but are {values!r}.")
    return array.astype(np.int64)


def _check_range(
    what: str, values: NDArray[np.int64], number: NDArray[np.intp], end: int | NDArray[np.int64]
) -> None:
    bad = np.flatnonzero((values < 0) | (values >= end))
    if bad.size:
        last = int(np.broadcast_to(end, values.shape)[bad[0]]) - 1
        raise ValueError(f"{what.format(number[bad[0]])} from 0 to {last}, but {values[bad[0]]} is not.")
