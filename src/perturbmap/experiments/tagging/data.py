"""The sentences of the tagging experiment: where their files are, which features words have, which tags are known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from perturbmap.datasets import TaggedWords, load_tagged_words

PARTS = ("train", "dev", "test")
_PATTERNS = ("{part}.tsv.gz", "{part}.tsv", "*{part}.conllu", "*{part}.conllu.gz")

#: Sets of features, each with those before it.
FEATURES = {
    "words": "the word, as it is and in small letters",
    "affixes": "and its first and last letters, one to four, and its shape",
    "neighbours": "and the two words before and after it, and the last letters of those next to it",
}
#: What is known of the sentences to learn from.
KNOWN = {
    "all": "all tags",
    "tenth": "a tenth of the sentences, and no others",
    "none": "a tenth of the sentences, and the words of the others",
    "some": "a tenth of the sentences, and some tags of the others",
}
#: One sentence in so many is labelled, and one word in so many of the others where some tags are known.
_LABELLED, _SOME = 10, 5

#: The names of the features of each word of a sentence.
Tokens = list[list[str]]
#: What y is for `StructuredPredictor.fit`.
Known = list[list[str | None] | None]


@final
@dataclass(frozen=True, eq=False)
class Corpus:
    """The sentences of each part."""

    parts: dict[str, TaggedWords]

    @classmethod
    def load(cls, folder: Path, n_train: int | None = None) -> Corpus:
        """The files of a folder; of those to learn from, the first so many sentences."""
        parts = {part: load_tagged_words(_find(folder, part)) for part in PARTS}
        if n_train is not None:
            parts["train"] = TaggedWords(*(lists[:n_train] for lists in parts["train"]))
        return cls(parts)

    @property
    def fingerprint(self) -> str:
        """A digest of all sentences."""
        digest = hashlib.blake2b(digest_size=8)
        for sentence in (sentence for part in self.parts.values() for lists in part for sentence in lists):
            digest.update(repr(sentence).encode())
        return digest.hexdigest()

    @property
    def tags(self) -> list[str]:
        """The tags of the sentences to learn from, sorted."""
        return sorted({tag for tags in self.parts["train"].tags for tag in tags})

    def tokens(self, part: str, features: str) -> list[Tokens]:
        """The features of all words of a part."""
        return [named_features(words, features) for words in self.parts[part].words]

    def training_set(self, features: str, known: str) -> tuple[list[Tokens], Known]:
        """What is learned from: tokens, and what is known of their tags; where a tenth is labelled, every tenth."""
        X, tags = self.tokens("train", features), self.parts["train"].tags
        if known == "all":
            return X, [list(y) for y in tags]
        labelled = [n for n in range(len(X)) if n % _LABELLED == 0]
        if known == "tenth":
            return [X[n] for n in labelled], [list(tags[n]) for n in labelled]
        rng = np.random.default_rng(0)
        is_known = [rng.random(len(y)) < (1 / _SOME if known == "some" else 0) for y in tags]
        y: Known = [
            [tag if k else None for tag, k in zip(y, ks, strict=True)] for y, ks in zip(tags, is_known, strict=True)
        ]
        for n in labelled:
            y[n] = list(tags[n])
        return X, y


def named_features(words: Sequence[str], features: str) -> Tokens:
    """The names of the features of each word of a sentence, as crfsuite and `TokenFeatures` take them."""
    small = [word.lower() for word in words]
    tokens = [[f"word:{word}", f"small:{low}"] for word, low in zip(words, small, strict=True)]
    if features == "words":
        return tokens
    for token, word, low in zip(tokens, words, small, strict=True):
        token.append(f"shape:{shape(word)}")
        for n in range(1, min(4, len(low)) + 1):
            token += [f"begins:{low[:n]}", f"ends:{low[-n:]}"]
    if features == "affixes":
        return tokens
    for d, token in enumerate(tokens):
        for step in (-2, -1, 1, 2):
            is_there = 0 <= d + step < len(words)
            token.append(f"{step:+d}:{small[d + step]}" if is_there else f"{step:+d} is beyond the end")
            if is_there and abs(step) == 1:
                token.append(f"{step:+d} ends:{small[d + step][-3:]}")
    return tokens


def shape(word: str) -> str:
    """A word with X for its large letters, x for its small ones and 0 for its digits, no kind twice in a row."""
    found = ""
    for letter in word:
        kind = "X" if letter.isupper() else "x" if letter.isalpha() else "0" if letter.isdigit() else letter
        if not found.endswith(kind):
            found += kind
    return found


def _find(folder: Path, part: str) -> Path:
    for pattern in _PATTERNS:
        found = sorted(folder.glob(pattern.format(part=part)))
        if found:
            return found[0]
    names = ", ".join(pattern.format(part=part) for pattern in _PATTERNS)
    raise ValueError(f"{folder} must hold the sentences of {part}, as one of {names}.")
