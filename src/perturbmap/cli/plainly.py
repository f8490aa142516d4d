"""Commands on images in plain words: warnings as one line each, and one for Ctrl-C."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from perturbmap.cli.interrupts import while_working
from perturbmap.estimator import FitInterruptedWarning
from perturbmap.images import MaskWarning


@contextmanager
def plainly(interrupted: Callable[[], str]) -> Iterator[None]:
    """Warnings as one line, each once; Ctrl-C with a word of what is left of the work."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            is_note = issubclass(category, MaskWarning)
            tqdm.write(f"{'Note' if is_note else 'Warning'}: {message}", file=sys.stderr)

    with while_working(interrupted), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("error", FitInterruptedWarning)
        warnings.showwarning = show
        try:
            yield
        except FitInterruptedWarning:
            raise KeyboardInterrupt from None
