"""Ctrl-C: one line, exit code 130, no traceback."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from perturbmap.cli.exit_codes import EXIT_INTERRUPTED

NOTHING_DONE = "Interrupted before anything was done."


@contextmanager
def while_loading() -> Iterator[None]:
    """Ctrl-C ends the process at once, for the time in which libraries are loaded and there is nothing to clean up.

    An exception would not do: compiled libraries that are interrupted while loading make other errors of it.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        os.write(2, f"{NOTHING_DONE}\n".encode())
        os._exit(EXIT_INTERRUPTED)

    before = _handle(leave)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def while_working(interrupted: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt, and then a line of what is left of the work.

    Only the first one: who presses it again waits for what is being cleaned up.
    """

    def first(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = _handle(first)
    try:
        yield
    except KeyboardInterrupt:
        click.echo(interrupted(), err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except BaseException:
        _restore(before)
        raise
    else:
        _restore(before)


def _handle(handler: Callable[[int, FrameType | None], Any]) -> Any:
    """Sets the handler of SIGINT and returns the one before; None where another than Python's own is there."""
    if threading.current_thread() is not threading.main_thread():
        return None
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    return signal.signal(signal.SIGINT, handler)


def _restore(handler: Any) -> None:
    if handler is not None:
        signal.signal(signal.SIGINT, handler)
