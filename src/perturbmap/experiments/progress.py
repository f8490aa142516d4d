"""How far an experiment is: two bars, one for all runs with the time left, one for the run under way."""

from __future__ import annotations

import sys
from typing import IO

from tqdm import tqdm


class Progress:
    """Says nothing; `Bars` does."""

    def start(self, n_runs: int, n_done: int) -> None:
        """All runs, and how many need not be run again."""

    def begin(self, name: str) -> None:
        """Something begins that takes a while."""

    def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
        """It is done to this fraction; with the error so far, if there is one."""

    def finish(self, error: float | None) -> None:
        """A run is done; None: it need not be run again."""

    def close(self) -> None:
        """No more is to come, for whatever reason."""


class Bars(Progress):
    """Bars on a terminal; elsewhere, such as in a log, a line a run."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = sys.stderr if file is None else file
        self._is_terminal = self._file.isatty()
        self._all: tqdm[None] | None = None
        self._one: tqdm[None] | None = None
        self._name = ""

    def start(self, n_runs: int, n_done: int) -> None:
        """See `Progress.start`."""
        if n_done:
            others = "nothing is left to do" if n_done == n_runs else "the others follow"
            print(f"{n_done} of {n_runs} runs are there already; {others}.", file=self._file)
        shape = "{desc:<44}{percentage:3.0f}%|{bar:24}| {n_fmt}/{total_fmt} runs, {elapsed} gone, {remaining} left"
        self._all = tqdm(
            total=n_runs, initial=n_done, file=self._file, disable=not self._is_terminal, bar_format=shape, desc="all"
        )
        shape = "{desc:<44}{percentage:3.0f}%|{bar:24}|"
        self._one = tqdm(total=1.0, file=self._file, disable=not self._is_terminal, bar_format=shape, leave=False)

    def begin(self, name: str) -> None:
        """See `Progress.begin`."""
        self._name = name
        if self._one is not None:
            self._one.reset(total=1.0)
            self._one.set_description_str(name)

    def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
        """See `Progress.advance`."""
        if self._one is not None:
            self._one.n = min(1.0, fraction)
            said = note if error is None else f"{error:.1%}"
            self._one.set_description_str(f"{self._name} ({said})" if said else self._name)

    def finish(self, error: float | None) -> None:
        """See `Progress.finish`."""
        if self._all is not None:
            self._all.update(1)
        if error is None:
            return
        line = f"{self._name:<44} error {error:.1%}"
        if self._is_terminal:
            tqdm.write(line, file=self._file)
        else:
            print(line, file=self._file, flush=True)

    def close(self) -> None:
        """See `Progress.close`."""
        for bar in (self._one, self._all):
            if bar is not None:
                bar.close()
