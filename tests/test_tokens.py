"""Named features of tokens: their matrices, taggers that are fitted to them, and what these say of themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction import DictVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

import perturbmap as pm
from perturbmap.support import archive

Token = dict[str, Any]


def sentences(n: int, seed: int = 0) -> tuple[list[list[Token]], list[list[str]]]:
    """Words whose endings tell their tags, but for some whose tag the word before them tells."""
    rng = np.random.default_rng(seed)
    words = {"DET": ["the", "a"], "NOUN": ["dog", "tree", "run"], "VERB": ["walks", "sees", "run"]}
    X, y = [], []
    for _ in range(n):
        tags = ["DET", "NOUN", "VERB"] * int(rng.integers(1, 3))
        x = [str(rng.choice(words[tag])) for tag in tags]
        X.append(
            [{"word": w, "ends in s": w.endswith("s"), "length": len(w) / 4, "last": w[-1]} for w in x],
        )
        y.append(tags)
    return X, y


def tagger(**parameters: Any) -> pm.StructuredPredictor:
    return pm.StructuredPredictor(objective=pm.ExactLogLikelihood(), l2=0.01, random_state=0, **parameters)


def dense(matrices: Any) -> Any:
    return np.concatenate([matrix.toarray() for matrix in matrices])


# Matrices.


def test_the_matrices_are_those_of_dict_vectorizer() -> None:
    """Column for column, whatever the values of the tokens are."""
    X, _ = sentences(30)
    X[3][0].update(count=7, negative=-2.5, nothing=0, neither=False, scalar=np.float32(0.5))
    features = pm.TokenFeatures()
    ours = dense(features.fit_transform(X))
    theirs = DictVectorizer(separator=":", dtype=np.float32).fit([token for x in X for token in x])
    names = features.get_feature_names_out().tolist()
    assert sorted([*names, "nothing", "neither"]) == sorted(theirs.feature_names_)
    expected = theirs.transform([token for x in X for token in x])
    np.testing.assert_array_equal(ours, expected[:, [theirs.vocabulary_[name] for name in names]].toarray())
    np.testing.assert_array_equal(dense(features.transform(X)), ours)


def test_names_and_numbers_are_those_of_crfsuite() -> None:
    """Texts, lists of texts and dicts in dicts become the same names there and here."""
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    x: list[Any] = [
        {"word": "dog", "near": ["a", "b"], "is": {"long": False, "loud": True, "kind": {"of": "pet"}}, "size": 0.5},
        {"set": {"only"}, "none": [], "word": "", "a:b": 1, "a": "b"},
    ]
    features = pm.TokenFeatures()
    ours = features.fit_transform([x])[0].toarray()
    for token, theirs in zip(ours, pycrfsuite.ItemSequence(x).items(), strict=True):
        found = {name: float(token[column]) for name, column in features.vocabulary_.items() if token[column]}
        assert found == {name: number + (name == "a:b") for name, number in theirs.items() if number}


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_of_names_are_dicts_of_ones(kind: type) -> None:
    """A name that is listed twice counts twice, and kinds of tokens may be mixed."""
    listed = [[kind(["a", "b", "a"]), kind([])], [], [kind(["c"])]]
    features = pm.TokenFeatures()
    matrices = features.fit_transform(listed)
    np.testing.assert_array_equal(dense(matrices), [[2, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert [matrix.shape for matrix in matrices] == [(2, 3), (0, 3), (1, 3)]
    mixed = [[{"a": 2, "b": True}, kind([])], [], [kind(["c"])]]
    np.testing.assert_array_equal(dense(features.transform(mixed)), dense(matrices))


def test_sentences_are_one_matrix_and_a_list_of_matrices() -> None:
    """As X they are learned from without being cut; as a list, every matrix is sound, and learned from alike."""
    X, y = sentences(40)
    found = pm.TokenFeatures().fit_transform(X)
    assert len(found) == len(X)
    assert [matrix.shape[0] for matrix in found] == [len(x) for x in X]
    assert [matrix.shape[0] for matrix in found[-2:]] == [len(x) for x in X[-2:]]
    for matrix in found:
        matrix.check_format(full_check=True)
    np.testing.assert_array_equal(tagger().fit(found, y).coef_, tagger().fit(list(found), y).coef_)
    with pytest.raises(IndexError):
        found[40]


def test_rare_names_are_dropped_and_unknown_ones_ignored() -> None:
    """A name is kept if at least ``min_count`` tokens of the fit have it."""
    X = [[{"w": "a"}, {"w": "b"}], [{"w": "a", "rare": 2}]]
    features = pm.TokenFeatures(min_count=2)
    np.testing.assert_array_equal(dense(features.fit_transform(X)), [[1], [0], [1]])
    assert features.get_feature_names_out().tolist() == ["w:a"]
    np.testing.assert_array_equal(dense(features.transform([[{"w": "a", "new": 1}, {"w": "c"}]])), [[1], [0]])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("dogs", r"X must be a list of sentences, each a list of tokens, but is a str"),
        ([], r"X must hold at least one sentence"),
        ([[{"w": "a"}], 3], r"X\[1\] must be a list of tokens, but is a int"),
        ([[{"w": "a"}], {"w": "a"}], r"X\[1\] must be a list of tokens, but is a dict"),
        ([["dog"]], r"X\[0\]\[0\] must be a dict .* but is 'dog'. A word alone is \{'word': 'dog'\}"),
        ([[{"w": "a"}, 5]], r"X\[0\]\[1\] must be a dict of names .* but is 5"),
        ([[{"w": "a"}, {3: "a"}]], r"X\[0\]\[1\] must have texts for names, but has 3"),
        ([[["a"], ["b", 3]]], r"X\[0\]\[1\] must hold names, but holds 3"),
        ([[{"w": None}]], r"X\[0\]\[0\]\['w'\] must be a finite number, a boolean, a text .* but is None"),
        ([[{"w": np.nan}]], r"X\[0\]\[0\]\['w'\] must be a finite number"),
        ([[{"w": 1e39}]], r"X\[0\]\[0\]\['w'\] must be a finite number"),
        ([[{"w": ["a", 3]}]], r"X\[0\]\[0\]\['w'\] must be a finite number, .* a list of texts"),
        ([[{"w": False}]], r"X must hold features, but no name is in 1 tokens"),
    ],
)
def test_mistakes_in_tokens_are_named_with_their_place(X: Any, message: str) -> None:
    """The sentence, the token and the name."""
    with pytest.raises(ValueError, match=message):
        pm.TokenFeatures().fit(X)


def test_what_is_not_fitted_says_so() -> None:
    """As scikit-learn's transformers do; and a count that is none is named."""
    with pytest.raises(NotFittedError, match="TokenFeatures is not fitted yet"):
        pm.TokenFeatures().transform([[{"w": "a"}]])
    with pytest.raises(ValueError, match="min_count must be an integer of at least 1, but is 0"):
        pm.TokenFeatures(min_count=0).fit([[{"w": "a"}]])


