"""The soak: a short one is flat, and whatever grows is found."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("memory, open files and threads are measured in /proc", allow_module_level=True)

from fuzz.soak import Measured, growth, soak

FLAT = [Measured(seconds=float(n), n_done=n, memory=200.0 * 2**20, files=7, threads=3) for n in range(60)]


@pytest.mark.slow
def test_a_short_soak_is_flat() -> None:
    """Fits, predictions, files and stores for some seconds, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.soak", "--minutes", "0.1", "--seed", "1"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Flat" in done.stdout


def test_growth_is_told_from_noise_and_from_a_warm_up() -> None:
    """Memory by the medians of thirds, files and threads by the most of them."""
    assert growth(FLAT) == []
    warm_up = [replace(m, memory=m.memory * n / 20, files=n, threads=n) for n, m in enumerate(FLAT[:20])]
    assert growth([*warm_up, *FLAT[20:]]) == []
    assert growth([replace(m, memory=m.memory + (n % 7 == 0) * 2**30) for n, m in enumerate(FLAT)]) == []
    assert growth([replace(m, memory=m.memory + n * 2**19) for n, m in enumerate(FLAT)]) == []  # 10 MB
    assert growth([replace(m, memory=m.memory + n * 2**21) for n, m in enumerate(FLAT)]) == [
        "memory grew from 259.0 to 299.0 MB"
    ]
    assert growth([*FLAT[:-1], replace(FLAT[-1], files=8)]) == ["files grew from 7 to 8"]
    assert growth([*FLAT[:-1], replace(FLAT[-1], threads=4)]) == ["threads grew from 3 to 4"]
    with pytest.raises(ValueError, match="too few"):
        growth(FLAT[:20])


@pytest.mark.slow
def test_what_keeps_memory_or_files_is_found() -> None:
    """Measured in this very process, whose memory grows by 40 MB per second, and its open files by one each time."""
    kept: list[np.ndarray] = []
    opened: list[IO[str]] = []
    began = time.monotonic()

    def keep(rng: np.random.Generator, folder: Path) -> None:
        time.sleep(0.01)
        kept.append(np.ones(int((time.monotonic() - began) * 5e6) - sum(map(len, kept))))
        opened.append(open(folder / "x", "w"))  # noqa: SIM115

    gc.freeze()  # what other tests have left is not collected again before every measurement
    try:
        memory, files = growth(soak(4, seed=0, work=[keep]))
    finally:
        gc.unfreeze()
        for file in opened:
            file.close()
    assert memory.startswith("memory grew")
    assert files.startswith("files grew")
