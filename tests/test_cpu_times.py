"""The list of tests that the quick run leaves out names tests that are there, and what outgrows it is found."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import cpu_times

ROOT = Path(__file__).parents[1]


def test_the_list_names_tests_that_are_there() -> None:
    """A test that was renamed would be back in the quick run unnoticed."""
    names = cpu_times.LIST.read_text().split()
    assert names == sorted(set(names))
    for name in names:
        path, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), flags=re.MULTILINE), name


@pytest.mark.parametrize(("seconds", "is_told"), [(cpu_times.MOST + 0.5, True), (0.5, False)])
def test_what_takes_long_and_is_not_on_the_list_is_told(
    seconds: float, is_told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is on it may take what it takes; and nothing fails, since another machine may be slower."""
    listed = cpu_times.LIST.read_text().split()[0]
    found = defaultdict(float, {listed: 99.0, "tests/test_x.py::test_new": seconds})
    monkeypatch.setattr(cpu_times, "measured", found)
    session = SimpleNamespace(config=SimpleNamespace(getoption=lambda name: "check"), exitstatus=0)
    cpu_times.pytest_sessionfinish(session)  # type: ignore[arg-type]
    assert session.exitstatus == 0
    said = capsys.readouterr().out
    assert ("tests/test_x.py::test_new: 4.5" in said) == is_told
    assert listed not in said


@pytest.fixture
def busy() -> None:
    """Takes a twentieth of a CPU second."""
    until = cpu_times.cpu_seconds() + 0.05
    while cpu_times.cpu_seconds() < until:
        pass


@pytest.fixture(scope="module")
def busy_for_all() -> None:
    """The same, once."""
    until = cpu_times.cpu_seconds() + 0.05
    while cpu_times.cpu_seconds() < until:
        pass


@pytest.mark.usefixtures("busy_for_all")
@pytest.mark.parametrize("case", [1, 2])
def test_a_fixture_that_is_shared_counts_for_all_who_use_it(case: int, request: pytest.FixtureRequest) -> None:
    """For the second who uses it as for the first; what uses none has none."""
    assert cpu_times.of_shared_fixtures(request.node) >= 0.04
    assert cpu_times.measured[cpu_times.function_of(request.node.nodeid)] >= 0.04 * case
    assert cpu_times.of_shared_fixtures(SimpleNamespace(nodeid=request.node.nodeid)) == 0  # type: ignore[arg-type]


@pytest.mark.usefixtures("busy")
def test_the_seconds_of_fixtures_are_counted(request: pytest.FixtureRequest) -> None:
    """They are there by the time that the test itself runs."""
    assert cpu_times.measured[cpu_times.function_of(request.node.nodeid)] >= 0.04