# Taggers.


def test_tokens_and_names_of_tags_are_all_that_a_tagger_needs() -> None:
    """The same weights as in a pipeline, and as with matrices made by hand; strings in, strings out."""
    X, y = sentences(30)
    direct = tagger().fit(X, y)
    assert direct.score(*sentences(20, seed=1)) > 0.95
    predicted = direct.predict(X[:2])
    assert [labels.tolist() for labels in predicted] == y[:2]
    pipeline = Pipeline([("features", pm.TokenFeatures()), ("tagger", tagger())]).fit(X, y)
    features = pm.TokenFeatures().fit(X)
    by_hand = tagger().fit(features.transform(X), y)
    for other in (pipeline[-1], by_hand):
        np.testing.assert_array_equal(other.coef_, direct.coef_)
    np.testing.assert_array_equal(pipeline.predict(X)[0], predicted[0])
    assert by_hand.features_ is None


def test_a_tagger_ignores_names_it_has_not_met() -> None:
    """A new word is tagged by what else is known of it."""
    X, y = sentences(30)
    est = tagger().fit(X, y)
    new = [dict(token, word="unheard of", novel=1.0) for token in X[0]]
    without = [{name: value for name, value in token.items() if name != "word"} for token in X[0]]
    np.testing.assert_array_equal(est.predict_marginals([new])[0], est.predict_marginals([without])[0])


def test_scikit_learns_tools_choose_the_features() -> None:
    """``features__min_count`` is a parameter like any other, and a clone has its own."""
    X, y = sentences(24)
    est = tagger(features=pm.TokenFeatures())
    search = GridSearchCV(est, {"features__min_count": [1, 40]}, cv=2).fit(X, y)
    assert search.best_params_ == {"features__min_count": 1}
    assert clone(est).features is not est.features
    assert est.features is not None
    assert not hasattr(est.features, "vocabulary_")


def test_every_way_to_fit_takes_tokens(tmp_path: Path) -> None:
    """With validation data, along a path of penalties, in parts, with a checkpoint, partly labelled."""
    X, y = sentences(30)
    held = sentences(10, seed=2)
    est = pm.StructuredPredictor(l2=0.01, solver=pm.DoubleSGD(5), random_state=0)
    assert "validation_loss" in est.fit(X, y, validation=held, checkpoint=tmp_path / "fit.pm").history_[-1]
    path = pm.regularisation_path(tagger(), X, y, [0.1, 0.01])
    assert [one.features_.vocabulary_ for one in path if one.features_] == [est.features_.vocabulary_] * 2  # type: ignore[union-attr]
    parts = clone(est).partial_fit(X, y, classes=["DET", "NOUN", "VERB"])
    before = parts.n_iter_
    assert parts.partial_fit(*held).n_iter_ > before
    assert est.problem(X, y).data.n_features == len(est.features_.vocabulary_)  # type: ignore[union-attr]
    partly = [[None if d % 2 else tag for d, tag in enumerate(tags)] for tags in y]
    assert tagger().fit(X, [*y[:5], *partly[5:29], None]).score(*held) > 0.9


