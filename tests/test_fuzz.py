"""The fuzzer: each family for a moment, with a fixed seed; and faults of every kind are found, by planted ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')
if sys.platform != "linux":
    pytest.skip("the fuzzer limits memory as Linux does", allow_module_level=True)

from fuzz import against_each_other, commands
from fuzz.harness import run
from perturbmap import BruteForce, Chain, Potentials, Structure
from perturbmap.potentials import Floats, Labels
from perturbmap.testing import ConformanceError, chains
from perturbmap.testing.instances import SIZES

from .instances import Kind
from .planted_faults import ABORTS, EATS, HANGS, HOLDS, LEAVES, RAISES

PLANTED = "tests.planted_faults"


@pytest.mark.slow
@pytest.mark.parametrize(("family", "n_cases"), [("structures", 50), ("files", 40), ("commands", 6)])
def test_no_case_of_a_family_fails(family: str, n_cases: int) -> None:
    """Of a few; ``make fuzz`` has more."""
    tally = run(family, 1, n_cases=n_cases)
    assert tally.n_cases == n_cases
    assert not tally.failures


@pytest.mark.slow
def test_every_kind_of_fault_is_found_and_the_run_goes_on() -> None:
    """An exception, an abort, an endless case, too much memory and an exit, each with its seed."""
    tally = run(PLANTED, HOLDS, n_cases=6, seconds_per_case=5)
    assert tally.n_cases == 6
    assert sorted(tally.failures) == [RAISES, ABORTS, HANGS, EATS, LEAVES]
    assert tally.failures[RAISES] == "KeyError: 'planted'"
    assert tally.failures[ABORTS].startswith("died of SIGABRT")
    assert tally.failures[HANGS].startswith("no end after 5 seconds")
    assert "Unable to allocate" in tally.failures[EATS]
    assert tally.failures[LEAVES].startswith("ended with exit code 3")


@pytest.mark.slow
def test_a_failure_is_one_line_that_runs_it_again() -> None:
    """And the exit code is 1 where there was any, 0 where there was none."""
    done = fuzz(PLANTED, "--seed", str(RAISES), "--minutes", "0")
    assert done.stdout.splitlines() == [
        f"seed {RAISES}",
        f"make fuzz CASE=\"{PLANTED}:{RAISES}\"  # KeyError: 'planted'",
        f"{PLANTED} 1 faults, 1 failure",
    ]
    assert done.returncode == 1
    again = fuzz(f"{PLANTED}:{RAISES}")
    assert "Traceback" in again.stderr
    assert again.returncode == 1
    assert fuzz(f"{PLANTED}:{HOLDS}").returncode == 0


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments], cwd=root, capture_output=True, text=True, check=False
    )


class Drifting(Structure):
    """A `Chain` whose values depend, in the last bits, on how many examples are in the batch."""

    def maximise(self, f: Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        labels, values = Chain().maximise(f, given)
        return labels, values * (1 + len(f) * 2.0**-51)


def test_a_structure_that_depends_on_the_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check that cuts batches up, within some instances."""
    kind = Kind(Drifting(), chains, BruteForce(), [size for size in SIZES if size[1] == 2])
    monkeypatch.setattr(against_each_other, "KINDS", [kind])

    def cut_some_up() -> None:
        for seed in range(20):
            against_each_other.cut_up(np.random.default_rng(seed))

    with pytest.raises(ConformanceError, match="a part of a batch has its values, bit by bit"):
        cut_some_up()


@pytest.mark.parametrize(
    ("code", "errors", "cause"),
    [
        (3, "", None),
        (1, "", ValueError("x")),
        (1, "Error: x\nmore", ValueError("x")),
        (1, "Error: x\nError: y", ValueError("x")),
        (1, f"Error: {'x' * 2000}", ValueError("x")),
        (1, "Error: 'classes'", KeyError("classes")),
        (0, "Error: x", None),
        (1, "Traceback (most recent call last)\nError: x", ValueError("x")),
    ],
)
def test_a_command_that_ends_badly_is_caught(code: int, errors: str, cause: BaseException | None) -> None:
    """No exit code of its own, no line or several, an error that is not for users."""
    with pytest.raises(AssertionError):
        commands.check(code, errors, cause)


def test_a_command_that_ends_well_passes() -> None:
    """With warnings before its error, or with none."""
    commands.check(0, "Warning: left out", None)
    commands.check(1, "Warning: left out\nError: x is damaged", ValueError("x is damaged"))
    commands.check(2, "Usage: perturbmap\n\nError: no such option", None)
