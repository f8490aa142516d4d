"""Spans of tags such as B-PER, I-PER, O, and how many of them are found: the F1 of the CoNLL shared tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

_OUTSIDE = "O"
_PREFIXES = ("B", "I", "E", "S")


class _Span(NamedTuple):
    """A span of one kind; the sites from ``start`` to before ``stop`` are its own."""

    sentence: int
    kind: str
    start: int
    stop: int


@final
@dataclass(frozen=True)
class SpanScores:
    """How many spans there are, how many were predicted, and how many of these are right; prints as a table.

    n_true : the number of true spans
    n_predicted : the number of predicted spans
    n_right : the number of predicted spans that are right
    by_type : the same for the spans of each type, in the order of their names; empty in the scores of one type
    """

    n_true: int
    n_predicted: int
    n_right: int
    by_type: dict[str, SpanScores]

    @property
    def precision(self) -> float:
        """The share of the predicted spans that are right; zero where there are none."""
        return self.n_right / self.n_predicted if self.n_predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the true spans that were predicted; zero where there are none."""
        return self.n_right / self.n_true if self.n_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, ``2 n_right / (n_true + n_predicted)``."""
        total = self.n_true + self.n_predicted
        return 2 * self.n_right / total if total else 0.0

    def __str__(self) -> str:
        rows = {**self.by_type, "all": self}
        width = max(len(name) for name in rows)
        lines = [f"{'':<{width}}  precision  recall      f1   spans"]
        lines += [
            f"{name:<{width}}  {row.precision:>9.4f}  {row.recall:.4f}  {row.f1:.4f}  {row.n_true:>6}"
            for name, row in rows.items()
        ]
        return "\n".join(lines)


def span_f1(y_true: Sequence[Iterable[Any]], y_pred: Sequence[Iterable[Any]]) -> SpanScores:
    """Precision, recall and F1 of the spans that tags mark, such as the names in a text: of all and of each type.

    Tags are texts: O outside of any span; in a span, one of B, I, E and S, a dash and the type of the span. As in
    conlleval, and in seqeval by default, a span begins at B and at S, after O, E and S, and where the type changes;
    it goes on until the next begins, or until O. It is right if the same sites are a span of the same type in both.

    y_true : the true tags, one sequence for each sentence
    y_pred : the predicted tags, as many for each sentence

    Ramshaw and Marcus, Text chunking using transformation-based learning, 1995; Tjong Kim Sang and Buchholz,
    Introduction to the CoNLL-2000 shared task: chunking, 2000.

    >>> scores = pm.span_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-PER"]])
    >>> scores.precision, scores.recall, scores.by_type["PER"].recall
    (0.5, 0.5, 1.0)
    """
    true, predicted = [list(tags) for tags in y_true], [list(tags) for tags in y_pred]
    if len(true) != len(predicted):
        raise ValueError(
            f"y_true and y_pred must have the same length, but have {len(true)} and {len(predicted)} sentences."
        )
    for n, (a, b) in enumerate(zip(true, predicted, strict=True)):
        if len(a) != len(b):
            raise ValueError(f"y_pred[{n}] must have as many tags as y_true[{n}], {len(a)}, but has {len(b)}.")
    found = [set(_spans(name, tags)) for name, tags in (("y_true", true), ("y_pred", predicted))]
    true_kinds, predicted_kinds, right_kinds = (
        Counter(span.kind for span in spans) for spans in (*found, found[0] & found[1])
    )
    by_type = {
        kind: SpanScores(true_kinds[kind], predicted_kinds[kind], right_kinds[kind], {})
        for kind in sorted({*true_kinds, *predicted_kinds})
    }
    return SpanScores(true_kinds.total(), predicted_kinds.total(), right_kinds.total(), by_type)


def _spans(name: str, sentences: list[list[Any]]) -> Iterator[_Span]:
    for n, tags in enumerate(sentences):
        start, before, kind_before = 0, _OUTSIDE, ""
        for d, tag in enumerate([*tags, _OUTSIDE]):
            prefix, kind = _parse(name, n, d, tag)
            begins = prefix in ("B", "S") or before in (_OUTSIDE, "E", "S") or kind != kind_before
            if before != _OUTSIDE and (begins or prefix == _OUTSIDE):
                yield _Span(n, kind_before, start, d)
            if begins:
                start = d
            before, kind_before = prefix, kind


def _parse(name: str, n: int, d: int, tag: Any) -> tuple[str, str]:
    """The prefix of a tag, and the type of its span."""
    if tag == _OUTSIDE:
        return _OUTSIDE, ""
    prefix, _, kind = tag.partition("-") if isinstance(tag, str) else ("", "", "")
    if prefix not in _PREFIXES or not kind:
        raise ValueError(
            f"{name}[{n}][{d}] must be O, or one of B, I, E and S with a dash and a type, such as B-PER, "
            f"but is {tag!r}."
        )
    return prefix, kind
