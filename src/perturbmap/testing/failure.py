"""How a check fails: with the promise that is broken, what was found, what was expected, and the instance."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from types import TracebackType
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

# Numbers of an array that are printed; small instances have fewer.
_MOST_NUMBERS = 400


@final
class ConformanceError(AssertionError):
    """Raised where a part (a structure, model, loss, ...) breaks a promise of its kind.

    The message names the promise, and shows the smallest instance on which it was found to be broken.
    """


def show(value: Any) -> str:
    """An array as Python would write it, so that an instance can be pasted into a test; anything else by ``repr``."""
    if not isinstance(value, np.ndarray):
        return repr(value)
    return repr(value.tolist()) if value.size <= _MOST_NUMBERS else np.array2string(value, threshold=60)


def describe(**named: Any) -> str:
    """Names and values, one on each line."""
    return "\n".join(f"{name} = {show(value)}" for name, value in named.items())


@final
class Trial:
    """A part on one instance: each claim holds there, or `ConformanceError` is raised.

    Used as a context, it also turns any other exception of the part into one, so that the instance is always shown.

    part : what is tried
    instance : says what it is tried on; asked only when a claim fails
    """

    def __init__(self, part: object, instance: Callable[[], str]) -> None:
        self._part, self._instance = part, instance

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConformanceError):
            raise self._error("it answers without an error", f"raised: {type(error).__name__}: {error}") from error

    def holds(self, claim: str, is_true: Any, detail: str = "") -> None:
        """Fails unless something is true, everywhere."""
        if not np.all(is_true):
            raise self._error(claim, detail)

    def equal(self, claim: str, found: Any, expected: Any) -> None:
        """Fails unless two arrays are the same bit by bit, NaN where the other has NaN."""
        if (found is None) != (expected is None) or (
            found is not None and expected is not None and not _are_equal(np.asarray(found), np.asarray(expected))
        ):
            raise self._error(claim, _compare(found, expected))

    def close(self, claim: str, found: ArrayLike, expected: ArrayLike, rtol: float, atol: float) -> None:
        """Fails unless two arrays have the same shape and nearly the same numbers; infinities must be the same."""
        one, other = np.asarray(found), np.asarray(expected)
        if one.shape != other.shape or not np.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True):
            raise self._error(claim, _compare(found, expected))

    def refuses(self, claim: str, kind: type[Exception], call: Callable[[], object]) -> None:
        """Fails unless a call raises this kind of error."""
        try:
            answer = call()
        except kind:
            return
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise self._error(claim, f"expected: {kind.__name__}\nraised:   {found}") from error
        raise self._error(claim, f"expected: {kind.__name__}\nfound:    {show(answer)}")

    def _error(self, claim: str, detail: str) -> ConformanceError:
        lines = [f"{self._part!r} breaks a promise of its kind: {claim}."]
        if detail:
            lines.append(textwrap.indent(detail, "  "))
        return ConformanceError("\n".join([*lines, "on the instance", textwrap.indent(self._instance(), "  ")]))


def _are_equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    is_float = one.dtype.kind == "f" and other.dtype.kind == "f"
    return bool(np.array_equal(one, other, equal_nan=is_float))


def _compare(found: Any, expected: Any) -> str:
    plain = [value if value is None else np.asarray(value) for value in (expected, found)]
    return f"expected: {show(plain[0])}\nfound:    {show(plain[1])}"
