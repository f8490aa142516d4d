"""What torch.compile leaves as it is, without torch's compiler being loaded by those who do not use it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

_Forward = TypeVar("_Forward", bound=Callable[..., Any])


def not_compiled(forward: _Forward) -> _Forward:
    """The same method, which leaves torch for the core: a compiled graph is broken here, and goes on after it.

    ``torch.compiler.disable`` as a decorator loads torch's compiler, which takes as long as torch itself.
    """

    @wraps(forward)
    def called(*arguments: Any, **named: Any) -> Any:
        run = torch.compiler.disable(forward) if torch.compiler.is_compiling() else forward
        return run(*arguments, **named)

    return cast(_Forward, called)
