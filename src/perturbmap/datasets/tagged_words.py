"""Words with their tags, from files of Universal Dependencies (CoNLL-U), or with a word and a tag on each line."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_COLUMNS_OF_CONLLU, _FORM, _UPOS = 10, 1, 3


class TaggedWords(NamedTuple):
    """Sentences: ``words``, a list of the words of each, and ``tags``, their tags."""

    words: list[list[str]]
    tags: list[list[str]]


def load_tagged_words(path: str | os.PathLike[str]) -> TaggedWords:
    r"""Loads the words and tags of a file, which may be packed by gzip; an empty line ends a sentence.

    A line has a word, a tab and a tag; or it is one of CoNLL-U, of whose ten columns the form and the universal part
    of speech are taken. Comments are left out, and so are the lines of CoNLL-U that stand for several words, or for
    none. A ValueError names a line that is of neither kind.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from perturbmap.datasets import load_tagged_words
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "words.tsv"
    ...     _ = path.write_text("The\tDET\ndog\tNOUN\n\nGo\tVERB\n")
    ...     load_tagged_words(path).tags
    [['DET', 'NOUN'], ['VERB']]
    """
    with open(path, "rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
    found = TaggedWords([], [])
    try:
        with gzip.open(path, "rt", encoding="utf-8") if is_packed else open(path, encoding="utf-8") as lines:
            for sentence in _sentences(path, lines):
                found.words.append([word for word, _ in sentence])
                found.tags.append([tag for _, tag in sentence])
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged, or no text ({error}).") from None
    if not found.words:
        raise ValueError(f"{path} must hold words with tags, but holds none.")
    return found


def _sentences(path: str | os.PathLike[str], lines: Iterable[str]) -> Iterator[list[tuple[str, str]]]:
    sentence: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        cells = line.rstrip("\r\n").split("\t")
        if cells == [""]:
            if sentence:
                yield sentence
            sentence = []
        elif len(cells) == _COLUMNS_OF_CONLLU:
            if cells[0].isdigit():  # 3-4 is what is written for words 3 and 4, 5.1 a word that is not written
                sentence.append((cells[_FORM], cells[_UPOS]))
        elif len(cells) == 2 and all(cells):
            sentence.append((cells[0], cells[1]))
        elif not (len(cells) == 1 and line.startswith("#")):
            raise ValueError(
                f"{path}, line {number}: a line must have a word, a tab and a tag, or the ten columns of CoNLL-U, "
                f"but has {len(cells)} columns."
            )
    if sentence:
        yield sentence
