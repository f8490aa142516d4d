"""A bar of one's own, where no experiment has one."""

from __future__ import annotations

from tqdm import tqdm

from perturbmap.experiments.progress import Progress


class Bar(Progress):
    """One bar on a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._bar: tqdm[None] | None = None

    def begin(self, name: str) -> None:
        """See `Progress.begin`."""
        self.close()
        shape = "{desc:<44}{percentage:3.0f}%|{bar:24}| {elapsed} gone, {remaining} left"
        self._bar = tqdm(total=1.0, desc=name, bar_format=shape, disable=None)

    def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
        """See `Progress.advance`."""
        if self._bar is not None:
            self._bar.update(min(1.0, fraction) - self._bar.n)

    def close(self) -> None:
        """See `Progress.close`."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def as_progress(progress: bool | Progress) -> Progress:
    """True is a bar, False is silence, and an experiment's is told what happens."""
    if isinstance(progress, Progress):
        return progress
    return Bar() if progress else Progress()
