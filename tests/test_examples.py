"""The README's snippets and the examples run, and do what they say."""

import os
import re
import subprocess
import sys
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

# Every warning is an error, but for those that third parties give at import, before the example has begun.
RUN = """
import runpy, sys, warnings
import matplotlib.pyplot as plt
import skimage.segmentation, sklearn.model_selection
warnings.simplefilter("error")
plt.show = lambda: print("figures:", plt.get_fignums())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


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
def test_an_example_draws_one_figure_and_bears_out_its_text(name: str) -> None:
    """It warns of nothing, ends with one figure, and prints a number that is as its text says."""
    command = [sys.executable, "-c", RUN, str(ROOT / "examples" / f"{name}.py")]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MPLBACKEND": "Agg"})
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "figures: [1]"
    pattern, (low, high) = CLAIMS[name]
    found = re.search(pattern, run.stdout)
    assert found is not None, run.stdout
    assert low <= float(found.group(1).split()[-1]) <= high
