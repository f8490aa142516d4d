"""Files without pickle: arrays and one JSON text in a zip, written atomically, checked when read."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.decoding import Decoding

FORMAT_VERSION = 2


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises an error now, where writing would fail later."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} cannot be written: it is a folder.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target} cannot be written: the folder {target.parent} does not exist.")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"{target} cannot be written: the folder {target.parent} does not allow it.")


def write_atomically(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object]) -> None:
    """Writes next to the target and moves it into place: a reader finds the old file or the new one, whole."""
    check_writable(path)
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write(
    path: str | os.PathLike[str], kind: str, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Arrays and one JSON text, as one file."""
    text = json.dumps({"kind": kind, "format_version": FORMAT_VERSION, **about})
    contents: Any = {"about": np.frombuffer(text.encode(), dtype=np.uint8), **arrays}
    write_atomically(path, lambda file: np.savez(file, **contents))


def read(
    path: str | os.PathLike[str], kind: str, about_keys: Sequence[str], array_keys: Sequence[str]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What `write` wrote, with all of these keys; ValueError for a damaged, truncated or foreign file."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(bytes(arrays.pop("about")).decode())
    except FileNotFoundError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        RuntimeError,  # NotImplementedError among them: a flipped bit may ask for encryption
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(f"{path} is damaged, or is no perturbmap file ({error}).") from None
    if not isinstance(about, dict) or about.get("kind") != kind:
        raise ValueError(f"{path} is no perturbmap {kind}.")
    if about.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {about.get('format_version')}, this perturbmap reads {FORMAT_VERSION}: "
            "install the version that wrote it."
        )
    missing = [key for key in about_keys if key not in about] + [key for key in array_keys if key not in arrays]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}.")
    return about, arrays


def to_json(value: Any) -> Any:
    """A parameter as JSON: plain values, and the package's own objects by the name of their class."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return [to_json(v) for v in value]
    if isinstance(value, Decoding):
        return {"class": "Decoding", "value": value.value}
    if type(value).__name__ in registry() and registry()[type(value).__name__] is type(value):
        fields = value.get_params(deep=False) if hasattr(value, "get_params") else vars(value)
        return {"class": type(value).__name__, "params": {k: to_json(v) for k, v in fields.items()}}
    raise ValueError(
        f"{value!r} cannot be saved without pickle. Objects of your own, such as FromSolver with its function, are "
        "left out by setting them to None before saving, and set again after loading."
    )


def from_json(value: Any) -> Any:
    """The inverse of `to_json`; only classes of this package are made."""
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if value.get("class") == "Decoding":
        return Decoding(value["value"])
    try:
        made = registry()[value["class"]]
    except KeyError:
        raise ValueError(f"the file names the unknown class {value.get('class')!r}.") from None
    return made(**{k: from_json(v) for k, v in value["params"].items()})


def registry() -> dict[str, type]:
    """The classes that may stand in a file."""
    from perturbmap import models, objectives, solvers, structures, task_losses

    names = {
        models: ["SequenceModel", "GraphModel", "MatchingModel"],
        task_losses: ["ZeroOne", "Hamming", "WeightedHamming", "BalancedHamming"],
        objectives: [
            "LogLikelihood",
            "MarginalLogLikelihood",
            "ExactLogLikelihood",
            "ExactMarginalLogLikelihood",
            "StructuredHinge",
        ],
        solvers: [
            "DoubleSGD",
            "LocalSGD",
            "LBFGS",
            "BCFW",
            "NoAveraging",
            "UniformAveraging",
            "SuffixAveraging",
            "PolynomialAveraging",
        ],
        structures: ["Chain", "Tree", "BinaryGraph", "Matching", "BruteForce"],
    }
    return {name: getattr(module, name) for module, list_ in names.items() for name in list_}
