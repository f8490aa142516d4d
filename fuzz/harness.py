"""Runs the cases of a family in a child process, and goes on with another where a case kills it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
#: A case that takes longer hangs. Most take milliseconds.
SECONDS_PER_CASE = 180.0


@dataclass
class Tally:
    """Cases that were begun, and what was found, by seed."""

    n_cases: int = 0
    failures: dict[int, str] = field(default_factory=dict)


def run(
    name: str,
    first: int,
    *,
    n_cases: int = 10**9,
    seconds: float = 10.0**9,
    seconds_per_case: float = SECONDS_PER_CASE,
    tell: Callable[[int, str], None] = lambda seed, text: None,
    verbose: bool = False,
) -> Tally:
    """Cases of a family from seed ``first`` on, so many or for so many seconds; ``tell`` hears of each failure.

    With ``verbose``, all that the cases write, tracebacks among it, is shown.
    """
    tally = Tally()
    until = time.monotonic() + seconds

    def failed(seed: int, text: str) -> None:
        tally.failures[seed] = text
        tell(seed, text)

    while tally.n_cases < n_cases and (tally.n_cases == 0 or time.monotonic() < until):
        with tempfile.TemporaryFile("w+", errors="replace") as written:
            arguments = [name, str(first), str(n_cases - tally.n_cases), str(until - time.monotonic())]
            last, how = _run_child(arguments, tally, failed, seconds_per_case, None if verbose else written)
            if how is None:
                break
            if last is None:
                written.seek(0)
                raise RuntimeError(f"the family {name} did not start: {how}.\n{written.read()}")
            failed(last, f"{how}: {_cause(written)}")
            first = last + 1
    return tally


def _run_child(
    arguments: list[str],
    tally: Tally,
    failed: Callable[[int, str], None],
    seconds_per_case: float,
    written: IO[str] | None,
) -> tuple[int | None, str | None]:
    """The last seed that was begun, and how the child came to a bad end, or None."""
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "fuzz.child", *arguments, str(writer)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=written,
        stderr=written,
        pass_fds=[writer],
    )
    os.close(writer)
    last, ended, buffer = None, False, b""
    try:
        while select.select([reader], [], [], seconds_per_case)[0]:
            block = os.read(reader, 2**16)
            if not block:
                break
            *lines, buffer = (buffer + block).split(b"\n")
            for kind, *rest in map(json.loads, lines):
                if kind == "begin":
                    (last,) = rest
                    tally.n_cases += 1
                elif kind == "failed":
                    failed(*rest)
                ended = ended or kind == "end"
        else:
            return last, f"no end after {seconds_per_case:g} seconds"
        code = child.wait()
    finally:
        child.kill()
        child.wait()
        os.close(reader)
    if ended and code == 0:
        return last, None
    return last, f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _cause(written: IO[str]) -> str:
    """The line that says most of a crash: a sanitiser's, or the last."""
    written.seek(0)
    lines = [line.strip() for line in written if line.strip()]
    named = [line for line in lines if "ERROR: AddressSanitizer" in line or "runtime error:" in line]
    return (named or lines or [""])[-1]
