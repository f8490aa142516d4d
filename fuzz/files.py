"""Every file that is read, damaged or forged: it is read, or refused by a ValueError or an OSError.

What is read is used too, so that a forgery that passes can do no harm later; and where a file has checksums, one that
is damaged and read all the same gives what it gave before. All of it in little memory.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.family import Case, Family
from fuzz.mutations import Generator, choose, damage
from fuzz.readers import READERS, content
from fuzz.samples import make_samples

#: Longer messages show the file, not what is wrong with it.
LONGEST_MESSAGE = 1000


def start(folder: Path) -> Case:
    warnings.simplefilter("ignore")
    samples = folder / "samples"
    samples.mkdir()
    make_samples(samples)
    unspoilt: dict[Path, list[Any]] = {}

    def case(rng: Generator) -> None:
        reader = choose(rng, READERS)
        place = choose(rng, sorted(path.relative_to(samples) for path in samples.glob(reader.pattern)))
        is_damage = reader.is_checked and rng.random() < 0.3
        with own_copy(samples, place.parts[0]) as root:
            (damage_one if is_damage else reader.spoil)(rng, root / place)
            try:
                found = reader.read(root / place, root)
            except (ValueError, OSError) as error:
                check_message(str(error))
                return
        if is_damage:
            if place not in unspoilt:
                with own_copy(samples, place.parts[0]) as root:
                    unspoilt[place] = reader.read(root / place, root)
            same = all(np.array_equal(a, b) for a, b in zip(found, unspoilt[place], strict=True))
            assert same, f"{place} is damaged, was read all the same, and is not what it was."

    return case


@contextmanager
def own_copy(samples: Path, name: str) -> Iterator[Path]:
    """A folder of all samples, links but for those of one name, which may be spoilt."""
    with tempfile.TemporaryDirectory(dir=samples.parent) as own:
        root = Path(own)
        for path in samples.iterdir():
            if path.name == name:
                shutil.copytree(path, root / name)
            else:
                (root / path.name).symlink_to(path)
        yield root


def damage_one(rng: Generator, path: Path) -> None:
    """Damages a file, or one of a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    content(damage)(rng, choose(rng, files or [path]))


def check_message(message: str) -> None:
    """Raises an AssertionError unless a user can read it."""
    assert 0 < len(message) <= LONGEST_MESSAGE, f"a message of {len(message)} characters: {message}"


FAMILY = Family("files", start, memory=2**30)
