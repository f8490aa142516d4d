"""The package as it is installed: what importing it costs, and that all it names is there."""

import json
import re
import subprocess
import sys
import time
from importlib.metadata import metadata
from pathlib import Path

import pytest

import perturbmap as pm

HEAVY = ["torch", "skimage", "matplotlib", "pandas", "h5py", "joblib"]


def _loaded_after(statements: str) -> list[str]:
    code = f"import sys, json\n{statements}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return list(json.loads(run.stdout))


def test_the_package_is_imported_in_half_a_second() -> None:
    """The interpreter's own start included, the best of three."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import perturbmap"], check=True)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5


def test_what_is_not_used_is_not_imported() -> None:
    """Inference needs NumPy alone, learning scikit-learn too, and nothing imports an extra by the way.

    Processes that describe images, or share in a fit on shards, do without scikit-learn.
    """
    inference = _loaded_after("import perturbmap as pm; pm.marginals, pm.BinaryGraph, pm.Potentials, pm.grid_edges")
    assert not set(inference) & {"sklearn", "scipy", *HEAVY}
    learning = _loaded_after("import perturbmap as pm; pm.StructuredPredictor, pm.datasets.load_ocr")
    assert "sklearn" in learning
    assert not set(learning) & {"torch", "skimage", "matplotlib", "pandas", "h5py"}
    pytest.importorskip("skimage")
    workers = "perturbmap.images.features, perturbmap.distributed.local_sgd, perturbmap.distributed.by_shard"
    assert "sklearn" not in _loaded_after(f"import {workers}")


def test_modules_of_torch_do_without_its_compiler() -> None:
    """Which takes as long to load as torch itself."""
    pytest.importorskip("torch")
    assert "torch._dynamo" not in _loaded_after("import perturbmap.nn")


def test_every_public_name_is_there_and_listed() -> None:
    """In ``dir`` and as an attribute: the stub that lists them names nothing that is not."""
    assert len(pm.__all__) > 50
    for name in pm.__all__:
        assert getattr(pm, name) is not None
        assert name in dir(pm)


def test_the_package_can_be_looked_at_without_its_extras() -> None:
    """``import *`` and ``help`` need none; what does is listed where it can be had, and else says what to install."""
    code = """
import pydoc, sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in ("torch", "skimage") else find(name, *rest)
import perturbmap
from perturbmap import *
assert StructuredPredictor and "marginals" in pydoc.render_doc(perturbmap)
assert not {"images", "nn"} & set(dir(perturbmap))
for name in ("images", "nn"):
    try:
        getattr(perturbmap, name)
    except ImportError as error:
        print(error)
"""
    assert {"images", "nn"} <= set(dir(pm))
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 'pip install "perturbmap[images]"' in run.stdout
    assert 'pip install "perturbmap[torch]"' in run.stdout


def test_the_long_description_stands_alone() -> None:
    """A package index shows it without the repository: it has no picture and no link that is relative."""
    text = metadata("perturbmap").json["description"]
    assert isinstance(text, str)
    assert "pip install perturbmap" in text
    assert [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")] == []


def test_every_extra_that_the_code_names_exists() -> None:
    """What an error tells a user to install can be installed."""
    extras = set(metadata("perturbmap").get_all("Provides-Extra") or [])
    named = {
        extra
        for file in Path(pm.__file__).parent.rglob("*.py")
        for names in re.findall(r"perturbmap\[([a-z,]+)\]", file.read_text(encoding="utf-8"))
        for extra in names.split(",")
    }
    assert named
    assert named <= extras
