"""The package as it is installed: what importing it costs, and that all it names is there."""

import json
import subprocess
import sys
import time

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
    """Inference needs NumPy alone, learning scikit-learn too, and nothing imports an extra by the way."""
    inference = _loaded_after("import perturbmap as pm; pm.marginals, pm.BinaryGraph, pm.Potentials, pm.grid_edges")
    assert not set(inference) & {"sklearn", "scipy", *HEAVY}
    learning = _loaded_after("import perturbmap as pm; pm.StructuredPredictor, pm.datasets.load_ocr")
    assert "sklearn" in learning
    assert not set(learning) & {"torch", "skimage", "matplotlib", "pandas", "h5py"}


def test_every_public_name_is_there_and_listed() -> None:
    """In ``dir`` and as an attribute: the stub that lists them names nothing that is not."""
    assert len(pm.__all__) > 50
    for name in pm.__all__:
        assert getattr(pm, name) is not None
        assert name in dir(pm)
