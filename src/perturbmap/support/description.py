"""Parts as text: for files, which make them again, and for fingerprints, which tell one from another."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from perturbmap.support.damage import reason, shown
from perturbmap.support.parts import Part

#: What `to_json` makes an object of that JSON has no word for.
_ARRAY, _TUPLE, _DICT, _RANGE = "array", "tuple", "dict", "range"


def to_json(value: Any) -> Any:
    """A parameter as JSON: plain values, arrays, and parts by the name of their class."""
    if isinstance(value, Enum):
        return {"class": _class_name(type(value)), "value": value.value, "own": not _is_ours(type(value))}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {_ARRAY: value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, list):
        return [to_json(v) for v in value]
    if isinstance(value, tuple):
        return {_TUPLE: [to_json(v) for v in value]}
    if isinstance(value, range):
        return {_RANGE: [value.start, value.stop, value.step]}
    if isinstance(value, dict):
        return {_DICT: [[to_json(k), to_json(v)] for k, v in value.items()]}
    if isinstance(value, Part):
        parameters = {k: to_json(v) for k, v in value.get_params(deep=False).items()}
        return {"class": _class_name(type(value)), "params": parameters, "own": not _is_ours(type(value))}
    raise ValueError(
        f"{value!r} cannot be saved without pickle: numbers, texts, arrays, lists, dicts and parts can. A function, "
        "such as FromSolver's, is saved as a structure of your own that has it as a method (docs/extending.md)."
    )


def from_json(value: Any, own: Sequence[type] = ()) -> Any:
    """The inverse of `to_json`; only classes of this package, and those in ``own``, are made.

    ValueError for what `to_json` never makes, and for a part that cannot be made with its parameters.
    """
    try:
        return _from_json(value, own)
    except RecursionError:
        raise ValueError("the file has a parameter that is nested too deeply.") from None


def _from_json(value: Any, own: Sequence[type]) -> Any:
    if isinstance(value, list):
        return [_from_json(v, own) for v in value]
    if not isinstance(value, dict):
        return value
    for key, read in _READ.items():
        if key in value:
            return read(value, own)
    made = _find_class(value.get("class"), bool(value.get("own")), own)
    if issubclass(made, Enum):
        return _choice(made, value.get("value"))
    parameters = value.get("params")
    if not isinstance(parameters, dict):
        raise ValueError(f"the file has a {made.__name__} without parameters.")
    known = {k: _from_json(v, own) for k, v in parameters.items()}
    try:
        return made(**known)
    except Exception as error:  # a part of the user's may raise anything
        raise ValueError(f"the file has a {made.__name__} that cannot be made ({reason(error)}).") from error


def _read_array(value: dict[str, Any], own: Sequence[type]) -> Any:
    match = re.fullmatch("[<>|=](?:([biuf][0-9]{1,2})|U[0-9]+)", str(value.get("dtype")))
    if match is None:
        raise ValueError(f"the file has an array of the type {shown(value.get('dtype'))}.")
    try:
        # Texts are as long as they are: a type may claim any length.
        return np.array(value[_ARRAY], dtype=np.str_ if match[1] is None else np.dtype(match[0]))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the file has an array that is none ({reason(error)}).") from None


def _read_tuple(value: dict[str, Any], own: Sequence[type]) -> Any:
    return tuple(_from_json(v, own) for v in _list_of(value, _TUPLE))


def _read_range(value: dict[str, Any], own: Sequence[type]) -> Any:
    numbers = _list_of(value, _RANGE)
    if len(numbers) != 3 or not all(type(n) is int for n in numbers) or numbers[2] == 0:
        raise ValueError(f"the file has a range of {shown(numbers)}.")
    return range(*numbers)


def _read_dict(value: dict[str, Any], own: Sequence[type]) -> Any:
    pairs = _list_of(value, _DICT)
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"the file has a dict of {shown(pairs)}.")
    try:
        return {_from_json(k, own): _from_json(v, own) for k, v in pairs}
    except TypeError as error:
        raise ValueError(f"the file has a dict that is none ({error}).") from None


_READ = {_ARRAY: _read_array, _TUPLE: _read_tuple, _RANGE: _read_range, _DICT: _read_dict}


def _list_of(value: dict[str, Any], key: str) -> list[Any]:
    found = value[key]
    if not isinstance(found, list):
        raise ValueError(f"the file has a {key} of {shown(found)}.")
    return found


def _choice(made: type[Enum], value: Any) -> Enum:
    try:
        return made(value)
    except (TypeError, ValueError):
        raise ValueError(f"the file has {shown(value)}, which is not a {made.__name__}.") from None


def _is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "perturbmap"


def _class_name(cls: type) -> str:
    """The name under which a file has a class; ValueError for one of ours that no file could name."""
    if _is_ours(cls):
        _find_class(cls.__name__, False, ())
    return cls.__name__


def _find_class(name: Any, is_own: bool, own: Sequence[type]) -> type:
    """A class by its name: one that the caller brings, or a part or a choice of this package."""
    if not isinstance(name, str):
        raise ValueError(f"the file names the unknown class {shown(name)}.")
    if is_own:
        for cls in own:
            if cls.__name__ == name:
                return cls
        raise ValueError(
            f"the file has a part {name!r} that is not perturbmap's: pass its class, load(path, parts=[{name}])."
        )
    import perturbmap

    # Not every attribute: a file must not be able to name anything but a part or a choice.
    public = getattr(perturbmap, name, None) if name in perturbmap.__all__ else None
    found = [public] if public is not None else [cls for cls in _parts() if cls.__name__ == name and _is_ours(cls)]
    if len(found) != 1 or not isinstance(found[0], type) or not issubclass(found[0], (Part, Enum)):
        raise ValueError(f"the file names the unknown class {shown(name)}.")
    return found[0]


def _parts(cls: type[Part] = Part) -> Iterator[type[Part]]:
    for derived in cls.__subclasses__():
        yield derived
        yield from _parts(derived)


def fingerprint(value: Any) -> str:
    """A text that differs where two parameters differ in what they compute.

    Parameters that only change the speed are left out. A function of the user's is known by its code, its defaults,
    what it closes over and the globals that it uses, a class of the user's by the code of its methods; those of
    libraries by their names; any other object by what pickle would keep of it. ValueError where there is no telling.
    """
    return json.dumps(_Fingerprint().of(value), sort_keys=True)


class _Fingerprint:
    """Describes an object and what it refers to, each once."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no number is given to two objects

    def of(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return [self._name(type(value)), repr(value.value)]
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, str, bytes)):
            return repr(value)
        if isinstance(value, (int, float)):
            return repr(float(value)) if abs(value) < 2**53 else repr(value)  # 1 and 1.0 are the same
        if isinstance(value, np.random.Generator):
            return "Generator"  # its state moves on; the seed that it gave is in the checkpoint
        if isinstance(value, (ModuleType, BuiltinFunctionType, np.ufunc)):
            return getattr(value, "__name__", repr(value))
        if id(value) in self._seen:
            return ["seen before", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return self._of_object(value)

    def _of_object(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype != object:
            content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()
            return [str(value.dtype), list(value.shape), content]
        if isinstance(value, (list, tuple, range, np.ndarray)):
            return [self.of(v) for v in value]
        if isinstance(value, (set, frozenset)):
            return sorted(json.dumps(self.of(v)) for v in value)
        if isinstance(value, dict):
            return [[self.of(k), self.of(v)] for k, v in value.items()]
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, Part):
            parameters = value.get_params(deep=False)
            kept = {k: self.of(v) for k, v in parameters.items() if k not in value.speed_parameters}
            return [self.of(type(value)), kept]
        if isinstance(value, partial):
            return ["partial", self.of(value.func), self.of(value.args), self.of(value.keywords)]
        if isinstance(value, FunctionType):
            closed = [cell.cell_contents for cell in value.__closure__ or ()]
            about = [self.of(part) for part in (value.__defaults__, value.__kwdefaults__, closed)]
            if _is_of_a_library(value.__module__):
                return [f"{value.__module__}.{value.__qualname__}", *about]
            used = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
            return [_code(value.__code__), *about, self.of(used)]
        if hasattr(value, "__func__"):  # a method, of its object
            return [self.of(value.__func__), self.of(value.__self__)]
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:
            raise ValueError(
                f"a checkpoint cannot tell whether {value!r} is the same as before ({error}): fit without checkpoint."
            ) from None
        return self.of(reduced if isinstance(reduced, (str, list)) else list(reduced[:3]))

    def _of_class(self, cls: type) -> Any:
        if _is_of_a_library(cls.__module__):
            return self._name(cls)
        members = [(name, m) for name, m in sorted(vars(cls).items()) if isinstance(m, FunctionType)]
        bases = [base for base in cls.__bases__ if base is not object]
        return [self._name(cls), self.of(bases), [[name, self.of(member)] for name, member in members]]

    @staticmethod
    def _name(cls: type) -> str:
        return f"{cls.__module__}.{cls.__qualname__}"


def _is_of_a_library(module: str | None) -> bool:
    """Whether a module is this package's, Python's own, or installed, so that its name says what it is."""
    root = (module or "builtins").split(".")[0]
    if root == "perturbmap" or (root in sys.stdlib_module_names and root != "__main__"):
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _names(code: CodeType) -> list[str]:
    """The global names that a function, and those inside it, may use."""
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return sorted({*code.co_names, *inner})


def _code(code: CodeType) -> list[Any]:
    """The instructions of a function and of those inside it, and the names and constants that they use."""
    inner = [_code(c) for c in code.co_consts if isinstance(c, CodeType)]
    plain = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return [code.co_code.hex(), list(code.co_names), plain, inner]
