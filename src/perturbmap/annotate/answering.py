"""Answers for the page: photos prepared ahead, computations in threads, the newest question of a photo alone."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import final

from perturbmap.annotate.answer import Answer, answer
from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.annotate.marks import Mark, marks_to_json
from perturbmap.annotate.photo import Photo, prepare
from perturbmap.images import ImageError, Segmenter

MOST_PHOTOS = 6  # that are held in memory, with what is shown and accepted of them


def revision(marks: Sequence[Mark]) -> str:
    """A short digest of what is drawn, by which two tabs notice that they draw on one photo."""
    return hashlib.sha256(json.dumps(marks_to_json(tuple(marks))).encode()).hexdigest()[:16]


@final
class Answering:
    """Prepares photos and answers marks, in two threads; one more prepares what will be asked for next."""

    def __init__(
        self, folder: AnnotationFolder, model: Callable[[], Segmenter | None], n_superpixels: int | None
    ) -> None:
        self._folder, self._model = folder, model
        self._options = {} if n_superpixels is None else {"n_superpixels": n_superpixels}
        self._lock = threading.Lock()
        self._photos: OrderedDict[str, Future[Photo]] = OrderedDict()
        self._newest: dict[str, int] = {}
        self._shown: OrderedDict[str, tuple[str, Answer]] = OrderedDict()
        self._plans: list[Future[Photo]] = []
        self._answers = ThreadPoolExecutor(2, "perturbmap-answers")
        self._ahead = ThreadPoolExecutor(1, "perturbmap-ahead")

    def close(self) -> None:
        """Cancels what is under way."""
        with self._lock:
            self._newest = {}
        for pool in (self._answers, self._ahead):
            pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, name: str, marks: Sequence[Mark]) -> Future[Answer | None]:
        """The answer to marks on a photo, as it will be found; None where a newer question came, or nothing is known.

        A newer question about a photo cancels the one before.
        """
        with self._lock:
            number = self._newest[name] = self._newest.get(name, 0) + 1
        return self._answers.submit(self._compute, name, tuple(marks), lambda: self._newest.get(name) != number)

    def accepted_answer(self, name: str, marks: Sequence[Mark]) -> Answer | None:
        """The answer that was shown for these marks, or a new one; None where nothing is known of the photo."""
        with self._lock:
            seen = self._shown.get(name)
        if seen is not None and seen[0] == revision(marks):
            return seen[1]
        return self._compute(name, tuple(marks), lambda: False)

    def prepare_ahead(self, names: Iterable[str]) -> None:
        """Prepares photos that will be asked for, one after another, in place of those that were planned before."""
        for plan in self._plans:
            plan.cancel()
        with self._lock:
            wanted = [name for name in names if name not in self._photos and name not in self._folder.broken]
        self._plans = [self._ahead.submit(self._photo, name) for name in wanted]

    def _compute(self, name: str, marks: tuple[Mark, ...], is_cancelled: Callable[[], bool]) -> Answer | None:
        model = self._model()
        if is_cancelled() or (not marks and model is None):
            return None
        found = answer(self._photo(name), marks, model, is_cancelled=is_cancelled)
        if found is not None and not is_cancelled():
            with self._lock:
                self._shown[name] = (revision(marks), found)
                self._shown.move_to_end(name)
                while len(self._shown) > MOST_PHOTOS:
                    self._shown.popitem(last=False)
        return found

    def _photo(self, name: str) -> Photo:
        """The prepared photo; whoever asks first prepares it, and the others wait."""
        with self._lock:
            ready = self._photos.get(name)
            is_mine = ready is None
            if ready is None:
                ready = self._photos[name] = Future()
            self._photos.move_to_end(name)
            while len(self._photos) > MOST_PHOTOS:
                self._photos.popitem(last=False)
        if is_mine:
            try:
                photo = prepare(self._folder.path(name), cache=self._folder.cache, **self._options)
                model = self._model()
                if model is not None:
                    photo.learned(model)  # which takes a second, where the cache lacks its features
                ready.set_result(photo)
            except BaseException as error:
                if isinstance(error, ImageError):
                    self._folder.broken[name] = str(error)
                with self._lock:
                    self._photos.pop(name, None)
                ready.set_exception(error)
        return ready.result()
