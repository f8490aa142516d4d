"""What ``perturbmap segment`` writes, where writing fails: what was there stays, and one line names the file."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image

from perturbmap.images import Segmenter
from perturbmap.images.folders import list_images

from .command import COMMAND, Done, run
from .scenes import FIT, coarse, make_small, quick


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    root = make_small(tmp_path_factory.mktemp("small"))
    files = list_images(root / "photos")
    masks = {path: root / "masks" / path.name for path in files.values()}
    return Segmenter(coarse(), quick()).fit(masks, masks, progress=False)


@pytest.fixture
def root(tmp_path: Path, segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos, masks, a model; and what was written before: old results, an old table, an old model."""
    monkeypatch.setattr("perturbmap.cli.segment_runs.segmentation_predictor", quick)
    monkeypatch.setattr("perturbmap.cli.segment_runs.ImageFeatures", coarse)
    make_small(tmp_path)
    segmenter.save(tmp_path / "model.pm")
    (tmp_path / "results").mkdir()
    for n in range(4):
        for name in ("mask.png", "probability.png", "overlay.jpg"):
            (tmp_path / "results" / f"s{n}_{name}").write_text("old")
    for path in ("results/summary.csv", "old.pm", "old.csv", "file"):
        (tmp_path / path).write_text("old")
    return tmp_path


