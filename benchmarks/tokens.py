"""Named features of tokens to numbers: beside crfsuite, which must do the same before it learns or tags."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pycrfsuite
from sklearn.feature_extraction import DictVectorizer

from benchmarks.harness import Benchmark, Line, interleaved
from perturbmap import TokenFeatures
from perturbmap.experiments.tagging.data import named_features

N_SENTENCES, N_WORDS, N_DIFFERENT = 2000, 16, 20000


def sentences() -> list[list[dict[str, str]]]:
    """Words as frequent as those of a language (Zipf's law), with the features of the tagging experiment."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    words = ["".join(rng.choice(letters, size=rng.integers(2, 10))) for _ in range(N_DIFFERENT)]
    shares = 1 / np.arange(1, N_DIFFERENT + 1)
    drawn = rng.choice(N_DIFFERENT, size=(N_SENTENCES, N_WORDS), p=shares / shares.sum())
    return [[dict(_named(token)) for token in named_features([words[i] for i in row], "neighbours")] for row in drawn]


def _named(token: list[str]) -> Iterator[tuple[str, str]]:
    for number, name in enumerate(token):
        kind, _, value = name.partition(":")
        yield f"{kind}{number}", value


def names_to_numbers() -> Iterator[Line]:
    X = sentences()
    y = [["a", "b"] * (N_WORDS // 2)] * N_SENTENCES
    fitted = TokenFeatures().fit(X)

    def append() -> pycrfsuite.Trainer:
        trainer = pycrfsuite.Trainer(params={"max_iterations": 1}, verbose=False)
        for x, labels in zip(X, y, strict=True):
            trainer.append(x, labels)
        return trainer

    tagger = pycrfsuite.Tagger()
    with tempfile.TemporaryDirectory() as folder:
        append().train(f"{folder}/model")
        tagger.open(f"{folder}/model")

    tasks = [
        lambda: TokenFeatures().fit_transform(X),
        append,
        lambda: DictVectorizer(separator=":", dtype=np.float32).fit_transform(chain.from_iterable(X)),
        lambda: fitted.transform(X),
        lambda: [tagger.set(x) for x in X],
    ]
    ours, theirs, sklearns, again, looked_up = interleaved(tasks, repeats=5, clock=time.process_time)
    work = f"names to numbers, {N_SENTENCES:,} sentences of {N_WORDS} tokens"
    yield Line(f"{work}, before learning", "pycrfsuite.Trainer.append", theirs / ours, 1.0)
    yield Line(f"{work}, before learning", "sklearn.feature_extraction.DictVectorizer", sklearns / ours, 1.0)
    yield Line(f"{work}, before tagging", "pycrfsuite.Tagger.set", looked_up / again, 1.0)


BENCHMARKS = [Benchmark("names of tokens to numbers", names_to_numbers)]
