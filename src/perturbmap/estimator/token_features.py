"""Named features of tokens, as sklearn-crfsuite takes them, to one sparse matrix for each sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Real
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from perturbmap import _core
from perturbmap.data.sentences import Sentences
from perturbmap.support.checks import check_count
from perturbmap.support.parts import Part

_LARGEST = float(np.finfo(np.float32).max)
_SEPARATOR = ":"
# Tokens whose names are looked up together: few enough for a processor's cache.
_CHUNK = 1024


@final
class TokenFeatures(Part, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Turns named features of tokens into sparse matrices: one matrix for each sentence, one row for each token.

    X is a list of sentences; a sentence is a list of tokens; a token is a dict of names to numbers, booleans or
    texts, or a list of names. As in crfsuite, a text is part of the name: ``{"word": "dog"}`` is the feature
    "word:dog" with the value one, and so is ``["word:dog"]``; several texts, ``{"near": ["a", "b"]}``, are several
    features, and the names of a dict in a dict are joined. Features that are zero or False are left out.

    min_count : names that fewer tokens than this have are dropped; 1 keeps all

    After a fit, ``vocabulary_`` has the column of each name, in the order in which names were first met. Names that
    were not met then are ignored later. A `StructuredPredictor` that is fitted to tokens makes its own.

    >>> features = pm.TokenFeatures()
    >>> matrices = features.fit_transform([[{"word": "The", "title": True}, {"word": "dog", "length": 3}]])
    >>> features.get_feature_names_out().tolist()
    ['word:The', 'title', 'word:dog', 'length']
    >>> matrices[0].toarray()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 3.]], dtype=float32)
    """

    def __init__(self, min_count: int = 1) -> None:
        self.min_count = min_count

    def fit(self, X: Sequence[Any], y: object = None) -> TokenFeatures:
        """Learns the names of the features in X."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Sequence[Any], y: object = None) -> Sentences:
        """Learns the names of the features in X and returns its matrices: faster than one after the other."""
        min_count = check_count("min_count", self.min_count)
        growing = _Growing()
        matrix, vocabulary = _matrix(X, growing), dict(growing)
        counted = matrix
        if min_count > 1:  # a token that has a name twice is one token
            counted = matrix.copy()
            counted.sum_duplicates()
        counts = np.bincount(counted.indices, minlength=matrix.shape[1])
        if (counts < min_count).any():  # of names that are always zero too
            kept, names = np.flatnonzero(counts >= min_count), list(vocabulary)
            matrix, vocabulary = matrix[:, kept], {names[old]: new for new, old in enumerate(kept.tolist())}
        if not vocabulary:
            raise ValueError(f"X must hold features, but no name is in {min_count} tokens, as min_count asks.")
        self.vocabulary_ = vocabulary
        return Sentences(matrix, list(map(len, X)))

    def transform(self, X: Sequence[Any]) -> Sentences:
        """One matrix for each sentence, ``(n_tokens, n_features)``; names that the fit has not met are ignored."""
        return Sentences(_matrix(X, self._fitted_vocabulary()), list(map(len, X)))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """The names of the columns, in their order."""
        return np.array(list(self._fitted_vocabulary()), dtype=object)

    def with_names(self, names: Iterable[str]) -> TokenFeatures:
        """Returns a fitted copy with these names as its columns, for instance those that a file has."""
        features = TokenFeatures(self.min_count)
        features.vocabulary_ = {name: column for column, name in enumerate(names)}
        return features

    def _fitted_vocabulary(self) -> dict[str, int]:
        if not hasattr(self, "vocabulary_"):
            raise NotFittedError("This TokenFeatures is not fitted yet: call fit(X) first.")
        return self.vocabulary_


def holds_tokens(X: Any) -> bool:
    """Whether X is a list of sentences of tokens, as far as its first token tells, and not one of matrices."""
    if not isinstance(X, (list, tuple)):
        return False
    for sentence in X:
        if not isinstance(sentence, (list, tuple)):
            return False
        for token in sentence:
            if isinstance(token, (Mapping, str)):
                return True
            if not isinstance(token, (list, tuple, set, frozenset)):
                return False
            if token:
                return isinstance(next(iter(token)), str)
    return False


class _Growing(dict[str, int]):
    """A vocabulary that is learned: a name that is new gets the next column."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def _matrix(X: Sequence[Any], vocabulary: dict[str, int]) -> sp.csr_array:
    """All tokens one after another; new names go into the vocabulary if it is growing."""
    if not isinstance(X, (list, tuple)):
        raise ValueError(f"X must be a list of sentences, each a list of tokens, but is a {type(X).__name__}.")
    if not X:
        raise ValueError("X must hold at least one sentence, but is empty.")
    try:
        tokens = list(chain.from_iterable(X))
        columns, numbers = _features(tokens, vocabulary)
    except TypeError:  # something is nested, or is no token at all: one by one, to say which
        tokens = [_flat(f"X[{n}][{d}]", token) for n, x in enumerate(X) for d, token in enumerate(_sentence(n, x))]
        columns, numbers = _features(tokens, vocabulary)
    is_there = (columns >= 0) & (numbers != 0)
    ends = np.concatenate([[0], np.cumsum([len(token) for token in tokens], dtype=np.int64)])
    starts = np.concatenate([[0], np.cumsum(is_there)])[ends].astype(np.int32 if len(columns) < 2**31 else np.int64)
    if not is_there.all():
        columns, numbers = columns[is_there], numbers[is_there]
    return sp.csr_array((numbers, columns, starts), shape=(len(tokens), len(vocabulary)))


