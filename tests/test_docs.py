"""The documentation is true: snippets run, examples in docstrings print what they say, no public name is left out.

A block of a page that begins with ```` ```python ```` is run, all of a page one after another in one scope. A block
of another library is marked by what it is fenced as, ```` ```{code-block} python ````, and is not run, but for those
of sklearn-crfsuite where it is installed.
"""

import doctest
import importlib
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import perturbmap

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "gallery" not in path.parts)
SNIPPET = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)

#: What every reader meets first: each has an example in its docstring.
MAIN = [
    "Potentials",
    "Moments",
    "Chain",
    "Tree",
    "BinaryGraph",
    "Matching",
    "FromSolver",
    "BruteForce",
    "Pinned",
    "log_partition_bound",
    "marginals",
    "sample",
    "decode",
    "Estimate",
    "gumbel_noise",
    "perturb",
    "grid_edges",
    "potts",
    "Calibration",
    "Example",
    "Hamming",
    "WeightedHamming",
    "BalancedHamming",
    "ZeroOne",
    "LogLikelihood",
    "MarginalLogLikelihood",
    "ExactLogLikelihood",
    "ExactMarginalLogLikelihood",
    "StructuredHinge",
    "DoubleSGD",
    "LBFGS",
    "BCFW",
    "StructuredPredictor",
    "TokenFeatures",
    "span_f1",
    "regularisation_path",
    "SequenceModel",
    "GraphModel",
    "MatchingModel",
    "Decoding",
]


def snippets(page: str) -> list[str]:
    return SNIPPET.findall((DOCS / page).read_text(encoding="utf-8"))


def modules() -> list[str]:
    """All modules with an example in a docstring."""
    found = [m.name for m in pkgutil.walk_packages(perturbmap.__path__, "perturbmap.") if "_core" not in m.name]
    source = Path(perturbmap.__file__).parent
    has_example = []
    for name in found:
        path = source.joinpath(*name.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if ">>>" in file.read_text(encoding="utf-8"):
            has_example.append(name)
    return has_example


def load(name: str) -> ModuleType:
    """The module; skips the test where an optional dependency of it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)])
def test_the_snippets_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, as a reader would paste them, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for number, snippet in enumerate(snippets(page), start=1):
        exec(compile(snippet, f"{page}, snippet {number}", "exec"), scope)


def test_sklearn_crfsuite_does_the_same_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of the page run: the losses, the labels and the marginals are as close as it says."""
    pytest.importorskip("sklearn_crfsuite", reason="sklearn-crfsuite is not installed")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "coming_from.md").read_text(encoding="utf-8")
    section = re.search(r"^## sklearn-crfsuite$(.*?)^## ", text, flags=re.DOTALL | re.MULTILINE)
    assert section is not None
    scope: dict[str, Any] = {"__name__": "__main__", "np": np, "pm": perturbmap}
    blocks = re.findall(r"^```(?:|{code-block} )python\n(.*?)^```$", section[1], flags=re.DOTALL | re.MULTILINE)
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"coming_from.md, sklearn-crfsuite, block {number}", "exec"), scope)
    assert abs(scope["loss"] - scope["their_loss"]) < 0.01
    assert [list(labels) for labels in scope["labels"]] == [list(labels) for labels in scope["their_labels"]]
    for q, theirs in zip(scope["marginals"], scope["their_marginals"], strict=True):
        expected = [[row[letter] for letter in scope["ours"].classes_] for row in theirs]
        np.testing.assert_allclose(q, expected, atol=0.001)


@pytest.mark.parametrize("name", modules())
def test_the_examples_in_docstrings_print_what_they_say(name: str) -> None:
    """With ``np`` and ``pm`` imported, as the API pages say; numbers to the last digit."""
    scope = {"np": np, "pm": perturbmap}
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(exclude_empty=True).find(load(name), name, globs=scope):
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


@pytest.mark.parametrize("name", MAIN)
def test_main_names_have_an_example(name: str) -> None:
    """In their docstring."""
    assert ">>> " in (getattr(perturbmap, name).__doc__ or "")


@pytest.mark.parametrize(
    "module",
    [
        "perturbmap",
        "perturbmap.annotate",
        "perturbmap.datasets",
        "perturbmap.images",
        "perturbmap.nn",
        "perturbmap.uai",
    ],
)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    """By its own line of an API page."""
    written = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md")))
    for name in load(module).__all__:
        if isinstance(getattr(load(module), name), ModuleType):
            continue  # which has a page of its own
        directive = rf"^\.\. auto\w+:: (perturbmap\.[\w.]*)?{name}$"
        assert re.search(directive, written, flags=re.MULTILINE), f"{module}.{name} is on no page of docs/api"


#: Of the headline table: what is said, the result, the command, and the page that has all of it.
HEADLINE = re.compile(r"^\| [^|]+ \| ([^|]+) \| `[^|]+` \| \[[^|]+\]\((docs/\w+\.md)\) \|$", flags=re.MULTILINE)
FIGURE = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def test_the_headlines_of_the_readme_are_in_the_tables() -> None:
    """Every figure of a result stands in the page that it is from, digit by digit."""
    rows = HEADLINE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(rows) >= 5
    for result, page in rows:
        figures = FIGURE.findall(result)
        assert figures
        missing = set(figures) - set(FIGURE.findall((ROOT / page).read_text(encoding="utf-8")))
        assert not missing, f"README says {result!r}, but {page} has no {sorted(missing)}"


def test_the_readme_is_one_screen_and_a_bit() -> None:
    """What does not fit belongs in the documentation."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_the_long_description_leads_nowhere_but_to_the_web() -> None:
    """As the build makes it of README: no picture, and no link into the repository."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it first")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for rule in settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert "![" not in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)
    assert "Which tool for what" in text


def test_the_link_checker_finds_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, a missing anchor, an address that is none, and what would be fetched from elsewhere."""
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    check = importlib.import_module("check_links")
    good = '<a id="here" href="#here"></a><a href="more.html#there"></a><a href="https://example.org/x"></a>'
    (tmp_path / "more.html").write_text('<p id="there"></p>')
    (tmp_path / "index.html").write_text(good)
    assert check.broken_links(tmp_path) == (3, [])
    bad = ["none.html", "more.html#nowhere", "htp://example.org", "#gone"]
    links = "".join(f'<a href="{address}"></a>' for address in bad)
    (tmp_path / "index.html").write_text(links + '<script src="https://example.org/x.js"></script>')
    n_links, complaints = check.broken_links(tmp_path)
    assert n_links == len(complaints) == 5
