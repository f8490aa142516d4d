"""The README's snippets and the examples run, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def test_the_snippets_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One after another, as a reader would paste them."""
    scope: dict[str, object] = {}
    for snippet in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL):
        exec(snippet, scope)
    printed = capsys.readouterr().out
    assert re.search(r"log Z <= \d+\.\d+ \+- 0\.\d+", printed)
    assert float(printed.split()[-1]) > 0.8  # the score of the handwritten words
    q = scope["q"]
    np.testing.assert_allclose(q.mean.sum(axis=1), 1)  # type: ignore[attr-defined]  # an Estimate


@pytest.mark.slow
def test_the_denoising_example_draws_its_picture(tmp_path: Path) -> None:
    """It prints what it found and writes a PNG."""
    out = tmp_path / "folder" / "picture.png"
    command = [sys.executable, str(ROOT / "examples" / "denoise_image.py"), str(out)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "log-partition bound" in printed
    assert out.read_bytes().startswith(b"\x89PNG")