def _features(tokens: Sequence[Any], vocabulary: dict[str, int]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The columns of the features of all tokens, one after another, -1 for those without one; and their numbers."""
    columns, numbers = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.float32)]
    for first in range(0, len(tokens), _CHUNK):
        names, some = _named_numbers(tokens[first : first + _CHUNK])
        if isinstance(vocabulary, _Growing):
            found = np.fromiter(map(vocabulary.__getitem__, names), dtype=np.int32, count=len(names))
        else:
            found = np.empty(len(names), dtype=np.int32)
            _core.look_up(names, vocabulary, found)
        columns.append(found)
        numbers.append(some)
    return np.concatenate(columns), np.concatenate(numbers)


def _named_numbers(tokens: Sequence[Any]) -> tuple[list[str], NDArray[np.float32]]:
    """The names of the features of tokens, one after another, and their numbers.

    TypeError where a token is neither a plain dict nor a list of names, or where there are both.
    """
    names = list(chain.from_iterable(tokens))
    if not all(issubclass(kind, str) for kind in set(map(type, names))):
        raise TypeError
    kinds = set(map(type, tokens))
    if all(issubclass(kind, (list, tuple, set, frozenset)) for kind in kinds):
        return names, np.ones(len(names), dtype=np.float32)
    if not all(issubclass(kind, Mapping) for kind in kinds):
        raise TypeError
    values = list(chain.from_iterable(token.values() for token in tokens))
    kinds = set(map(type, values))
    if not all(issubclass(kind, (str, Real, np.bool_)) for kind in kinds):
        raise TypeError
    pairs = zip(names, values, strict=True)
    if kinds == {str}:
        return [f"{name}{_SEPARATOR}{value}" for name, value in pairs], np.ones(len(names), dtype=np.float32)
    numbers = np.array([1.0 if isinstance(value, str) else value for value in values], dtype=np.float64)
    if not (np.abs(numbers) <= _LARGEST).all():
        raise TypeError
    joined = [f"{name}{_SEPARATOR}{value}" if isinstance(value, str) else name for name, value in pairs]
    return joined, numbers.astype(np.float32)


def _sentence(n: int, sentence: Any) -> Sequence[Any]:
    if not isinstance(sentence, (list, tuple)):
        raise ValueError(f"X[{n}] must be a list of tokens, but is a {type(sentence).__name__}.")
    return sentence


def _flat(where: str, token: Any) -> dict[str, float]:
    """A token as names and numbers; ValueError says where something else stands."""
    if isinstance(token, Mapping):
        flat: dict[str, float] = {}
        for name, number in _flat_pairs(where, "", token):
            flat[name] = flat.get(name, 0.0) + number
        return flat
    if not isinstance(token, (list, tuple, set, frozenset)):
        hint = f" A word alone is {{'word': {token!r}}}." if isinstance(token, str) else ""
        raise ValueError(
            f"{where} must be a dict of names to numbers, booleans or texts, or a list of names, but is {token!r}."
            f"{hint}"
        )
    for name in token:
        if not isinstance(name, str):
            raise ValueError(f"{where} must hold names, but holds {name!r}: write a dict for numbers with names.")
    return {name: float(sum(other == name for other in token)) for name in token}


def _flat_pairs(where: str, prefix: str, token: Mapping[Any, Any]) -> Iterator[tuple[str, float]]:
    for key, value in token.items():
        if not isinstance(key, str):
            raise ValueError(f"{where} must have texts for names, but has {key!r}.")
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _flat_pairs(where, name + _SEPARATOR, value)
        elif isinstance(value, str):
            yield name + _SEPARATOR + value, 1.0
        elif isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(text, str) for text in value):
            yield from ((name + _SEPARATOR + text, 1.0) for text in value)
        elif isinstance(value, (Real, np.bool_)) and abs(float(value)) <= _LARGEST:
            yield name, float(value)
        else:
            raise ValueError(
                f"{where}[{key!r}] must be a finite number, a boolean, a text or a list of texts, but is {value!r}."
            )
