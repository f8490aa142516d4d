"""What is known of the labels of each example: everything, something, nothing, or probabilities."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.examples import Dataset, StoreRef
from perturbmap.potentials import Floats, Labels
from perturbmap.site_arrays import one_hot

UNKNOWN = -1
NO_LABELS = "y must hold some labelled site: with no label at all there is nothing to learn from."


def _is_soft(entry: Any) -> bool:
    return isinstance(entry, np.ndarray) and entry.ndim == 2


def _values(name: str, n: int, entry: Any) -> list[Hashable]:
    """The labels of one example as plain Python values; those of a text are its letters."""
    if not hasattr(entry, "__iter__"):
        raise ValueError(
            f"{name}[{n}] must be a sequence of labels, one a site, an array of soft labels, or None, "
            f"but is {entry!r}."
        )
    raw = entry.tolist() if isinstance(entry, np.ndarray) else entry
    values = [v.item() if isinstance(v, np.generic) else v for v in raw]
    if any(isinstance(v, list) for v in values):
        raise ValueError(f"{name}[{n}] must hold one label a site; soft labels are given as a numpy array.")
    return values


def _is_unknown(value: Hashable) -> bool:
    return value is None or (isinstance(value, (int, np.integer)) and value == UNKNOWN)


def check_length(y: Any, data: Dataset, name: str = "y") -> None:
    """One entry an example."""
    if isinstance(y, (str, dict)) or not hasattr(y, "__len__"):
        raise ValueError(f"{name} must be a list with one entry an example: labels, soft labels or None.")
    if len(y) != len(data):
        raise ValueError(
            f"X and {name} must have the same length, but X has {len(data)} examples and {name} {len(y)}."
        )


def find_classes(y: Sequence[Any], classes: Sequence[Hashable] | None) -> list[Hashable]:
    """All label values, sorted; ``classes`` where the user names them."""
    if classes is not None:
        named = [c.item() if isinstance(c, np.generic) else c for c in classes]
        if len(set(named)) != len(named):
            raise ValueError("classes must not repeat a label.")
        if any(_is_unknown(c) for c in named):
            raise ValueError(
                "classes must not hold -1 or None, which stand for unknown labels in y: use other values."
            )
        return named
    if isinstance(y, EncodedLabels):
        return y.classes
    found: set[Hashable] = set()
    has_unknown = False
    for n, entry in enumerate(y):
        if entry is not None and not _is_soft(entry):
            values = _values("y", n, entry)
            found.update(v for v in values if not _is_unknown(v))
            has_unknown = has_unknown or UNKNOWN in values
    if not found:
        widths = {entry.shape[1] for entry in y if _is_soft(entry)}
        if len(widths) == 1:
            return list(range(widths.pop()))
        raise ValueError(NO_LABELS)
    if has_unknown and len(found) == 1:
        raise ValueError(
            f"y holds {found.pop()!r} and -1 alone, and -1 stands for an unknown label. If it is a label, use "
            "another value for it; if it is not, name all labels with classes=."
        )
    try:
        return sorted(found)  # type: ignore[type-var]  # what cannot be compared is sorted by its text below
    except TypeError:
        return sorted(found, key=lambda v: (type(v).__name__, str(v)))


@final
class EncodedLabels(Sequence[Any]):
    """Labels of many examples as numbers of ``classes``, -1 where a label is not known; an entry of y each.

    numbers : (n_sites,)
    offsets : where each example's sites begin
    store : the folder and the shards that they come from, if they do
    """

    def __init__(
        self, numbers: Labels, offsets: NDArray[np.int64], classes: Sequence[Hashable], store: StoreRef | None = None
    ) -> None:
        self.numbers, self.offsets, self.classes, self.store = numbers, offsets, list(classes), store

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        """The labels of one example as a list, None where they are not known; a list of those for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        part = self.numbers[self.offsets[n] : self.offsets[n + 1]].tolist()
        return [None if k < 0 else self.classes[k] for k in part]


@final
@dataclass(frozen=True, eq=False)
class Annotations:
    """Labels and probabilities of all sites of a data set.

    labels : (n_sites,), -1 where no label is known
    q : (n_sites, n_labels); one-hot for labels, as given for soft labels, zero where nothing is known
    is_complete : (n_examples,), whether something is known of every site
    """

    labels: Labels
    q: Floats
    is_complete: NDArray[np.bool_]

    @classmethod
    def encode(cls, y: Sequence[Any], data: Dataset, classes: Sequence[Hashable], name: str = "y") -> Annotations:
        """Checks y against the examples; raises ValueError naming the first entry that does not fit."""
        check_length(y, data, name)
        number = {c: k for k, c in enumerate(classes)}
        fits = isinstance(y, EncodedLabels) and np.array_equal(y.offsets, data.site_offsets)
        if isinstance(y, EncodedLabels) and fits and y.classes == list(classes):
            return cls._of(y.numbers, one_hot(y.numbers, len(classes)), data)
        labels = np.full(data.n_sites, UNKNOWN, dtype=np.int32)
        q = np.zeros((data.n_sites, len(classes)))
        for n, entry in enumerate(y):
            sites = slice(int(data.site_offsets[n]), int(data.site_offsets[n + 1]))
            count = sites.stop - sites.start
            if entry is None:
                continue
            if _is_soft(entry):
                q[sites] = check_soft(f"{name}[{n}]", entry, count, len(classes))
                continue
            values = _values(name, n, entry)
            if len(values) != count:
                raise ValueError(f"{name}[{n}] must have one label a site, {count}, but has {len(values)}.")
            try:
                labels[sites] = [UNKNOWN if _is_unknown(v) else number[v] for v in values]
            except (KeyError, TypeError):
                bad = next(v for v in values if not _is_unknown(v) and v not in number)
                raise ValueError(
                    f"{name}[{n}] holds the label {bad!r}, which is not among the classes {list(classes)}. "
                    "Name all labels with classes=, where y may not show them all."
                ) from None
            q[sites] = one_hot(labels[sites], len(classes))
        return cls._of(labels, q, data)

    @classmethod
    def _of(cls, labels: Labels, q: Floats, data: Dataset) -> Annotations:
        known = q.sum(axis=1) > 0
        complete = [
            bool(known[a:b].all()) for a, b in zip(data.site_offsets[:-1], data.site_offsets[1:], strict=True)
        ]
        return cls(labels, q, np.array(complete, dtype=bool))

    @property
    def is_hard(self) -> bool:
        """Whether every known site has a label, none only probabilities."""
        return bool(((self.q.sum(axis=1) > 0) == (self.labels >= 0)).all())


def check_soft(name: str, entry: NDArray[Any], n_sites: int, n_labels: int) -> Floats:
    """Rows of probabilities; else an error that names the argument."""
    if not np.issubdtype(entry.dtype, np.number) and entry.dtype != np.bool_:
        raise ValueError(f"{name} must hold numbers for soft labels, but its dtype is {entry.dtype}.")
    q = np.asarray(entry, dtype=np.float64)
    if q.shape != (n_sites, n_labels):
        raise ValueError(f"{name} must have shape ({n_sites}, {n_labels}) for soft labels, but has {q.shape}.")
    if not np.isfinite(q).all() or (q < 0).any() or not np.allclose(q.sum(axis=1), 1, atol=1e-6):
        raise ValueError(f"{name} must hold probabilities: not negative, and every row must sum to 1.")
    return q
