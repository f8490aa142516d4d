"""Parts as text: for files, which make them again, and for fingerprints, which tell one from another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from enum import Enum
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from perturbmap.support.parts import Part


def to_json(value: Any) -> Any:
    """A parameter as JSON: plain values, and parts by the name of their class."""
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return [to_json(v) for v in value]
    if isinstance(value, Enum):
        return {"class": type(value).__name__, "value": value.value, "own": not _is_ours(type(value))}
    if isinstance(value, Part):
        parameters = {k: to_json(v) for k, v in value.get_params(deep=False).items()}
        return {"class": type(value).__name__, "params": parameters, "own": not _is_ours(type(value))}
    raise ValueError(
        f"{value!r} cannot be saved without pickle. Functions, such as FromSolver's, are left out by setting the "
        "part to None before saving, and set again after loading; objects of your own can be saved if they are parts."
    )


def from_json(value: Any, own: Sequence[type] = ()) -> Any:
    """The inverse of `to_json`; only classes of this package, and those in ``own``, are made."""
    if isinstance(value, list):
        return [from_json(v, own) for v in value]
    if not isinstance(value, dict):
        return value
    made = _find_class(value.get("class"), bool(value.get("own")), own)
    if "value" in value:
        return made(value["value"])
    return made(**{k: from_json(v, own) for k, v in value["params"].items()})


def _is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "perturbmap"


def _find_class(name: Any, is_own: bool, own: Sequence[type]) -> type:
    """A class by its name: one that the caller brings, or a public one of this package."""
    if is_own:
        for cls in own:
            if cls.__name__ == name:
                return cls
        raise ValueError(
            f"the file has a part {name!r} that is not perturbmap's: pass its class, load(path, parts=[{name}])."
        )
    import perturbmap

    # Not every attribute: a file must not be able to name anything but a part or a choice.
    found = getattr(perturbmap, name, None) if name in perturbmap.__all__ else None
    if not isinstance(found, type) or not issubclass(found, (Part, Enum)):
        raise ValueError(f"the file names the unknown class {name!r}.")
    return found


def fingerprint(value: Any) -> str:
    """A text that differs where two parameters differ in what they compute.

    Parameters that only change the speed are left out. A function is known by its code, its defaults and what it
    closes over; any other object by its attributes.
    """
    try:
        return json.dumps(_fingerprint(value), sort_keys=True)
    except RecursionError:
        raise ValueError(
            f"{type(value).__name__} has a parameter that contains itself, so that a checkpoint cannot tell whether "
            "it is the same: fit without checkpoint."
        ) from None


def _fingerprint(value: Any) -> Any:
    if value is None or (isinstance(value, (bool, int, float, str, bytes)) and not isinstance(value, Enum)):
        return repr(value)
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, np.random.Generator):
        return "Generator"  # its state moves on; the seed it gave is in the checkpoint
    if isinstance(value, np.ndarray) and value.dtype != object:
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()
        return [str(value.dtype), list(value.shape), content]
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return [_fingerprint(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_fingerprint(v)) for v in value)
    if isinstance(value, dict):
        return sorted([json.dumps(_fingerprint(k)), _fingerprint(v)] for k, v in value.items())
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, Part):
        parameters = value.get_params(deep=False)
        kept = {k: _fingerprint(v) for k, v in parameters.items() if k not in value.speed_parameters}
        return [_fingerprint(type(value)), kept]
    if isinstance(value, FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        return [_code(value.__code__), _fingerprint(value.__defaults__), _fingerprint(closed)]
    if hasattr(value, "__func__"):  # a method, of its object
        return [_fingerprint(value.__func__), _fingerprint(value.__self__)]
    if isinstance(value, Enum):
        return [_fingerprint(type(value)), repr(value.value)]
    if hasattr(value, "__dict__"):
        return [_fingerprint(type(value)), _fingerprint(vars(value))]
    return [_fingerprint(type(value)), repr(value)]


def _code(code: CodeType) -> list[Any]:
    """The instructions of a function and of those inside it, and the names and constants that they use."""
    inner = [_code(c) for c in code.co_consts if isinstance(c, CodeType)]
    plain = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return [code.co_code.hex(), list(code.co_names), plain, inner]
