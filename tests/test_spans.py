"""Spans of tags, beside seqeval, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perturbmap import SpanScores, StructuredPredictor, span_f1

TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC", "MADE-UP"))]


@pytest.mark.parametrize("tags", [TAGS, [tag for tag in TAGS if tag[0] in "BIO"]], ids=["BIOES", "BIO"])
def test_scores_are_those_of_seqeval(tags: list[str]) -> None:
    """On sequences of any tags, however little sense they make; all together, and type by type."""
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    rng = np.random.default_rng(0)
    true = [rng.choice(tags, size=int(rng.integers(1, 9))).tolist() for _ in range(400)]
    predicted = [[t if rng.random() < 0.8 else str(rng.choice(tags)) for t in sentence] for sentence in true]
    ours = span_f1(true, predicted)
    assert ours.f1 == pytest.approx(metrics.f1_score(true, predicted))
    assert ours.precision == pytest.approx(metrics.precision_score(true, predicted))
    assert ours.recall == pytest.approx(metrics.recall_score(true, predicted))
    theirs = metrics.classification_report(true, predicted, output_dict=True)
    for kind, scores in ours.by_type.items():
        expected = [theirs[kind][key] for key in ("precision", "recall", "f1-score", "support")]
        assert [scores.precision, scores.recall, scores.f1, scores.n_true] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tags", "n_spans"),
    [
        ("O O", 0),
        ("B-A I-A O I-A", 2),
        ("B-A B-A", 2),
        ("I-A I-B", 2),
        ("S-A S-A", 2),
        ("B-A I-A E-A I-A", 2),
        ("E-A E-A", 2),
        ("B-A E-A", 1),
    ],
)
def test_where_spans_begin_and_end(tags: str, n_spans: int) -> None:
    """At B and S, after O, E and S, where the type changes, and at the end of a sentence."""
    sentences = [tags.split()] * 2
    assert span_f1(sentences, sentences) == SpanScores(
        2 * n_spans, 2 * n_spans, 2 * n_spans, span_f1(sentences, sentences).by_type
    )


def test_a_span_is_right_only_as_a_whole() -> None:
    """Half a span is none, and one of another type is none either; without any span all scores are zero."""
    true = [["B-A", "I-A", "O", "B-B"]]
    assert span_f1(true, [["B-A", "O", "O", "B-B"]]).f1 == 0.5
    assert span_f1(true, [["B-B", "I-B", "O", "O"]]).n_right == 0
    empty = span_f1([["O"]], [["O"]])
    assert (empty.precision, empty.recall, empty.f1, empty.by_type) == (0.0, 0.0, 0.0, {})


def test_scores_are_a_table_to_read() -> None:
    """A line for each type, and one for all."""
    scores = span_f1([["B-A", "O", "B-B"]], [["B-A", "O", "O"]])
    assert [line.split() for line in str(scores).splitlines()] == [
        ["precision", "recall", "f1", "spans"],
        ["A", "1.0000", "1.0000", "1.0000", "1"],
        ["B", "0.0000", "0.0000", "0.0000", "1"],
        ["all", "1.0000", "0.5000", "0.6667", "2"],
    ]


def test_predictions_of_a_tagger_are_taken_as_they_are() -> None:
    """Arrays of texts, one for each sentence."""
    X, y = [[{"w": "ann"}, {"w": "lee"}, {"w": "ran"}]] * 4, [["B-PER", "I-PER", "O"]] * 4
    assert span_f1(y, StructuredPredictor(l2=0.01, random_state=0).fit(X, y).predict(X)).f1 == 1.0


@pytest.mark.parametrize(
    ("true", "predicted", "message"),
    [
        ([["O"]], [["O"], ["O"]], "must have the same length, but have 1 and 2 sentences"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], r"y_pred\[1\] must have as many tags as y_true\[1\], 2, but has 1"),
        ([["O", "NOUN"]], [["O", "O"]], r"y_true\[0\]\[1\] must be O, or one of B, I, E and S .* but is 'NOUN'"),
        ([["O"]], [["B-"]], r"y_pred\[0\]\[0\] must be O"),
        ([["O"]], [[3]], r"y_pred\[0\]\[0\] must be O, .* but is 3"),
    ],
)
def test_mistakes_are_named_with_their_place(true: Any, predicted: Any, message: str) -> None:
    """Which list, which sentence, which tag."""
    with pytest.raises(ValueError, match=message):
        span_f1(true, predicted)