def test_a_tagger_and_its_names_travel_in_one_file(tmp_path: Path) -> None:
    """Another process tags tokens by the file alone."""
    X, y = sentences(20)
    est = tagger(features=pm.TokenFeatures(min_count=2)).fit(X, y)
    path = tmp_path / "tagger.pm"
    est.save(path)
    loaded = pm.StructuredPredictor.load(path)
    assert loaded.features == est.features
    for a, b in zip(loaded.predict_marginals(X), est.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(a, b)
    code = f"import perturbmap as pm; print(*pm.StructuredPredictor.load({str(path)!r}).predict([{X[0]!r}])[0])"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.split() == est.predict(X[:1])[0].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda names: names[1:], "different feature_names"),
        (lambda names: [names[0], *names[:-1]], "different feature_names"),
        (lambda names: [3, *names[1:]], "its feature_names must be texts"),
        (lambda names: "text", "its feature_names must be texts"),
    ],
)
def test_forged_names_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    """A file whose names are not those of its columns is not loaded."""
    about, arrays = tagger().fit(*sentences(5)).contents()
    archive.write(
        tmp_path / "bad.pm", "estimator", {**about, "feature_names": change(about["feature_names"])}, arrays
    )
    with pytest.raises(ValueError, match=message):
        pm.StructuredPredictor.load(tmp_path / "bad.pm")


def test_tokens_and_matrices_are_not_confused() -> None:
    """What comes after a fit must be what the fit had, and features must be features."""
    X, y = sentences(10)
    by_tokens, by_matrices = tagger().fit(X, y), tagger().fit(pm.TokenFeatures().fit_transform(X), y)
    with pytest.raises(ValueError, match="X holds tokens, but the fit had feature matrices"):
        by_matrices.predict(X)
    with pytest.raises(ValueError, match=r"X\[0\] must be a list of tokens, but is a ndarray"):
        by_tokens.predict([np.zeros((2, 3))])
    with pytest.raises(TypeError, match="features must be of type TokenFeatures, or None, but is 3"):
        tagger(features=3).fit(X, y)
    with pytest.raises(ValueError, match=r"A word alone is \{'word': 'the'\}"):
        tagger().fit([["the", "dog"]], [["DET", "NOUN"]])


# What was learned.


def test_the_strongest_weights_have_names() -> None:
    """They are those of ``weights_``, the strongest first, with bias and ends among them."""
    est = tagger().fit(*sentences(30))
    found = est.explain(top=5)
    names, labels = list(est.features_.vocabulary_), est.classes_.tolist()  # type: ignore[union-attr]
    every = np.abs(np.concatenate([est.weights_["features"].ravel(), est.weights_["bias"]]))
    np.testing.assert_allclose([abs(one.weight) for one in found.features], np.sort(every)[::-1][:5])
    for weight, name, label in found.features:
        block = est.weights_["bias"] if name == "(bias)" else est.weights_["features"][names.index(name)]
        assert weight == block[labels.index(label)]
    everything = est.explain(top=10**6)
    assert len(everything.features) == (len(names) + 1) * 3
    assert len(everything.transitions) == 3 * 3 + 3 + 3
    for weight, before, after in everything.transitions:
        if before is None:
            assert weight == est.weights_["first"][labels.index(after)]
        elif after is None:
            assert weight == est.weights_["last"][labels.index(before)]
        else:
            assert weight == est.weights_["transition"][labels.index(before), labels.index(after)]


def test_an_explanation_is_a_table_to_read() -> None:
    """A line for each weight, signed, with its names."""
    est = tagger().fit(*sentences(30))
    found = est.explain(top=3)
    lines = str(found).splitlines()
    assert len(lines) == 3 + 3 + 3
    assert lines[1].split() == [f"{found.features[0].weight:+.4f}", *found.features[0].feature.split(), "DET"]
    assert "(start) -> DET" in str(est.explain())


def test_columns_without_names_have_numbers() -> None:
    """Unless the names are given, one for each."""
    X, y = sentences(20)
    features = pm.TokenFeatures()
    est = tagger().fit(features.fit_transform(X), y)
    named = est.explain(feature_names=features.get_feature_names_out().tolist())
    plain = est.explain()
    assert [one.weight for one in named.features] == [one.weight for one in plain.features]
    column = next(one.feature for one in plain.features if one.feature != "(bias)").removeprefix("feature ")
    name = next(one.feature for one in named.features if one.feature != "(bias)")
    assert features.vocabulary_[name] == int(column)
    with pytest.raises(ValueError, match=r"feature_names must have .* names, one per feature, but has 1"):
        est.explain(feature_names=["a"])
    with pytest.raises(ValueError, match="top must be an integer of at least 1"):
        est.explain(top=0)
    graph = pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), l2=0.1, random_state=0)
    graph.fit([np.eye(4)] * 2, [[0, 1, 0, 1]] * 2)
    with pytest.raises(ValueError, match="explain needs the weights of a SequenceModel"):
        graph.explain()
