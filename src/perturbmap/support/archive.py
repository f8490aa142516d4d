"""Files without pickle: arrays and one JSON text in a zip, written atomically, checked when read."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.support.files import write_atomically

FORMAT_VERSION = 4


def write(
    path: str | os.PathLike[str], kind: str, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Writes arrays and one JSON text as one file."""
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
