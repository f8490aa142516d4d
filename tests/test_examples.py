"""The README's snippets and the examples run, and do what they say."""

import re
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]

# What an example prints, and between which two values the numbers must lie that its text speaks of.
CLAIMS = {
    "plot_sequence_labelling": (r"chain +(.*)% of the letters wrong", (15, 22)),
    "plot_denoising": (r"(.*)% in the best labelling", (1, 4)),
    "plot_scribbles": (r"colour and neighbours +(.*)% overlap", (92, 100)),
    "plot_boxes": (r"1 mask.*: (.*) \+- .* less", (1, 6)),
    "plot_matching": (r"learned, matched +(.*)% of the points", (66, 75)),
    "plot_weighted_loss": (r"plain, least expected loss.*cost (.*)", (0.1, 0.35)),
    "plot_grid_search": (r"test words, (.*) % of the letters", (30, 36)),
    "plot_own_solver": (r"learned .*: (.*)% of the cells", (85, 100)),
    "plot_snakes": (r"(.*) % of the cells of the test snakes", (99, 100)),
}


def test_the_snippets_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One after another, as a reader would paste them, without a warning."""
    scope: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that of a fit which ended too early too
        for snippet in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL):
            exec(snippet, scope)
    best, probabilities, word, sure, score = capsys.readouterr().out.splitlines()
    assert len(best.split()) == len(probabilities.split()) == 12
    assert word.isalpha()
    assert len(sure.split()) >= len(word)
    assert float(score) > 0.78  # of the letters
    q = scope["q"]
    np.testing.assert_allclose(q.mean.sum(axis=1), 1)  # type: ignore[attr-defined]  # an Estimate


def test_every_example_has_its_claim() -> None:
    """No example is forgotten."""
    assert {path.stem for path in (ROOT / "examples").glob("plot_*.py")} == set(CLAIMS)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_an_example_draws_one_figure_and_bears_out_its_text(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It warns of nothing, ends with one figure, and prints a number that is as its text says."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    plt.close("all")
    monkeypatch.setattr(plt, "show", lambda: print("figures:", plt.get_fignums()))
    with warnings.catch_warnings(), plt.rc_context():
        warnings.simplefilter("error")
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    plt.close("all")
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "figures: [1]"
    pattern, (low, high) = CLAIMS[name]
    found = re.search(pattern, printed)
    assert found is not None, printed
    assert low <= float(found.group(1).split()[-1]) <= high
