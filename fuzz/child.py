"""The process in which the cases of a family run: ``python -m fuzz.child FAMILY FIRST-SEED N-CASES SECONDS PIPE``.

Each event is one line of JSON on the pipe: ``["begin", seed]`` before a case, so that whoever reads it knows what
a crash was in; ``["failed", seed, text]`` where a case raised anything; ``["end"]`` when all is done.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from fuzz.family import find_family


def main(name: str, first: int, n_cases: int, seconds: float, pipe: int) -> None:
    faulthandler.enable()
    family = find_family(name)
    until = time.monotonic() + seconds
    with (
        tempfile.TemporaryDirectory(prefix="perturbmap-fuzz-") as folder,
        os.fdopen(pipe, "w", buffering=1) as events,
    ):
        case = family.start(Path(folder))
        if family.memory is not None:
            limit_memory(family.memory)
        for seed in range(first, first + n_cases):
            print(json.dumps(["begin", seed]), file=events)
            try:
                case(np.random.default_rng(seed))
            except (Exception, SystemExit) as error:
                traceback.print_exc()
                print(json.dumps(["failed", seed, f"{type(error).__name__}: {error}"]), file=events)
            if time.monotonic() > until:
                break
        print(json.dumps(["end"]), file=events)


def limit_memory(n_bytes: int) -> None:
    """What is asked for beyond is a MemoryError. AddressSanitizer maps terabytes, and has a limit of its own."""
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
