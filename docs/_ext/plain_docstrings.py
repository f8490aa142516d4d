"""The project's plain docstrings as Sphinx likes them, the sources left as they are.

``name : what it is`` lines become a list of parameters (of members, for an Enum), a name in single backticks becomes
a link where something of that name is documented, else code, and signatures keep their types as written.
"""

from __future__ import annotations

import enum
import inspect
import re
from importlib import import_module
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

#: Where a name without a module is looked for.
_MODULES = ("perturbmap", "perturbmap.images", "perturbmap.datasets", "perturbmap.nn", "perturbmap.uai")
#: Documented beside what these modules export.
_MORE = {
    "Problem": "perturbmap.solvers.Problem",
    "State": "perturbmap.solvers.State",
    "Averaging": "perturbmap.solvers.Averaging",
    "Targets": "perturbmap.objectives.Targets",
    "Dataset": "perturbmap.data.Dataset",
    "PinnedSums": "perturbmap.structures.summable.PinnedSums",
    **{name: f"perturbmap.inference.{name}" for name in ("PINNED", "INTEGRATED", "COUNTED", "EXACT", "CONVERGING")},
}
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (\S.*)$")
_DECISION = re.compile(r"docs/decisions\.md, (\d+)")
_NAME = re.compile(r"(?<![`:\w])`([A-Za-z_][\w.]*)`(?![`_\w])")


def _documented() -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for module in _MODULES:
        try:
            names = import_module(module)
        except ImportError:
            continue
        for name in reversed(getattr(names, "__all__", [])):
            found.setdefault(name, (f"{module}.{name}", getattr(names, name)))
    for name, path in _MORE.items():
        found[name] = (path, getattr(import_module(path.rpartition(".")[0]), name))
    return found


def _link(name: str, here: str, found: dict[str, tuple[str, Any]]) -> str:
    """The role for a name that is mentioned in the docstring of ``here``."""
    head, _, member = name.partition(".")
    if head in found and (not member or hasattr(found[head][1], member)):
        path = found[head][0] + (f".{member}" if member else "")
        return f":py:obj:`{name} <{path}>`"
    # A method of the class that the docstring is of: it is described where it is declared first.
    owner = next((thing for path, thing in found.values() if f"{here}.".startswith(f"{path}.")), None)
    if isinstance(owner, type) and not member:
        for base in reversed(owner.__mro__):
            if name in vars(base) and base.__name__ in found and callable(vars(base)[name]):
                return f":py:obj:`{name} <{found[base.__name__][0]}.{name}>`"
    return f"``{name}``"


def _lists(lines: list[str], heading: str) -> list[str]:
    """Paragraphs of ``name : text``, further lines of an entry indented, as a list under a heading."""
    out: list[str] = []
    inside = False
    for i, line in enumerate(lines):
        entry = _ENTRY.match(line)
        if entry is not None and (inside or i == 0 or not lines[i - 1].strip()):
            if not inside:
                out += [f":{heading}:"]
            inside = True
            out.append(f"    * **{entry[1]}** -- {entry[2]}")
        elif inside and line.startswith(" "):
            out.append(f"      {line.strip()}")
        else:
            inside = False
            out.append(line)
    return out


def _signature(obj: Any) -> tuple[str, str | None] | None:
    """Types as the sources write them: ``ArrayLike``, not what NumPy makes of it."""
    if isinstance(obj, type) and issubclass(obj, enum.Enum):
        return "", None
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    parameters = [p for i, p in enumerate(signature.parameters.values()) if i or p.name != "self"]
    returns = None if isinstance(obj, type) else signature.return_annotation
    text = stringify_signature(signature.replace(parameters=parameters), show_return_annotation=False)
    return text, returns if isinstance(returns, str) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Hooks into autodoc."""
    found = _documented()

    def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        is_enum = isinstance(obj, type) and issubclass(obj, enum.Enum)
        linked = [_NAME.sub(lambda m: _link(m[1], name, found), line) for line in lines]
        linked = [_DECISION.sub(r":decision:`\1`", line) for line in linked]
        lines[:] = _lists(linked, "Members" if is_enum else "Parameters")

    def sign(
        app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
    ) -> tuple[str, str | None] | None:
        return _signature(obj) if what in ("function", "method", "class", "exception") else None

    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
