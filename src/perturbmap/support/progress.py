"""How far long work has come: nothing, one bar, or two for an experiment (all runs, and the run under way)."""

from __future__ import annotations

import sys
from typing import IO

from tqdm import tqdm


class Progress:
    """What long work tells of its progress; this one shows nothing, `Bar` and `Bars` do."""

    def start(self, n_runs: int, n_done: int) -> None:
        """Announces how many runs there are, and how many of them need not be run again."""

    def begin(self, name: str) -> None:
        """Something begins that takes a while."""

    def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
        """Work is done up to this fraction, with this error so far, if there is one."""

    def finish(self, error: float | None) -> None:
        """A run is done, with this error; None says that it need not be run again."""

    def close(self) -> None:
        """Nothing more is to come, for whatever reason."""


class Bar(Progress):
    """One bar on a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._bar: tqdm[None] | None = None

    def begin(self, name: str) -> None:
        self.close()
        shape = "{desc:<44}{percentage:3.0f}%|{bar:24}| {elapsed} gone, {remaining} left"
        self._bar = tqdm(total=1.0, desc=name, bar_format=shape, disable=None)

    def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
        if self._bar is not None:
            self._bar.update(min(1.0, fraction) - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Bars(Progress):
    """Bars on a terminal; elsewhere, such as in a log, one line for each run."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = sys.stderr if file is None else file
        self._is_terminal = self._file.isatty()
        self._all: tqdm[None] | None = None
        self._one: tqdm[None] | None = None
        self._name = ""

    def start(self, n_runs: int, n_done: int) -> None:
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
        self._name = name
        if self._one is not None:
            self._one.reset(total=1.0)
            self._one.set_description_str(name)

    def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
        if self._one is not None:
            self._one.n = min(1.0, fraction)
            said = note if error is None else f"{error:.1%}"
            self._one.set_description_str(f"{self._name} ({said})" if said else self._name)

    def finish(self, error: float | None) -> None:
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
        for bar in (self._one, self._all):
            if bar is not None:
                bar.close()


def as_progress(progress: bool | Progress) -> Progress:
    """True stands for a bar, False for silence; a `Progress`, as an experiment has, is used as it is."""
    if isinstance(progress, Progress):
        return progress
    return Bar() if progress else Progress()
