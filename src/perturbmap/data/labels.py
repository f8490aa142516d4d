"""What is known of the labels of each example: everything, something, nothing, or probabilities."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.data.dataset import Dataset, Shards
from perturbmap.potentials import Floats, Labels, SiteLabels
from perturbmap.potentials.site_arrays import one_hot
from perturbmap.potentials.site_labels import UNKNOWN

NO_LABELS = "y must hold some labelled site: with no label at all there is nothing to learn from."


def _is_soft(entry: Any) -> bool:
    return isinstance(entry, np.ndarray) and entry.ndim == 2


def _has_plain_values(entry: Any) -> bool:
    """Whether it is an array of numbers or texts, as most labels are: they need no look at each of them."""
    return isinstance(entry, np.ndarray) and entry.ndim == 1 and entry.dtype.kind in "biuU"


def _values(name: str, n: int, entry: Any) -> list[Hashable]:
    """The labels of one example as plain Python values; those of a text are its letters."""
    if not hasattr(entry, "__iter__"):
        raise ValueError(
            f"{name}[{n}] must be a sequence of labels, one for each site, an array of soft labels, or None, "
            f"but is {entry!r}."
        )
    if _has_plain_values(entry):
        return list(entry.tolist())
    raw = entry.tolist() if isinstance(entry, np.ndarray) else entry
    values = [v.item() if isinstance(v, np.generic) else v for v in raw]
    if any(isinstance(v, list) for v in values):
        raise ValueError(f"{name}[{n}] must hold one label for each site; soft labels are given as a numpy array.")
    return values


def _is_unknown(value: Hashable) -> bool:
    return value is None or (isinstance(value, (int, float)) and value == UNKNOWN)


def _check_classes(name: str, values: Iterable[Hashable]) -> None:
    """Raises ValueError for a value that is not a label: NaN, NaT and NA do not equal themselves."""
    for value in values:
        try:
            is_one = bool(value == value)
        except (TypeError, ValueError):
            is_one = False
        if not is_one:
            raise ValueError(
                f"{name} holds {value!r}, which is not a label: write None or -1 where a label is not known."
            )


def _distinct(name: str, n: int, entry: Any) -> set[Hashable]:
    try:
        return set(_values(name, n, entry))
    except TypeError as error:
        raise ValueError(f"{name}[{n}] must hold labels such as numbers or texts ({error}).") from None


def check_length(y: Any, data: Dataset, name: str = "y") -> None:
    """Raises ValueError unless y has one entry for each example."""
    if isinstance(y, (str, dict)) or not hasattr(y, "__len__"):
        raise ValueError(f"{name} must be a list with one entry for each example: labels, soft labels or None.")
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
        _check_classes("classes", named)
        if any(_is_unknown(c) for c in named):
            raise ValueError(
                "classes must not hold -1 or None, which stand for unknown labels in y: use other values."
            )
        return named
    if isinstance(y, EncodedLabels):
        return y.classes
    found: set[Hashable] = set()
    for n, entry in enumerate(y):
        if entry is not None and not _is_soft(entry):
            new = _distinct("y", n, entry) - found
            _check_classes(f"y[{n}]", new)
            found |= new
    has_unknown = UNKNOWN in found
    found -= {None, UNKNOWN}
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
    return _in_order(found)


def with_unseen(y: Sequence[Any], data: Dataset, classes: list[Hashable]) -> list[Hashable]:
    """The classes, and behind them the labels of y that are none of them, which no prediction can be.

    ValueError where y has no label of theirs: these are the labels of something else.
    """
    check_length(y, data)
    entries = [y.classes] if isinstance(y, EncodedLabels) else y
    labels: set[Hashable] = set()
    for n, entry in enumerate(entries):
        if entry is not None and not _is_soft(entry):
            new = {value for value in _distinct("y", n, entry) if not _is_unknown(value)} - labels
            _check_classes(f"y[{n}]", new)
            labels |= new
    unseen = _in_order(labels - set(classes))
    if unseen and len(unseen) == len(labels):
        raise ValueError(
            f"y must hold labels that were learned, {classes}, but holds only others, such as {unseen[0]!r}."
        )
    return [*classes, *unseen]


def _in_order(labels: set[Hashable]) -> list[Hashable]:
    """Sorted, by their texts if they cannot be compared."""
    try:
        return sorted(labels)  # type: ignore[type-var]  # what cannot be compared raises the error
    except TypeError:
        return sorted(labels, key=lambda v: (type(v).__name__, str(v)))


@final
class EncodedLabels(Sequence[Any]):
    """Labels of many examples as numbers of ``classes``, -1 where a label is not known; the entries are as in y.

    numbers : (n_sites,)
    offsets : where each example's sites begin
    store : the shards that they come from, if they do
    """

    def __init__(
        self, numbers: Labels, offsets: NDArray[np.int64], classes: Sequence[Hashable], store: Shards | None = None
    ) -> None:
        self.numbers, self.offsets, self.classes, self.store = numbers, offsets, list(classes), store

    def fits(self, data: Dataset) -> bool:
        """Whether these are labels of as many sites in each example."""
        return bool(np.array_equal(self.offsets, data.layout.site_offsets))

    def are_those_of(self, data: Dataset) -> bool:
        """Whether these are the labels that were stored with these very examples."""
        return self.store is not None and data.store is not None and self.store.identity == data.store.identity

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        """The labels of one example as a list, None where they are not known; a list of those for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        part = self.numbers[self.offsets[n] : self.offsets[n + 1]].tolist()
        return [None if k < 0 else self.classes[k] for k in part]


def encode_labels(y: Sequence[Any], data: Dataset, classes: Sequence[Hashable], name: str = "y") -> SiteLabels:
    """What y says of the examples; raises ValueError naming the first entry that does not fit."""
    check_length(y, data, name)
    layout, k = data.layout, len(classes)
    if isinstance(y, EncodedLabels) and y.fits(data) and y.classes == list(classes):
        return SiteLabels.of(y.numbers, k, layout, data.sizes)
    number = {**{c: n for n, c in enumerate(classes)}, None: UNKNOWN, UNKNOWN: UNKNOWN}
    labels = np.full(data.n_sites, UNKNOWN, dtype=np.int32)
    q = np.zeros((data.n_sites, k)) if any(_is_soft(entry) for entry in y) else None
    for n, entry in enumerate(y):
        sites = layout.sites(n)
        count = sites.stop - sites.start
        if entry is None:
            continue
        if q is not None and _is_soft(entry):
            q[sites] = check_soft(f"{name}[{n}]", entry, count, k)
            continue
        values = _values(name, n, entry)
        if len(values) != count:
            raise ValueError(f"{name}[{n}] must have one label for each site, {count}, but has {len(values)}.")
        try:
            labels[sites] = [number[v] for v in values]
        except (KeyError, TypeError):
            _check_classes(f"{name}[{n}]", _distinct(name, n, entry))
            bad = next(v for v in values if v not in number)
            raise ValueError(
                f"{name}[{n}] holds the label {bad!r}, which is not among the classes {list(classes)}. "
                "Where the labels that are learned from may not show them all, name all of them with classes=."
            ) from None
        if q is not None:
            q[sites] = one_hot(labels[sites], k)
    return SiteLabels(layout, labels, k, data.sizes, q)


def encode_hard_labels(name: str, y: Sequence[Any], data: Dataset, classes: Sequence[Hashable]) -> SiteLabels:
    """As `encode_labels`, where soft labels make no sense."""
    known = encode_labels(y, data, classes, name)
    if not known.is_hard:
        raise ValueError(f"{name} must hold labels here, not soft ones.")
    return known


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
