"""What an experiment has found so far: one JSON file, written whole after every step, taken up again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from perturbmap.support.files import write_atomically

FORMAT_VERSION = 1


class Results:
    """Named entries in ``results.json`` of a folder; every change is on disk before the next step begins."""

    def __init__(self, folder: Path, experiment: str, settings: Mapping[str, Any], fingerprint: str) -> None:
        """Opens the folder's results, or begins them; either way it is written at once, to know that it can be.

        ValueError where the folder holds results of another experiment, with other settings, or made by another
        version or from other data, as the fingerprint tells: they do not mix.
        """
        self.path = folder / "results.json"
        self._contents: dict[str, Any] = {
            "experiment": experiment,
            "format_version": FORMAT_VERSION,
            "settings": dict(settings),
            "fingerprint": fingerprint,
            "machine": machine(),
            "entries": {},
        }
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self._contents["entries"] = self._read()["entries"]
        self._lines: dict[str, str] = {}  # the entries as they are in the file
        self.update(self._contents["entries"])

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            same_kind = (found["experiment"], found["format_version"]) == (
                self._contents["experiment"],
                FORMAT_VERSION,
            )
            entries, settings = found["entries"], found["settings"]
            if not all(isinstance(part, dict) for part in (entries, settings, *entries.values())):
                raise TypeError
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{self.path} is damaged: remove it, or name another folder with --out.") from None
        if not same_kind:
            raise ValueError(f"{self.path} belongs to another experiment or version: name another folder with --out.")
        if settings != self._contents["settings"]:
            differing = sorted(
                k for k in {*settings, *self._contents["settings"]} if settings.get(k) != self.settings.get(k)
            )
            raise ValueError(
                f"{self.path} holds results with another {' and '.join(differing)}: name another folder with --out, "
                "or remove it."
            )
        if found.get("fingerprint") != self._contents["fingerprint"]:
            raise ValueError(
                f"{self.path} holds results from other data or another version of the experiment: name another "
                "folder with --out, or remove it."
            )
        return dict(found)

    @property
    def settings(self) -> dict[str, Any]:
        """What all entries have in common."""
        return dict(self._contents["settings"])

    @property
    def machine(self) -> dict[str, Any]:
        """Where the last entries were made, and with which versions."""
        return dict(self._contents["machine"])

    def __contains__(self, name: str) -> bool:
        return name in self._contents["entries"]

    def __getitem__(self, name: str) -> Any:
        return self._contents["entries"][name]

    def __setitem__(self, name: str, entry: Any) -> None:
        self.update({name: entry})

    def update(self, entries: Mapping[str, Any]) -> None:
        """Sets several entries, written to disk at once."""
        # Each entry is a line that is made once: the file is written after every step, and may have thousands.
        self._lines |= {name: f"{json.dumps(name)}: {json.dumps(e, allow_nan=False)}" for name, e in entries.items()}
        self._contents["entries"].update(entries)
        head = json.dumps({**self._contents, "entries": None}, allow_nan=False).removesuffix("null}")
        text = head + "{\n" + ",\n".join(self._lines.values()) + "\n}}\n"
        write_atomically(self.path, lambda file: file.write(text.encode()))


def fingerprint_of(*parts: object) -> str:
    """A digest of the package's version and of the text of what else results depend on."""
    text = " ".join(map(str, (version("perturbmap"), *parts)))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def machine() -> dict[str, Any]:
    """Versions and hardware, nothing that names the machine."""
    others = ("perturbmap", "scipy", "scikit-learn")
    # Kernels for different processors round differently, of which experiments can tell (docs/msrc.md).
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    kernels = (f"{library['internal_api']} {library.get('architecture', '')}".strip() for library in blas)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,  # imported, and its BLAS with it
        **{name: version(name) for name in others},
        "BLAS": ", ".join(dict.fromkeys(kernels)),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
    }
