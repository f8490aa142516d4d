"""What is left when a process is killed: hidden files that the next one clears away, and workers that end."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.data import Dataset
from perturbmap.data.store import writing
from perturbmap.data.store.manifest import STORE
from perturbmap.potentials import Floats
from perturbmap.support import files
from perturbmap.support.files import clear_leftovers, hidden_folder, write_atomically
from tests.stored import Mortal, graphs, make_store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows ends no process like this")
ROOT = Path(__file__).parents[1]


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


WRITER = """
import os, signal, sys
from perturbmap.support.files import hidden_folder, write_atomically
from pathlib import Path

def fill(file):
    file.write(b"half")
    file.flush()
    with hidden_folder(Path(sys.argv[1])) as inside:
        (inside / "x").write_bytes(b"half")
        print("writing", flush=True)
        if sys.argv[2] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdin.readline()
        file.write(b" and half")

write_atomically(f"{sys.argv[1]}/target", fill)
"""


def writer(folder: Path, how: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A process that is in the middle of writing."""
    command = [*before, sys.executable, "-c", WRITER, str(folder), how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def test_what_a_killed_writer_leaves_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    """Hidden files and folders; the target, and whatever else is hidden, stays."""
    (tmp_path / "target").write_text("old")
    (tmp_path / ".perturbmap-notes.tmp").write_text("the user's")
    writer(tmp_path, "killed").communicate()
    assert len(hidden(tmp_path)) == 1 + 3  # of two claims, one has a folder
    assert (tmp_path / "target").read_text() == "old"
    write_atomically(tmp_path / "other", lambda file: file.write(b"new"))
    assert hidden(tmp_path) == [".perturbmap-notes.tmp"]
    assert (tmp_path / "other").read_text() == "new"


def _with_own_processes() -> list[tuple[str, ...]]:
    """Nothing; and a command that runs another where it sees none of our processes, if that is allowed."""
    apart = ("unshare", "--pid", "--fork", "--mount-proc")
    try:
        can = subprocess.run([*apart, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        can = False
    return [(), apart] if can else [()]


@pytest.mark.parametrize("before", _with_own_processes(), ids=lambda before: "apart" if before else "beside")
def test_a_living_writer_loses_nothing(before: tuple[str, ...], tmp_path: Path) -> None:
    """Neither to a process beside it nor to one in another container, where its number is of nobody."""
    process = writer(tmp_path, "waits", before)
    n_hidden = len(hidden(tmp_path))
    assert n_hidden == 3
    clear_leftovers(tmp_path)
    write_atomically(tmp_path / "other", lambda file: file.write(b"new"))
    assert len(hidden(tmp_path)) == n_hidden
    process.communicate("go on\n")
    assert process.returncode == 0
    assert (tmp_path / "target").read_text() == "half and half"
    assert hidden(tmp_path) == []


def test_the_file_of_another_machine_is_left_alone_for_a_day(tmp_path: Path) -> None:
    """Its lock may not reach as far as here."""
    theirs = tmp_path / ".perturbmap-00000000-0123456789abcdef.tmp"
    theirs.write_text("half")
    clear_leftovers(tmp_path)
    assert theirs.exists()
    long_ago = time.time() - 2 * 86_400
    os.utime(theirs, (long_ago, long_ago))
    clear_leftovers(tmp_path)
    assert not theirs.exists()


def _write_much(folder: str, number: int) -> None:
    files._LOOK_AGAIN = 0.0
    for n in range(150):
        write_atomically(Path(folder) / f"{n % 3}", lambda file: file.write(f"{number:08d}".encode() * 100))
        with hidden_folder(Path(folder)) as inside:
            (inside / "x").write_bytes(b"")


def test_writers_that_clear_away_while_others_write(tmp_path: Path) -> None:
    """Three processes, each looking for leftovers before every write: none takes what another has just begun."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        pool.starmap(_write_much, [(str(tmp_path), number) for number in range(3)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    for path in tmp_path.iterdir():
        assert len({path.read_bytes()[i : i + 8] for i in range(0, 800, 8)}) == 1


def test_without_locks_files_are_written_and_nothing_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, and on disks that have none."""
    writer(tmp_path, "killed").communicate()
    before = hidden(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "fcntl", None)
        write_atomically(tmp_path / "target", lambda file: file.write(b"new"))
        assert hidden(tmp_path) == before

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", none)
        write_atomically(tmp_path / "target", lambda file: file.write(b"newer"))
        clear_leftovers(tmp_path)
        assert hidden(tmp_path) == before
    assert (tmp_path / "target").read_bytes() == b"newer"


# Two that begin one store.


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., threading.Thread]]:
    """Starts a writer that waits, between the making of its store and its first shard, until it is joined."""
    go_on, is_there = threading.Event(), threading.Event()
    write, errors = writing._write_shard, []

    def waiting(*arguments: Any) -> None:
        is_there.set()
        assert go_on.wait(20)
        write(*arguments)

    class Writer(threading.Thread):
        def run(self) -> None:
            try:
                super().run()
            except Exception as error:
                errors.append(error)

        def join(self, timeout: float | None = None) -> None:
            go_on.set()
            super().join(20)
            assert errors == []

    def start(*arguments: Any, **options: Any) -> threading.Thread:
        thread = Writer(target=pm.write_store, args=arguments, kwargs=options)
        with monkeypatch.context() as patch:
            patch.setattr(writing, "_write_shard", waiting)
            thread.start()
            assert is_there.wait(20)
        return thread

    yield start
    go_on.set()


@pytest.mark.parametrize("has_links", [True, False])
def test_a_second_first_writer_of_a_store_is_refused(
    has_links: bool, held: Callable[..., threading.Thread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would replace the classes under which the first one's labels are numbered. Adding is allowed."""
    if not has_links:

        def link(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
    X, y = graphs(6)
    first = held(tmp_path / "s", X, y, classes=[0, 1])
    for classes in ([1, 0], [0, 1]):
        with pytest.raises(FileExistsError, match=r"is being written by another process.*append=True"):
            pm.write_store(tmp_path / "s", X, y, classes=classes)
    assert pm.write_store(tmp_path / "s", X, y, append=True) == 6
    first.join()
    store = pm.Store(tmp_path / "s")
    store.verify()
    assert len(store) == 12
    assert [list(part) for part in store.y] == [part.tolist() for part in [*y, *y]]
    assert hidden(tmp_path / "s") == []


def test_without_locks_two_first_writers_agree_or_one_is_refused(
    held: Callable[..., threading.Thread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is never replaced."""
    monkeypatch.setattr(files, "fcntl", None)
    X, y = graphs(6)
    first = held(tmp_path / "s", X, y, classes=[0, 1])
    with pytest.raises(FileExistsError, match=r"If there is no such process, remove .*store\.json"):
        pm.write_store(tmp_path / "s", X, y, classes=[1, 0])
    assert pm.write_store(tmp_path / "s", X, y, classes=[0, 1]) == 6
    first.join()
    assert len(pm.Store(tmp_path / "s")) == 12


def test_the_file_of_a_store_whose_writer_was_killed_is_replaced(tmp_path: Path) -> None:
    """Also where it is no more than its beginning; by one that adds it is refused."""
    X, y = graphs(6)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / STORE).write_text('{"form')
    with pytest.raises(ValueError, match=r"store\.json is damaged"):
        pm.write_store(tmp_path / "s", X, y, append=True)
    assert pm.write_store(tmp_path / "s", X, y, classes=[0, 1]) == 6


def _write_first(folder: str, number: int, barrier: Any) -> bool:
    X, y = graphs(6, seed=number)
    barrier.wait()
    try:
        pm.write_store(folder, X, [part + number for part in y], classes=[number, number + 1])
    except FileExistsError:
        return False
    return True


@pytest.mark.slow
def test_of_writers_that_begin_at_once_one_succeeds(tmp_path: Path) -> None:
    """Twenty times three processes with other classes each: the store is whole, and that of one of them."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(3) as pool:
        for attempt in range(20):
            barrier, folder = manager.Barrier(3), str(tmp_path / str(attempt))
            done = pool.starmap(_write_first, [(folder, 10 * n, barrier) for n in range(3)])
            store = pm.Store(folder)
            store.verify()
            assert sum(done) == 1
            assert len(store) == 6
            assert store.classes == [10 * done.index(True), 10 * done.index(True) + 1]
            assert hidden(tmp_path / str(attempt)) == []


# Workers.

DRIVER = """
import os, sys
import perturbmap as pm
from tests.stored import cutter
from tests.test_killed_writers import Slow

store = pm.Store(sys.argv[1])
model = Slow(sys.argv[2], os.getpid())
cutter(n_jobs=2, solver=getattr(pm, sys.argv[3])()).set_params(model=model).fit(store, store.y)
"""


class Slow(Mortal):
    """Says in which process it works, and then works for ever; in its parent it is `GraphModel`."""

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> pm.Potentials:
        if os.getpid() != self.parent:
            (Path(self.marker) / str(os.getpid())).touch()
            while True:
                np.arange(10).sum()
        return pm.GraphModel().potentials(w, batch, n_labels)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("solver", ["LocalSGD", "LBFGS"])
def test_the_workers_of_a_killed_driver_end(solver: str, tmp_path: Path) -> None:
    """Within a few seconds, in the middle of their work."""
    make_store(tmp_path / "s", n=12, shards=2)
    (tmp_path / "workers").mkdir()
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "s"), str(tmp_path / "workers"), solver]
    driver = subprocess.Popen(command, cwd=ROOT)
    until = time.monotonic() + 60
    while len(workers := [int(path.name) for path in (tmp_path / "workers").iterdir()]) < 2:
        assert time.monotonic() < until
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    until = time.monotonic() + 10
    try:
        while any(is_running(process) for process in workers):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        for process in workers:
            if is_running(process):
                os.kill(process, signal.SIGKILL)
