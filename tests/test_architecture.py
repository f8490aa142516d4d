"""The house as it is built: layers that do not look up, names that stay at home, files that are not too long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "perturbmap"
DOCS = Path(__file__).parents[1] / "docs"

#: From the ground up; a layer may import from those before it, and those on one line do not know each other.
LAYERS: list[list[str]] = [
    ["support"],
    ["potentials"],
    ["noise"],
    ["structures"],
    ["task_losses"],
    ["inference"],
    ["objectives"],
    ["data"],
    ["models"],
    ["solvers"],
    ["learning"],
    ["distributed"],
    ["estimator"],
    ["testing", "nn", "uai", "datasets", "images"],
    ["experiments", "annotate"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line, module, names) of all imports from this package, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports by a relative name"
            if node.module is not None and node.module.split(".")[0] == "perturbmap":
                yield node.lineno, node.module, [name.name for name in node.names]
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "perturbmap":
                    yield node.lineno, name.name, []


def test_every_module_is_in_a_layer() -> None:
    """The list above is the whole package."""
    assert {layer_of(path) for path in FILES} - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_layer_imports_from_one_above_it(path: Path) -> None:
    """Nor from one beside it."""
    layer = layer_of(path)
    if layer == "__init__":
        return
    for line, module, names in imported(path):
        parts = module.split(".")
        for other in [parts[1]] if len(parts) > 1 else names:
            if other in LEVEL and other != layer:
                assert LEVEL[other] < LEVEL[layer], f"{path}:{line}: {layer} imports from {other}"


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_here(tree: ast.AST) -> set[str]:
    """Private names that a module defines: functions, classes, variables, attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


#: Private by their name and public by their documentation.
_OF_OTHERS = {"_core", "_asdict", "_replace", "_fields", "_exit"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_private_name_is_used_across_modules(path: Path) -> None:
    """Neither imported nor reached through an object of another module's class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = defined_here(tree) | _OF_OTHERS
    for line, module, names in imported(path):
        strange = [name for name in [*module.split("."), *names] if private(name) and name not in _OF_OTHERS]
        assert not strange, f"{path}:{line} imports {strange}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            assert node.attr in own, f"{path}:{node.lineno} uses {node.attr}, which another module defines"


def test_tests_and_benchmarks_use_public_names_of_the_estimator() -> None:
    """What they need of a fit has a name that a user can call."""
    reached = re.compile(r"\b(?:est|estimator|svm|crf|cutter\(\)|predictor\(\S*\))\._\w+")
    root = SOURCE.parents[1]
    for path in [*root.glob("tests/*.py"), *root.glob("benchmarks/*.py"), *root.glob("examples/*.py")]:
        if path != Path(__file__):
            assert not reached.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("path", [*FILES, *sorted((SOURCE.parents[1] / "cpp").iterdir())], ids=lambda path: path.name)
def test_a_file_of_more_than_300_lines_says_why(path: Path) -> None:
    """In its first lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300 or any("More than 300 lines" in line for line in lines[:12])


def test_the_pages_name_files_that_are_there() -> None:
    """Every path that architecture.md and paper.md mention; and the layers of the page are those above, in order."""
    for page in ("architecture.md", "paper.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        paths = re.findall(r"`((?:\w+/)+\w+\.(?:py|cpp|hpp))`", text)
        assert paths
        for path in paths:
            root = SOURCE.parents[1] if path.startswith(("cpp/", "tests/", "benchmarks/")) else SOURCE
            assert (root / path).is_file(), f"{page} names {path}"
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    places = [text.index(f"| `{'`, `'.join(names)}` |") for names in reversed(LAYERS)]
    assert places == sorted(places)
