"""Disks that are full, folders that may not be written to, processes that are killed: what was there stays there."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap import uai
from perturbmap.support import archive
from tests.forged_cases import X, Y, small_predictor
from tests.stored import graphs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other disks")
ROOT = Path(__file__).parents[1]


def save_model(path: Path, seed: int) -> None:
    small_predictor(random_state=seed).fit(X, Y).save(path)


def load_model(path: Path) -> Any:
    return pm.StructuredPredictor.load(path).seed_


def save_checkpoint(path: Path, seed: int) -> None:
    """From the second time on, a fit that is taken up by one that would write again after every step."""
    solver = pm.DoubleSGD(n_passes=3, batch_size=2)
    with pytest.MonkeyPatch.context() as patch:
        if seed:
            patch.setattr("perturbmap.learning.checkpoint.Checkpoint.read", lambda self: None)
        small_predictor(solver=solver).fit(X, Y, checkpoint=path, checkpoint_seconds=0.0)


def load_checkpoint(path: Path) -> Any:
    return archive.read(path, "checkpoint", ["stage", "iteration"], ["state_u"])[0]["stage"]


def save_store(path: Path, seed: int) -> None:
    examples, labels = graphs(4, seed)
    pm.write_store(path, examples, labels, classes=[0, 1], append=seed > 0)


def load_store(path: Path) -> Any:
    store = pm.Store(path)
    store.verify()
    return len(store)


def save_results(path: Path, seed: int) -> None:
    uai.write_labels(path, np.full(5000, seed))


def load_results(path: Path) -> Any:
    return path.read_text().split()[:3]


Save = Callable[[Path, int], None]
Load = Callable[[Path], Any]
KINDS: dict[str, tuple[Save, Load]] = {
    "model": (save_model, load_model),
    "checkpoint": (save_checkpoint, load_checkpoint),
    "store": (save_store, load_store),
    "results": (save_results, load_results),
}
every_kind = pytest.mark.parametrize(("save", "load"), KINDS.values(), ids=KINDS)


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


def check_error(error: OSError, path: Path, number: int) -> None:
    """An error of the system, that names the file that was to be written, and no hidden one."""
    assert error.errno == number
    assert str(path) in str(error)
    assert ".perturbmap-" not in str(error)


@every_kind
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO], ids=errno.errorcode.__getitem__)
def test_a_failure_of_any_call_of_the_system_leaves_what_was_there(
    number: int, save: Save, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that makes, writes, moves or links fails once: the error names the file, and no other is left."""
    path = tmp_path / "target"
    save(path, 0)
    before = load(path)
    n_calls = n_failures = 0

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal n_calls
            n_calls += 1
            if n_calls == n_failures:
                raise OSError(number, os.strerror(number))
            return call(*arguments, **options)

        return wrapped

    n_refused = 0
    while n_calls >= n_failures:  # else no call was left that could fail
        n_calls, n_failures = 0, n_failures + 1
        with monkeypatch.context() as patch:
            for name in ("open", "fsync", "replace", "rename", "mkdir", "link"):
                patch.setattr(os, name, failing(getattr(os, name)))
            try:
                save(path, 1)
            except OSError as error:
                check_error(error, path, number)
                n_refused += 1
                # Where it cannot be made sure that the name of a shard outlasts a loss of power, there is an error.
                assert load(path) == before or (save is save_store and load(path) == before + 4)
        before = load(path)
        assert hidden(tmp_path) == []
    assert n_refused >= 3


@every_kind
def test_a_full_disk_leaves_what_was_there(save: Save, load: Load, small_disk: Path) -> None:
    """A real one; when there is room again, all goes on."""
    path = small_disk / "target"
    save(path, 0)
    before = load(path)
    with open(small_disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    with pytest.raises(OSError, match="No space left") as caught:
        save(path, 1)
    check_error(caught.value, path, errno.ENOSPC)
    assert load(path) == before
    assert hidden(small_disk) == []
    (small_disk / "filler").unlink()
    save(path, 1)
    assert load(path) != before or save is save_checkpoint


@every_kind
def test_a_disk_that_may_only_be_read_leaves_what_was_there(save: Save, load: Load, small_disk: Path) -> None:
    """The error comes at once, and names the file."""
    path = small_disk / "target"
    save(path, 0)
    before = load(path)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError, match=str(path)):
        save(path, 1)
    assert load(path) == before


@every_kind
def test_a_path_below_a_file_is_an_error_that_names_it(save: Save, load: Load, tmp_path: Path) -> None:
    """As is a folder that is not there, but for a store, which makes it."""
    (tmp_path / "file").write_text("the user's")
    for path in (tmp_path / "file" / "target", tmp_path / "nowhere" / "target"):
        if save is save_store and path.parent.name == "nowhere":
            continue
        with pytest.raises(OSError, match=str(path)):
            save(path, 0)
    assert (tmp_path / "file").read_text() == "the user's"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@every_kind
def test_a_limit_of_the_size_of_files_leaves_what_was_there(save: Save, load: Load, tmp_path: Path) -> None:
    """A write that is cut off in the middle, where no small disk can be mounted."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "target"
    save(path, 0)
    before = load(path)
    limits, reaction = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            save(path, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, reaction)
    check_error(caught.value, path, errno.EFBIG)
    assert load(path) == before
    assert hidden(tmp_path) == []


KILLED = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from perturbmap.support import files
from tests.test_faulty_disks import KINDS, X, Y, hidden, small_predictor

save, load = KINDS[sys.argv[1]]
path = Path(sys.argv[2]) / "target"
save(path, 0)
models = [small_predictor(random_state=seed).fit(X, Y) for seed in (0, 1)]
rng = np.random.default_rng(0)
n_done = n_left = 0
while n_done < 20 or (n_left == 0 and n_done < 2000):
    n_done += 1
    delay = rng.uniform(0.0, 0.03)
    process = os.fork()
    if process == 0:
        files._looked.clear()  # as a process that is new
        while True:
            for n in (0, 1):
                models[n].save(path) if sys.argv[1] == "model" else save(path, n)
    time.sleep(delay)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    load(path)
    n_left += len(hidden(path.parent)) > 0
    assert len(hidden(path.parent)) <= 1
save(path, 1)
load(path)
print(n_left)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["model", "checkpoint", "results"])
def test_a_process_killed_while_it_saves_leaves_a_whole_file(kind: str, tmp_path: Path) -> None:
    """At twenty moments or more, until one was in the middle of a write; stores have tests of their own."""
    command = [sys.executable, "-c", KILLED, kind, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) >= 1
    save, load = KINDS[kind]
    save(tmp_path / "target", 1)
    load(tmp_path / "target")
    assert hidden(tmp_path) == []


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    """What is replaced is the file that a link leads to; what is no file is not replaced at all."""
    (tmp_path / "disk").mkdir()
    link, target, pipe = tmp_path / "model.pm", tmp_path / "disk" / "model.pm", tmp_path / "pipe"
    link.symlink_to(target)
    for seed in (1, 2):
        save_model(link, seed)
        assert link.is_symlink()
        assert load_model(target) == seed
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe cannot be written: it is a device or a pipe"):
        save_model(pipe, 1)
    assert pipe.is_fifo()
