"""Parts: objects that are what their constructor was told, as scikit-learn's estimators are.

Structures, models, losses, objectives and solvers are parts. A part stores the arguments of its constructor under
their own names and does nothing else there. From that follow its parameters (``get_params``, ``set_params``, which
``clone`` and ``GridSearchCV`` use), its ``repr``, equality, its place in a file and in a checkpoint's fingerprint.
scikit-learn itself is not needed, so that inference does not load it.
"""

from __future__ import annotations

import inspect
from abc import ABC
from typing import Any, ClassVar, TypeVar

import numpy as np

P = TypeVar("P", bound="Part")


class Part(ABC):  # noqa: B024  # what must be there is said by structures, models, losses, ...
    """An object that is described by the parameters of its constructor, as scikit-learn's estimators are.

    A subclass is abstract, and cannot be made while one of its abstract methods is missing, or final.
    """

    #: Parameters that change how fast something is computed and nothing else; checkpoints do not look at them.
    speed_parameters: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def parameter_names(cls) -> list[str]:
        """The names of the constructor's arguments."""
        if cls.__init__ is object.__init__:
            return []
        parameters = inspect.signature(cls.__init__).parameters.values()
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(
                    f"{cls.__name__}.__init__ must name its parameters one by one, but takes {parameter}."
                )
        return [parameter.name for parameter in parameters if parameter.name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with ``deep``, those of its parts too, as ``part__parameter``."""
        found: dict[str, Any] = {}
        for name in self.parameter_names():
            try:
                value = getattr(self, name)
            except AttributeError:
                raise AttributeError(
                    f"{type(self).__name__}.__init__ must store its parameter as self.{name}."
                ) from None
            found[name] = value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found.update({f"{name}__{key}": v for key, v in value.get_params().items()})
        return found

    def set_params(self: P, **parameters: Any) -> P:
        """Changes parameters by name; ``part__parameter`` changes a part's."""
        known = self.parameter_names()
        # Parts first: what follows may be parameters of theirs.
        for key, value in sorted(parameters.items(), key=lambda item: "__" in item[0]):
            name, is_nested, rest = key.partition("__")
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {known}.")
            if is_nested:
                part = getattr(self, name)
                if not hasattr(part, "set_params"):
                    raise ValueError(f"{name} is {part!r}, which has no parameters: {key} cannot be set.")
                part.set_params(**{rest: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {
            name: parameter.default for name, parameter in inspect.signature(type(self).__init__).parameters.items()
        }
        shown = [
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if defaults[name] is inspect.Parameter.empty or not _same(value, defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Part):
            return NotImplemented
        mine, theirs = self.get_params(deep=False), other.get_params(deep=False)
        return all(_same(value, theirs[name]) for name, value in mine.items())

    def __hash__(self) -> int:
        return hash(type(self))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one is other or bool(one == other)
