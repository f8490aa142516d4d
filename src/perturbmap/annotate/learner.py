"""Learning as you go: lessons in another process, one at a time, and the order in which photos are asked for."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any, final

from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.images import Segmenter
from perturbmap.support.files import clear_leftovers
from perturbmap.support.threads import threads

# Stages that a newer mask ends: what they have done is on disk, and the next lesson goes on from there.
_CAN_BE_ENDED = ("looking at images", "features of images", "looking at the other photos")
_IDLE = {"stage": "", "fraction": 1.0}
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@final
class Learner:
    """Gives a lesson (`perturbmap.annotate.lesson`) after each accepted mask; the newest wins.

    Masks that are accepted during a fit wait for its end, and are then learned from in one lesson: a lesson that each
    of them began anew might never end. A core is left to answers, and the lesson gives way to other programs.
    """

    def __init__(self, folder: AnnotationFolder) -> None:
        self._folder = folder
        self._lock = threading.Condition()
        self._is_wanted, self._is_closed = False, False
        self._status: dict[str, Any] = dict(_IDLE)
        self._process: subprocess.Popen[str] | None = None
        self._model = self._read_model()
        self._thread = threading.Thread(target=self._give_lessons, name="perturbmap-lessons", daemon=True)
        self._thread.start()

    @property
    def model(self) -> Segmenter | None:
        """What was learned last, or None."""
        return self._model

    @property
    def status(self) -> dict[str, Any]:
        """What is being done, as "stage" and "fraction", and under "problem" why nothing was learned last time."""
        return dict(self._status)

    def ask(self) -> None:
        """Asks for a lesson from what the folder holds now."""
        with self._lock:
            self._is_wanted = True
            if self._process is not None and self._status["stage"] in _CAN_BE_ENDED:
                self._process.kill()
            self._lock.notify_all()

    def close(self) -> None:
        """Ends the lesson under way; the model on disk stays as it is, and no file is left half written."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
            self._lock.notify_all()
        self._thread.join()
        for path in (self._folder.masks, *self._folder.masks.rglob("*")):
            if path.is_dir():
                clear_leftovers(path)

    def order(self) -> list[str]:
        """The names of all photos, the most useful to mark first.

        Photos without a mask come first, by the doubt of the model, the greatest first; those that it has not looked
        at yet follow by name; then those that are done, and the broken ones.
        """
        doubts = self._folder.progress()["doubts"]

        def place(name: str) -> tuple[int, float]:
            if name in self._folder.broken:
                return 3, 0.0
            if self._folder.is_accepted(name):
                return 2, 0.0
            return (0, -doubts[name]) if name in doubts else (1, 0.0)

        return sorted(self._folder.files, key=place)

    def _give_lessons(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._is_wanted or self._is_closed)
                if self._is_closed:
                    return
                self._is_wanted = False
                self._process = self._start()
            self._follow(self._process)
            with self._lock:
                self._process = None

    def _start(self) -> subprocess.Popen[str]:
        n = str(max(1, threads(None) - 1))
        self._status = {"stage": "starting", "fraction": 0.0}
        return subprocess.Popen(
            [sys.executable, "-m", "perturbmap.annotate.lesson", str(self._folder.photos), str(self._folder.masks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(_POOLS, n)},
            start_new_session=True,  # Ctrl-C is for the server, which ends the lesson
        )

    def _follow(self, process: subprocess.Popen[str]) -> None:
        """Keeps the status, and takes up the model as soon as it is written."""
        assert process.stdout is not None
        problem = None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if "problem" in said:
                    problem = said["problem"]
                    continue
                self._status = said
                if said["stage"] == "learned":
                    self._model = self._read_model()
        _, errors = process.communicate()
        if process.returncode > 0 and errors:  # below zero it was ended
            problem = errors.strip().splitlines()[-1]
        self._status = {**_IDLE, **({} if problem is None else {"problem": problem})}

    def _read_model(self) -> Segmenter | None:
        """The model on disk; None where there is none, or one of other classes, or a damaged one."""
        try:
            found = Segmenter.load(self._folder.model)
        except (OSError, ValueError):
            return None
        names = None if found.classes is None else found.classes.names
        return found if names == (None if self._folder.classes is None else self._folder.classes.names) else None
