"""The command line on damaged and forged files, and on folders where files are missing, doubled, misnamed or others.

It ends with one of its exit codes, and where that is not 0, with one line that says why.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import click
import numpy as np

from fuzz import mutations
from fuzz.family import Case, Family
from fuzz.files import LONGEST_MESSAGE
from fuzz.mutations import Generator, choose
from fuzz.readers import mutate_image
from fuzz.samples import few_steps, few_words, make_samples, make_voc
from perturbmap.cli.exit_codes import EXIT_ERROR
from perturbmap.cli.main import main

#: How a file is spoilt, by its suffix; others are damaged.
MUTATIONS: dict[str, Callable[[Generator, bytes], bytes]] = {
    ".uai": mutations.mutate_text,
    ".evid": mutations.mutate_text,
    ".txt": mutations.mutate_text,
    ".json": mutations.mutate_json,
    ".pm": mutations.mutate_archive,
    ".png": mutate_image,
}
USAGE = 2


def spoil(rng: Generator, folder: Path) -> None:
    """Damages or forges a file of a folder, or does something else to one or two of them, or both."""
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    n_others = int(rng.integers(3))
    if n_others == 0 or rng.random() < 0.5:
        path = choose(rng, files)
        path.write_bytes(MUTATIONS.get(path.suffix, mutations.damage)(rng, path.read_bytes()))
    for path in rng.permutation(np.array(files, dtype=object))[:n_others]:
        if path.is_file():
            choose(rng, WAYS)(rng, path, choose(rng, files))


def replace_by_folder(rng: Generator, path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_link(rng: Generator, path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def replace_by_other(rng: Generator, path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes() if other.is_file() else b"")


def rename(rng: Generator, path: Path, other: Path) -> None:
    names = [f"{name}{path.suffix}" for name in ("é ü", "-x", ".hidden", "a" * 200, "x y")]
    path.rename(path.with_name(choose(rng, names + [path.stem + suffix for suffix in (".jpg", ".PNG", ".txt", "")])))


def double(rng: Generator, path: Path, other: Path) -> None:
    path.with_suffix(choose(rng, [".gif", ".bmp", ".PNG"])).write_bytes(path.read_bytes())


def remove_all(rng: Generator, path: Path, other: Path) -> None:
    for file in path.parent.iterdir():
        if file.is_file():
            file.unlink()


WAYS: list[Callable[[Generator, Path, Path], None]] = [
    *(replace_by_folder, replace_by_link, replace_by_other, rename, double, remove_all),
    lambda rng, path, other: path.unlink(),
    lambda rng, path, other: shutil.rmtree(path.parent),
]


def command(rng: Generator, root: Path) -> tuple[Path, list[object]]:
    """A command, and the folder of what it reads."""
    pictures, segmenter = root / "pictures", root / "segmenter" / "segmenter.pm"
    images = ["--images", pictures / "images", "--jobs", 1]
    masks = ["--masks", pictures / "masks"]
    weak = choose(rng, [[], ["--boxes", pictures / "boxes.json"], ["--classes", pictures / "named.json"]])
    model = root / "uai" / str(rng.integers(4)) / "model.uai"
    evidence = choose(rng, [[], ["--evidence", model.with_suffix(".evid")]])
    out = ["--out", root / "out"]
    few = ["--superpixels", 20, choose(rng, ["--check", "--no-check"])]
    ways: list[tuple[Path, list[object]]] = [
        (model.parent, ["infer", model, *evidence, "--perturbations", 3, *choose(rng, [[], out])]),
        (pictures, ["segment", "fit", *images, *masks, *weak, *few, "--out", root / "new.pm"]),
        (pictures, ["segment", "predict", segmenter, *images, *out]),
        (segmenter, ["segment", "predict", segmenter, *images, *out]),
        (
            pictures,
            ["segment", "evaluate", segmenter, *images, *masks, *choose(rng, [[], ["--csv", root / "x.csv"]])],
        ),
        (root / "voc", ["prepare-voc", root / "voc", *out]),
    ]
    return choose(rng, ways)


def run(arguments: list[object]) -> tuple[int, str, BaseException | None]:
    """The exit code of a command, what it wrote to stderr, and the error that it made a line of."""
    errors = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["perturbmap", *map(str, arguments)]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0), errors.getvalue(), stop.__context__
    raise AssertionError("the command returned without an exit code.")


def check(code: int, errors: str, cause: BaseException | None) -> None:
    """Raises an AssertionError unless a command has ended as the documentation says."""
    lines = errors.strip().splitlines()
    said = [line for line in lines if line.startswith("Error: ")]
    assert code in (0, EXIT_ERROR, USAGE), f"exit code {code}: {errors}"
    assert "Traceback" not in errors, errors
    assert len(said) == (0 if code == 0 else 1), f"{len(said)} lines of errors, with exit code {code}: {errors}"
    if code:
        assert lines[-1] == said[0], f"more follows the error: {errors}"
        assert len(said[0]) <= LONGEST_MESSAGE, f"an error of {len(said[0])} characters: {said[0]}"
    if code == EXIT_ERROR and not isinstance(cause, (ValueError, OSError, click.ClickException)):
        raise AssertionError(f"{said[0]} is made of a {type(cause).__name__}, which is no message.") from cause


def start(folder: Path) -> Case:
    samples = folder / "samples"
    samples.mkdir()
    make_samples(samples)
    make_voc(samples / "voc")
    runs = "perturbmap.cli.segment_runs"
    mock.patch.multiple(runs, ImageFeatures=few_words, segmentation_predictor=few_steps).start()

    def case(rng: Generator) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            root = Path(own) / "root"
            shutil.copytree(samples, root)
            read, arguments = command(rng, root)
            spoil(rng, read)
            check(*run(arguments))
            left = [path.name for path in root.rglob("*.tmp")]
            assert not left, f"temporary files are left: {left}"

    return case


FAMILY = Family("commands", start, memory=2**30)
