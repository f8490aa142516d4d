"""Parts as text: what comes back from a file is what went in, and what differs has another fingerprint."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.support.description import fingerprint, from_json, to_json
from perturbmap.support.parts import Part


class Holder(Part):
    """A part of the user's, with a parameter of any kind."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


@pytest.mark.parametrize(
    "value",
    [
        3,
        0.25,
        "text",
        None,
        True,
        [1, [2, 3]],
        (1, (2, 3)),
        range(2, 9, 3),
        {"a": (1,), 2: [None]},
        np.array([[1.5, 2.0]], dtype=np.float32),
        np.array([1, 2], dtype=np.int16),
        pm.Decoding.LOSS_AWARE,
        pm.COUNTED,
        pm.MarginalLogLikelihood(pm.WeightedHamming(np.array([1.0, 5.0]))),
        pm.LocalSGD(pm.DoubleSGD(averaging=pm.SuffixAveraging(0.3))),
    ],
    ids=repr,
)
def test_what_is_saved_comes_back_as_it_was(value: Any) -> None:
    """Arrays with their type, tuples as tuples, parts that are not exported by name too."""
    part = Holder(value)
    again = from_json(json.loads(json.dumps(to_json(part))), [Holder])
    assert again == part
    assert type(again.value) is type(value)
    if isinstance(value, np.ndarray):
        assert again.value.dtype == value.dtype


def test_files_name_nothing_but_parts() -> None:
    """Neither functions of the package, nor classes that are no parts, nor a user's that were not brought."""
    for name in ("marginals", "Potentials", "Example", "eval", "Nothing"):
        with pytest.raises(ValueError, match="unknown class"):
            from_json({"class": name, "params": {}, "own": False})
    with pytest.raises(ValueError, match=r"pass its class, load\(path, parts=\[Holder\]\)"):
        from_json(to_json(Holder()))
    with pytest.raises(ValueError, match="cannot be saved without pickle"):
        to_json(Holder(lambda: 0))


def closing_over(shift: float) -> Callable[[float], float]:
    return lambda x: x + shift


def with_default(*, m: int = 2) -> int:
    return m


def other_default(*, m: int = 3) -> int:
    return m


class Slots:
    __slots__ = ("a",)

    def __init__(self, a: int) -> None:
        self.a = a


def made(number: int) -> type[Part]:
    class Local(Part):
        def answer(self) -> int:
            return number

    return Local


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        ("1", 1),
        (np.zeros(2), np.zeros(3)),
        (closing_over(1.0), closing_over(2.0)),
        (with_default, other_default),
        (partial(with_default, m=2), partial(with_default, m=3)),
        (Slots(1), Slots(2)),
        (made(0)(), made(5)()),
        (pm.Chain(), pm.Tree()),
        (Holder({"a": 1}), Holder({"a": 2})),
        ([1, 2], [2, 1]),
    ],
    ids=lambda pair: type(pair).__name__,
)
def test_what_differs_has_another_fingerprint(one: Any, other: Any) -> None:
    """Values, functions by code, defaults and what they close over, objects by what they hold, classes by methods."""
    assert fingerprint(Holder(one)) != fingerprint(Holder(other))


GLOBAL = 1


def uses_a_global() -> int:
    return GLOBAL


def test_a_function_is_known_by_the_globals_that_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant of a script that is changed between two runs makes another fit."""
    before = fingerprint(uses_a_global)
    assert fingerprint(uses_a_global) == before
    monkeypatch.setitem(globals(), "GLOBAL", 2)
    assert fingerprint(uses_a_global) != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (np.float32(0.5), 0.5),
        (closing_over(1.0), closing_over(1.0)),
        (Slots(1), Slots(1)),
        (pm.Chain(1), pm.Chain(4)),
        (Holder(pm.Tree(2)), Holder(pm.Tree())),
        (np.random.default_rng(0), np.random.default_rng(1)),
    ],
    ids=lambda pair: type(pair).__name__,
)
def test_what_computes_the_same_has_the_same_fingerprint(one: Any, other: Any) -> None:
    """Numbers of either type, functions made twice, other numbers of threads; a generator gave its seed already."""
    assert fingerprint(one) == fingerprint(other)


def test_what_cannot_be_told_apart_is_refused_and_cycles_end() -> None:
    """An open file has no description; an object that holds itself has one."""
    with open(__file__, encoding="utf-8") as file, pytest.raises(ValueError, match="fit without checkpoint"):
        fingerprint(Holder(file))
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprint(Holder(loop))
