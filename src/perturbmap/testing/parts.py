"""What every part must do: be the parameters of its constructor, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

from perturbmap.support.parts import Part
from perturbmap.testing.failure import Trial, describe


def check_part(part: Part, kind: type[Part] = Part) -> None:
    """Checks that the constructor of a part stores its arguments under their own names, as they are.

    Parts are structures, models, losses, objectives and solvers. ``get_params``, ``set_params``, ``repr``, equality,
    scikit-learn's ``clone`` and ``GridSearchCV``, files and checkpoints need it. ``kind`` is the class that the part
    must derive from. All other checks begin with this one. `ConformanceError` says what is wrong.

    >>> pm.testing.check_part(pm.DoubleSGD(averaging=pm.SuffixAveraging(0.2)))
    """
    if not isinstance(part, kind):
        raise TypeError(
            f"{type(part).__name__} must derive from {kind.__name__}: class {type(part).__name__}({kind.__name__})."
        )
    with Trial(part, lambda: describe(parameters=part.parameter_names())) as trial:
        parameters = part.get_params(deep=False)
        # As scikit-learn's `clone` does: with copies, which the constructor must store as they come.
        copies = {name: _copy(value) for name, value in parameters.items()}
        rebuilt = type(part)(**copies)
        for name, value in copies.items():
            trial.holds(
                f"its constructor stores the argument {name} as self.{name}, without changing it",
                getattr(rebuilt, name) is value,
                f"expected: {value!r}\nfound:    {getattr(rebuilt, name)!r}",
            )
        same = type(part)(**parameters)
        trial.holds("two parts with the same parameters are equal", part == same)
        trial.holds("equal parts have equal hashes", hash(part) == hash(same))
        trial.holds("equal parts have the same repr", repr(part) == repr(same), f"{part!r}\n{same!r}")
        trial.holds("set_params of its own parameters changes nothing", same.set_params(**parameters) == part)
        for name, value in parameters.items():
            changed = type(part)(**parameters).set_params(**{name: _Other()})
            trial.holds(f"set_params changes {name}", isinstance(getattr(changed, name), _Other))
            if value is not None:
                trial.holds(f"parts that differ in {name} are not equal", changed != part)
        trial.refuses("an unknown parameter is refused", ValueError, lambda: same.set_params(no_such_parameter=1))


class _Other:
    """A value that no parameter has."""


def _copy(value: Any) -> Any:
    if isinstance(value, Part):
        return type(value)(**{name: _copy(inner) for name, inner in value.get_params(deep=False).items()})
    return copy.deepcopy(value)