def commands(root: Path) -> dict[str, list[object]]:
    """What each command is called with, by what it writes."""
    photos, masks = ["--images", root / "photos"], ["--masks", root / "masks"]
    new = ["--overwrite", "--jobs", 1]
    return {
        "old.pm": ["segment", "fit", *photos, *masks, *FIT, "--no-check", "--out", root / "old.pm", "--overwrite"],
        "s2_mask.png": ["segment", "predict", root / "model.pm", *photos, "--out", root / "results", *new],
        "s1_overlay.jpg": ["segment", "predict", root / "model.pm", *photos, "--out", root / "results", *new],
        "summary.csv": ["segment", "predict", root / "model.pm", *photos, "--out", root / "results", *new],
        "old.csv": ["segment", "evaluate", root / "model.pm", *photos, *masks, "--csv", root / "old.csv", *new],
    }


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def fail_at(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses to bring this file to its place."""
    replace = os.replace

    def refuse(source: Any, target: Any, **options: Any) -> None:
        if Path(target).name == name:
            raise OSError(number, os.strerror(number), str(source), None, str(target))
        replace(source, target, **options)

    monkeypatch.setattr(os, "replace", refuse)


def error_line(done: Done) -> str:
    assert done.code == 1, done
    known = (" ...", "step=AdaptiveStep(0.1).")  # stages, and that a quick fit is quick
    lines = [line for line in done.stderr.splitlines() if not line.endswith(known)]
    # A pool that is torn down may leave words of its tracker, which are not ours.
    lines = [line for line in lines if "resource_tracker" not in line and "warnings.warn" not in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *[(name, errno.ENOSPC) for name in ("old.pm", "s2_mask.png", "s1_overlay.jpg", "summary.csv", "old.csv")],
        *[(name, number) for name in ("s2_mask.png", "old.csv") for number in (errno.EACCES, errno.EROFS, errno.EIO)],
    ],
)
def test_what_cannot_be_written_is_named_and_what_was_there_stays(
    name: str, number: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a folder that does not allow it, one that is read alone, a broken disk."""
    before = snapshot(root)
    fail_at(name, number, monkeypatch)
    done = run(*commands(root)[name])
    line = error_line(done)
    assert name in line
    assert ".tmp" not in line
    assert re.search(rf"Error: \S*{name}: {os.strerror(number)}", line)
    after = snapshot(root)
    assert set(after) == set(before)
    changed = {path for path in after if after[path] != before[path]}
    assert not [path for path in changed if path.endswith(name) or not path.startswith("results")]
    if name.startswith("s"):
        assert "summary.csv" not in {Path(path).name for path in changed}
    if name == "old.csv":
        assert "balanced error" in done.stdout  # an hour's work is not lost


def limited(root: Path, n_bytes: int, *arguments: object) -> Done:
    """The command, where no file may be larger than this."""
    done = subprocess.run(
        [str(COMMAND), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=root,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes)),
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_write_that_fails_for_real(jobs: int, root: Path) -> None:
    """In this process or in another: the results were larger than the system allows a file to be."""
    rng = np.random.default_rng(0)
    for n in range(4):
        Image.fromarray(rng.integers(0, 256, (84, 100, 3), dtype=np.uint8)).save(root / "photos" / f"s{n}.png")
    before = snapshot(root)
    predict = ["segment", "predict", "model.pm", "--images", "photos", "--out", "results", "--overwrite"]
    line = error_line(limited(root, 2000, *predict, "--jobs", jobs))
    assert "_overlay.jpg" in line
    assert os.strerror(errno.EFBIG) in line
    after = snapshot(root)
    assert set(after) == set(before)
    assert all(after[path] == b"old" for path in after if path.endswith(("_overlay.jpg", "summary.csv")))
    folders = ["--images", "photos", "--masks", "masks", "--out", "old.pm", "--overwrite", "--no-check"]
    line = error_line(limited(root, 100_000, "segment", "fit", *folders, "--superpixels", 10, "--jobs", jobs))
    assert os.strerror(errno.EFBIG) in line
    assert snapshot(root)["old.pm"] == b"old"


@pytest.mark.parametrize(
    ("option", "path", "command"),
    [
        ("--out", "file/m.pm", "old.pm"),
        ("--cache", "file/cache", "old.pm"),
        ("--out", "file/results", "summary.csv"),
        ("--out", "file", "summary.csv"),
        ("--csv", "file/x.csv", "old.csv"),
        ("--csv", "nowhere/x.csv", "old.csv"),
    ],
)
def test_places_that_cannot_be_are_found_before_the_work(option: str, path: str, command: str, root: Path) -> None:
    """Below a file, for instance; the line names the place."""
    before = snapshot(root)
    done = run(*commands(root)[command], option, root / path)
    assert done.code in (1, 2)
    assert str(root / path).removesuffix("/cache") in done.stderr.splitlines()[-1]
    assert done.stdout == ""
    assert not re.search("looking at|segmenting", done.stderr)
    assert snapshot(root) == before


@pytest.mark.parametrize("name", ["old.pm", "summary.csv", "old.csv"])
def test_folders_that_allow_no_writing_are_found_before_the_work(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system says, before it is tried."""
    access: Callable[..., bool] = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: mode != os.W_OK and access(path, mode, **more))
    before = snapshot(root)
    done = run(*commands(root)[name])
    line = error_line(done)
    assert name in line
    assert "does not allow it" in line
    assert done.stdout == ""
    assert snapshot(root) == before


@pytest.mark.parametrize(("option", "command"), [("--out", "old.pm"), ("--csv", "old.csv")])
def test_only_files_are_replaced(option: str, command: str, root: Path) -> None:
    """Not a device, nor a pipe, whatever --overwrite says: they would be gone."""
    pipe = root / "pipe"
    os.mkfifo(pipe)
    done = run(*commands(root)[command], option, pipe)
    assert done.code == 2
    assert "pipe is not a file" in done.stderr
    assert done.stdout == ""
    assert pipe.is_fifo()


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_the_old_model(root: Path) -> None:
    """At the worst moment: when the new one is written, and not yet in its place."""
    code = (
        "import os, signal, sys\n"
        "from perturbmap.images import Segmenter\n"
        "segmenter = Segmenter.load('model.pm')\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "segmenter.save('model.pm')\n"
    )
    before = (root / "model.pm").read_bytes()
    done = subprocess.run([sys.executable, "-c", code], cwd=root, timeout=120, check=False)
    assert done.returncode == -9
    assert (root / "model.pm").read_bytes() == before
