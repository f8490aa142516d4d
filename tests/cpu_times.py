"""What the tests cost: CPU seconds of each function, the list of those left out of the quick run, and its check.

CPU seconds, of the process and of the children it waited for, since they hardly depend on what else the machine does.
A function's seconds are those of all its cases with their fixtures. A fixture that several tests share counts in full
for each of them: in the quick run, any of them may be the one that has to make it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).with_name("not_quick.txt")
#: What a function of the quick run takes at most.
QUICK = 0.3
#: What a function may take that is not on the list: a busy machine, and modules that are loaded at their first use.
MOST = 4.0
_began = pytest.StashKey[float]()
#: CPU seconds of the fixtures that this process made for several tests, by where they hold and by name.
shared: dict[tuple[str, str], float] = {}
measured: defaultdict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times",
        choices=["check", "write"],
        help=f"check: tells functions over {MOST:g} CPU seconds that are not in {LIST.name}; write: writes the list",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    listed = set(LIST.read_text().split())
    for item in items:
        if function_of(item.nodeid) in listed:
            item.add_marker("not_quick")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_began] = cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    began = cpu_seconds()
    made = yield
    if fixturedef.scope != "function":
        shared[fixturedef.baseid, fixturedef.argname] = cpu_seconds() - began
    return made


def of_shared_fixtures(item: pytest.Item) -> float:
    """CPU seconds of the most expensive fixture that a test shares with others; it includes those it is made of."""
    names = set(getattr(item, "fixturenames", ()))
    return max(
        (s for (base, name), s in shared.items() if name in names and item.nodeid.startswith(base)), default=0.0
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    now = cpu_seconds()
    report.cpu_seconds = now - item.config.stash[_began]  # travels with the report to the process that started all
    if report.when == "setup":
        report.cpu_seconds = max(report.cpu_seconds, of_shared_fixtures(item))
    item.config.stash[_began] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    measured[function_of(report.nodeid)] += getattr(report, "cpu_seconds", 0.0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if config.getoption("--cpu-times") == "write":
        LIST.write_text("".join(f"{name}\n" for name in sorted(measured) if measured[name] > QUICK))
    if config.getoption("--cpu-times") == "check":
        listed = set(LIST.read_text().split())
        slow = [f"{name}: {s:.1f}" for name, s in measured.items() if s > MOST and name not in listed]
        if slow:  # told, and no failure: another machine may be slower
            text = f"over {MOST:g} CPU seconds: make them cheaper, or add them to {LIST.name} (make test-times)"
            print("\n".join(["", text, *slow]))


def function_of(nodeid: str) -> str:
    """The name of a test without the case: ``tests/test_x.py::test_y``."""
    return nodeid.partition("[")[0]


def cpu_seconds() -> float:
    return sum(os.times()[:4])
