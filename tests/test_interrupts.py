"""Ctrl-C, for real: to all processes, as a terminal sends it, or to one; early and late; one line, and it is true."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')
if not sys.platform.startswith("linux"):
    pytest.skip("looks at /proc", allow_module_level=True)

from .command import COMMAND, run
from .scenes import fit_small, make_small


class Child:
    """``perturbmap`` in a process group of its own."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._log = folder / "log.txt"
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [str(COMMAND), *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as a shell starts it
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def members(self) -> list[int]:
        """The processes of its group that run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:  # it has ended since
                continue
            if int(group) == self._process.pid and state != "Z":
                found.append(int(folder.name))
        return found

    def has_loaded(self, word: str) -> bool:
        return word in Path(f"/proc/{self._process.pid}/maps").read_text()

    def workers(self) -> list[int]:
        def is_worker(pid: int) -> bool:
            try:
                return b"LokyProcess" in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                return False

        return [pid for pid in self.members() if is_worker(pid)]

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not is_so():
            assert time.monotonic() < deadline, self.said
            assert self._process.poll() is None, self.said
            time.sleep(0.01)  # to look into all of /proc takes milliseconds

    def interrupt(self, to_all: bool = True) -> None:
        (os.killpg if to_all else os.kill)(self._process.pid, signal.SIGINT)

    def end(self) -> str:
        """What it said, but for its stages and how long they take: one line. Nothing of it is left."""
        assert self._process.wait(timeout=60) == 130, self.said
        deadline = time.monotonic() + 20
        while self.members():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        lines = [line for line in self.said.splitlines() if line and not line.endswith((" ...", " to go."))]
        assert len(lines) == 1, self.said
        return lines[0]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_small(tmp_path, 12)


def start_fit(root: Path, *more: object) -> Child:
    folders = ["--images", root / "photos", "--masks", root / "masks", "--out", root / "m.pm"]
    return Child(root, "segment", "fit", *folders, "--superpixels", 50, *more)


def left_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {"photos", "masks", "log.txt"}


@pytest.mark.parametrize("library", ["scipy", "sklearn"])
def test_while_libraries_are_loaded(library: str, small: Path) -> None:
    """Nothing is promised, since nothing was done."""
    child = start_fit(small)
    child.wait_until(lambda: child.has_loaded(library))
    child.interrupt()
    assert re.fullmatch(r"Interrupted before (anything was done|the model was written)\..*", child.end())
    assert not left_in(small)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.7])
def test_while_processes_start_and_work(seconds: float, small: Path) -> None:
    """Theirs is the same Ctrl-C, on a terminal: they say nothing, and are gone."""
    child = start_fit(small, "--jobs", 2)
    child.wait_until(lambda: len(child.workers()) == 2)
    time.sleep(seconds)
    child.interrupt()
    assert child.end() == "Interrupted before the model was written. With --cache DIR, features would be kept."
    assert not left_in(small)


@pytest.mark.slow
def test_a_second_ctrl_c_is_no_other(small: Path) -> None:
    """Who presses it twice reads the same line."""
    child = start_fit(small, "--jobs", 2)
    child.wait_until(lambda: len(child.workers()) == 2)
    time.sleep(1)
    for _ in range(4):
        child.interrupt()
        time.sleep(0.03)
    assert child.end().startswith("Interrupted before the model was written.")


@pytest.mark.slow
@pytest.mark.parametrize("to_all", [True, False])
def test_features_that_are_done_are_kept(to_all: bool, small: Path) -> None:
    """In the cache, as the line says: the next fit has them."""
    child = start_fit(small, "--jobs", 2 if to_all else 1, "--cache", small / "cache")
    child.wait_until(lambda: bool(list(small.glob("cache/*/checksums.json"))))
    child.interrupt(to_all)
    assert child.end() == "Interrupted before the model was written. Features that are done are kept in --cache."
    assert left_in(small) == {"cache"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "line"),
    [
        ("learning", "Interrupted before the model was written."),
        ("checking", "Interrupted, but the model is written"),
    ],
)
def test_late(stage: str, line: str, tmp_path: Path) -> None:
    """Before the model is written, and after."""
    small = make_small(tmp_path, 5)
    child = start_fit(small, "--jobs", 2)
    child.wait_until(lambda: f"{stage} ..." in child.said)
    child.interrupt()
    assert child.end().startswith(line)
    assert left_in(small) == ({"m.pm"} if stage == "checking" else set())


@pytest.mark.slow
def test_predict_says_how_far_it_came(small: Path) -> None:
    """And what it says is finished is there."""
    assert fit_small(small).code == 0
    out = small / "out"
    predict = ["segment", "predict", small / "m.pm", "--images", small / "photos", "--out", out, "--jobs", 2]
    child = Child(small, *predict)
    child.wait_until(lambda: len(list(out.glob("*_overlay.jpg"))) > 3)
    child.interrupt()
    line = child.end()
    found = re.fullmatch(rf"Interrupted: (\d+) of 12 images are done, in {re.escape(str(out))}\..*", line)
    assert found is not None, line
    assert 0 < int(found[1]) <= len(list(out.glob("*_overlay.jpg")))
    assert not (out / "summary.csv").exists()
    assert not list(out.glob(".*"))
    done = run(*predict)
    assert (done.code, "--overwrite" in done.stderr) == (2, True)
    child = Child(small, *predict, "--overwrite")
    child.wait_until(lambda: child.has_loaded("scipy"))
    child.interrupt()
    assert child.end().startswith("Interrupted before any")
