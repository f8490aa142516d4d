"""Models and evidence in the file format of the UAI inference competitions.

Reference: V. Gogate, UAI 2014 Inference Competition, "Model Format" and "Evidence Format"; the older layout of
evidence, which begins with a number of samples, is that of the competitions of 2008 to 2011.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from perturbmap.uai.factor_graph import MAX_LABELS, Factor, FactorGraph
from perturbmap.uai.pairwise_model import PairwiseModel
from perturbmap.uai.tokens import Tokens


def read(path: str | os.PathLike[str], evidence: str | os.PathLike[str] | None = None) -> PairwiseModel:
    """Reads the model of a UAI file, given the evidence of another file, as potentials over pairs of variables."""
    graph = read_factors(path)
    observed = {} if evidence is None else read_evidence(evidence)
    try:
        with _in_memory(path):
            return PairwiseModel.of(graph, observed)
    except ValueError as error:
        beside = "" if evidence is None else f" with the evidence of {evidence}"
        raise ValueError(f"{path}{beside}: {error}") from None


def read_factors(path: str | os.PathLike[str]) -> FactorGraph:
    """Reads the factors of a UAI file, MARKOV or BAYES; variables with a single label are left out of the scopes.

    The tables hold factors, not logarithms, and the label of the last variable of a scope changes fastest.
    """
    with _in_memory(path):
        return _read_factors(Tokens(path))


def _read_factors(tokens: Tokens) -> FactorGraph:
    if tokens.word("MARKOV or BAYES").upper() not in ("MARKOV", "BAYES"):
        raise tokens.error(0, "MARKOV or BAYES, the type of a network in the UAI format")
    n = tokens.integer("the number of variables, at least 1", 1, 10**17)
    _expect(tokens, n, f"the labels of {n} variables")
    expected = f"a number of labels from 1 to {MAX_LABELS}"
    cardinalities = [tokens.integer(expected, 1, MAX_LABELS) for _ in range(n)]
    n_factors = tokens.integer("the number of factors", 0, 10**17)
    # Each has the size of its scope, the size of its table, and at least one value.
    _expect(tokens, 3 * n_factors, f"{n_factors} factors")
    scopes = [_read_scope(tokens, a, n) for a in range(n_factors)]
    parts = []
    for a, scope in enumerate(scopes):
        size = _table_size(tokens, a, [cardinalities[v] for v in scope])
        tokens.integer(f"{size}, the size of the table of factor {a}", size, size)
        parts.append(tokens.skip(size, f"the table of factor {a}"))
    tokens.finish()
    values = tokens.numbers(parts, "a factor: a finite number that is not negative, nor too small for a double")
    factors, start = [], 0
    for scope, part in zip(scopes, parts, strict=True):
        several = tuple(v for v in scope if cardinalities[v] > 1)
        stop = start + part.stop - part.start
        factors.append(Factor(several, values[start:stop].reshape([cardinalities[v] for v in several])))
        start = stop
    return FactorGraph(cardinalities, factors)


def read_evidence(path: str | os.PathLike[str]) -> dict[int, int]:
    """Reads observed variables and their labels from a file: ``n variable label variable label ...``.

    Before that there may be a number of samples, which must be 1. The two layouts cannot be taken for each other: the
    first has an odd number of words, the second, with one sample, an even one.
    """
    with _in_memory(path):
        return _read_evidence(Tokens(path))


def _read_evidence(tokens: Tokens) -> dict[int, int]:
    path = tokens.path
    n_words = len(tokens.words)
    first = tokens.integer("a number of observed variables, or of samples", 0, 10**17)
    n_samples = _n_samples(tokens)
    if n_samples > 1:
        raise ValueError(
            f"{path} holds {n_samples} samples of evidence, but one alone can be used: write each to its own file."
        )
    if n_words % 2 == 0:
        if first != 1:
            raise tokens.error(
                0, f"1, the number of samples, because the file has an even number of words, {n_words}"
            )
        first = tokens.integer("the number of observed variables", 0, 10**17)
    if tokens.n_left != 2 * first:
        raise ValueError(
            f"{path} declares {first} observed variables, which take {2 * first} words, a variable and its label "
            f"each, but {tokens.n_left} words follow."
        )
    observed: dict[int, int] = {}
    for _ in range(first):
        variable = tokens.integer("a variable, counted from 0", 0, 10**17)
        if variable in observed:
            raise tokens.error(tokens.position - 1, f"another variable, because {variable} has been observed before")
        observed[variable] = tokens.integer("a label, counted from 0", 0, 10**17)
    return observed


def _n_samples(tokens: Tokens) -> int:
    """Where all words make several samples, their number; else 1.

    ``2  0  1 3 0`` may be two samples, the first without evidence, or two variables: then lines decide, one for each
    sample.
    """
    n_samples, n_words = int(tokens.words[0]), len(tokens.words)
    sizes, place = [1], 1
    while len(sizes) <= n_samples and place < n_words:
        count = tokens.words[place]
        size = 1 + 2 * int(count) if count.isdigit() and len(count) < 10 else n_words
        sizes.append(size)
        place += size
    if n_samples < 2 or len(sizes) <= n_samples or place != n_words:
        return 1
    is_one_too = n_words == 1 + 2 * n_samples
    return 1 if is_one_too and [len(line.split()) for line in tokens.lines if line.strip()] != sizes else n_samples


def _read_scope(tokens: Tokens, a: int, n: int) -> tuple[int, ...]:
    size = tokens.integer(f"the number of variables of factor {a}, at most {n}", 0, n)
    _expect(tokens, size, f"the {size} variables of factor {a}")
    scope: list[int] = []
    for _ in range(size):
        scope.append(tokens.integer(f"a variable of factor {a}, from 0 to {n - 1}", 0, n - 1))
    if len(set(scope)) < size:
        first = {v: k for k, v in reversed(list(enumerate(scope)))}
        twice = next(k for k, v in enumerate(scope) if first[v] < k)
        raise tokens.error(tokens.position - size + twice, f"variables of factor {a} that differ from each other")
    return tuple(scope)


@contextmanager
def _in_memory(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise ValueError(f"{path} takes more memory than there is: give it evidence, or more memory.") from None


def _table_size(tokens: Tokens, a: int, labels: list[int]) -> int:
    """The number of entries of a table over variables with so many labels, none of which may be missing."""
    size = 1
    for n_labels in labels:
        size *= n_labels
        if size > tokens.n_left:  # multiplied no further: of a thousand variables it would have thousands of digits
            raise ValueError(
                f"{tokens.path} is truncated, or its counts are wrong: the table of factor {a}, over {len(labels)} "
                f"variables, takes at least {size} words, but {tokens.n_left} follow."
            )
    return size


def _expect(tokens: Tokens, n: int, what: str) -> None:
    """Refuses counts that the file is too short for, before anything of their size is made."""
    if n > tokens.n_left:
        raise ValueError(
            f"{tokens.path} is truncated, or its counts are wrong: it declares {what}, which take at least {n} "
            f"words, but {tokens.n_left} follow."
        )
