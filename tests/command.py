"""``perturbmap`` run in this process, for all tests but those of the process itself."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple

from perturbmap.cli.main import main

#: The command, for tests that kill it, interrupt it, give it a terminal, or ask whether it was installed.
COMMAND = Path(sys.executable).with_name("perturbmap")


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Done:
    """The command's entry point, in this process: a second of imports is saved."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["perturbmap", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = before
    assert "Traceback" not in err.getvalue()
    return Done(code, out.getvalue(), err.getvalue())
