"""The words of the package: what `help()` shows of it, and how its docstrings, comments and messages are written."""

import ast
import functools
import importlib
import importlib.util
import inspect
import io
import pkgutil
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perturbmap

PACKAGE = Path(perturbmap.__file__).parent
#: Subpackages that need an extra, and the module that tells whether it is installed.
EXTRAS = {
    "perturbmap.nn": "torch",
    "perturbmap.images": "skimage",
    "perturbmap.annotate": "skimage",
    "perturbmap.annotate.guard": "starlette",
    "perturbmap.annotate.server": "starlette",
    "perturbmap.cli.annotate_runs": "starlette",
    "perturbmap.experiments.horses": "skimage",
    "perturbmap.experiments.msrc": "skimage",
    "perturbmap.experiments.visual_words": "skimage",
}
#: What is shorter is a label, not an explanation.
LEAST_WORDS = 5

_COUNTED = (
    "answer|array|batch|bit|block|boundary|call|chain|chunk|class|column|copy|core|decade|draw|edge|entry|example|file|"
    "fold|graph|image|iteration|key|label|letter|line|machine|maximisation|method|minute|node|pair|part|pass|"
    "perturbation|pin|pixel|process|protocol|quantity|round|row|run|second|shard|site|stage|step|superpixel|table|task|"
    "thread|variable|weight|word|worker"
)
#: Words after which "a" is an article, as in "one end of an edge", and not a "per".
_ARTICLE = (
    "of|in|on|at|by|for|from|to|with|without|as|than|that|which|is|are|be|was|has|have|had|and|or|but|not|where|when|if|"
    "along|whether|share|between|under|over|inside|after|before|about|like|through|into|until|while|means|makes|gives|gets|takes|holds"
)
#: "A" and "an" in the sense of "per": "one table an edge", "a line a run", "3 MB an image".
PER = re.compile(
    rf"\b(?:(?:one|two|three|four|once|\d(?:[\d,.]*\d)?)(?: (?!(?:{_ARTICLE})\b)[\w-]+){{0,3}}"
    rf"|(?:a|an) (?!(?:{_ARTICLE}|such|quite|rather|half|what|many)\b)[\w-]+"
    rf"|(?:bytes|kB|MB|GB|seconds|milliseconds|microseconds|nanoseconds|times|features|sites|labels|steps|rounds))"
    rf" an? (?:{_COUNTED})\b(?! (?:that|which|of|where|with|whose)\b)",
    re.IGNORECASE,
)
#: Words with a plain one in their place: expensive, label prior, trial.
ODD = re.compile(r"\b(?:dear|dearer|dearest|(?:un)?tilt(?:s|ed|ing)?|rehears(?:e|es|ed|al|als))\b", re.IGNORECASE)


def module_names() -> list[str]:
    """All modules of the package that can be imported here."""
    missing = [name for name, needed in EXTRAS.items() if importlib.util.find_spec(needed) is None]
    found = [
        info.name
        for info in pkgutil.iter_modules([str(PACKAGE)], "perturbmap.")
        if not info.name.endswith("__main__")
    ]
    names = ["perturbmap"]
    while found:
        name = found.pop()
        if name in missing:
            continue
        names.append(name)
        folder = PACKAGE.joinpath(*name.split(".")[1:])
        found += [info.name for info in pkgutil.iter_modules([str(folder)], f"{name}.")]
    return sorted(names)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class itself defines."""
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if inspect.isfunction(value) or isinstance(value, (property, functools.cached_property)):
            yield name, value
        elif isinstance(value, (classmethod, staticmethod)):
            yield name, value.__func__


def public(module: Any) -> Iterator[tuple[str, Any]]:
    """Public classes and functions that a module itself defines, and the public members of the classes."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield f"{module.__name__}.{name}", value
        elif inspect.isclass(value):
            yield f"{module.__name__}.{name}", value
            for member, what in members(value):
                yield f"{module.__name__}.{name}.{member}", what


@pytest.mark.parametrize("name", module_names())
def test_help_explains_whatever_is_public(name: str) -> None:
    """Whatever is public has, or inherits, a docstring of at least five words."""
    if name.startswith("perturbmap.nn.chains.kernels"):
        pytest.importorskip("triton", reason="Triton is not everywhere")
    module = importlib.import_module(name)
    docs = {name: module.__doc__, **{what: inspect.getdoc(value) for what, value in public(module)}}
    short = {what: doc for what, doc in docs.items() if doc is None or len(doc.split()) < LEAST_WORDS}
    assert not short


def written(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and strings of a source file by line, each on one line; strings in a row are joined as Python does."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_odd_words(path: Path) -> None:
    """Docstrings, comments and strings say "one table per edge", not "one table an edge", and use no odd words."""
    found = [
        f"line {line}: {match.group()}"
        for line, text in written(path)
        for pattern in (PER, ODD)
        for match in pattern.finditer(text)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "is_odd"),
    [
        ("one table an edge", True),
        ("a line a run", True),
        ("two labels a site", True),
        ("3 MB an image", True),
        ("microseconds a pin", True),
        ("one table for each edge", False),
        ("one end of an edge", False),
        ("bytes per site", False),
        ("a label of a site", False),
    ],
)
def test_the_search_for_odd_words_finds_them_and_no_others(text: str, is_odd: bool) -> None:
    """The pattern tells "a" in the sense of "per" from the article."""
    assert bool(PER.search(text)) == is_odd
