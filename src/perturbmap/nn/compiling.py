"""Modules that are one operation of the graphs of ``torch.compile``, without its compiler being loaded.

The compiler sees which tensors go in and what shapes come out; it looks neither into the core nor into the kernels,
and breaks no graph at them. The operation finds its module by a number, since a graph holds no objects. The tape of a
module's last call is kept until its gradient is asked for; an earlier call is solved again for it, under the
noise that it had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

# In place of the length of a list.
_NO_VALUE, _ONE_VALUE = -1, -2

_numbers = count()


class OneOperation(nn.Module):
    """A module that ``torch.compile`` takes as a single operation of its graph."""

    def __init__(self) -> None:
        super().__init__()
        _modules[id(self)] = self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        _modules[id(self)] = self

    @abstractmethod
    def solve(self, *values: Any) -> Any:
        """The answer, a tensor or a list of them, to values that are tensors, arrays, lists of them, or None."""

    @abstractmethod
    def outline(self, *values: Any) -> Any:
        """Empty tensors of the shapes and types of the answer."""

    @property
    def noise_state(self) -> tuple[int, bool]:
        """What decides the noise of the next call: its first draw, and whether the module is in training."""
        return 0, self.training

    @noise_state.setter
    def noise_state(self, state: tuple[int, bool]) -> None:
        self.training = state[1]

    def answer(self, *values: Any) -> Any:
        """What `solve` returns, in a compiled graph too."""
        if not torch.compiler.is_compiling():
            return self.solve(*values)
        tensors: list[Tensor] = []
        parts: list[int] = []
        for value in values:
            is_one = isinstance(value, (Tensor, np.ndarray))
            items = [value] if is_one else [] if value is None else list(value)
            tensors += [torch.as_tensor(item) for item in items]
            parts.append(_ONE_VALUE if is_one else _NO_VALUE if value is None else len(items))
        has_tape = torch.is_grad_enabled()
        wanted = [has_tape and tensor.requires_grad for tensor in tensors]
        # Calls of the same tensors differ in their noise: a tensor of its own keeps the compiler from joining them.
        tensors.append(torch.empty(0))
        wanted.append(False)
        answers = torch.ops.perturbmap.solve(id(self), tensors, parts, wanted)[:-1]
        is_list = isinstance(self.outline(*values), list)
        return answers if is_list else answers[0]


class _Call:
    """A call with a tape of its own, from those tensors that want a gradient to the answers."""

    def __init__(
        self, module: OneOperation, tensors: Sequence[Tensor], parts: Sequence[int], wanted: Sequence[bool]
    ) -> None:
        self.state = module.noise_state
        with _tape():
            pairs = zip(tensors, wanted, strict=True)
            own = [tensor.detach().requires_grad_(is_wanted) for tensor, is_wanted in pairs]
            self.answers = _listed(module.solve(*_values(own, parts)))
        self._leaves = [tensor for tensor in own if tensor.requires_grad]

    def pull(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Gradients with respect to the tensors that want one, from those with respect to the answers."""
        with _tape():
            found = torch.autograd.grad(self.answers, self._leaves, gradients, allow_unused=True)
        pairs = zip(found, self._leaves, strict=True)
        return [torch.zeros_like(leaf) if each is None else _own(each) for each, leaf in pairs]


_modules: WeakValueDictionary[int, OneOperation] = WeakValueDictionary()
_last_calls: WeakKeyDictionary[OneOperation, tuple[int, _Call]] = WeakKeyDictionary()


def _called(module: int, tensors: list[Tensor], parts: list[int], wanted: list[bool]) -> list[Tensor]:
    """The answers of a module, and after them what `_pulled` is told of the call."""
    solver, number = _modules[module], next(_numbers)
    call = _Call(solver, tensors, parts, wanted)
    if any(wanted):
        _last_calls[solver] = number, call
    return [*(_own(answer) for answer in call.answers), torch.tensor([number, *call.state])]


def _pulled(
    gradients: list[Tensor],
    told: Tensor,
    module: int,
    tensors: list[Tensor],
    parts: list[int],
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients with respect to those tensors that want one."""
    solver = _modules[module]
    number, draw, is_training = told.tolist()
    kept, call = _last_calls.pop(solver, (None, None))
    if call is None or kept != number:
        before = solver.noise_state
        solver.noise_state = draw, bool(is_training)
        try:
            call = _Call(solver, tensors, parts, wanted)
        finally:
            solver.noise_state = before
    return call.pull(gradients)


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.module, tensors, ctx.parts, ctx.wanted = inputs
    ctx.save_for_backward(output[-1], *tensors)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    told, *tensors = ctx.saved_tensors
    found = iter(torch.ops.perturbmap.pull(gradients[:-1], told, ctx.module, tensors, ctx.parts, ctx.wanted))
    return None, [next(found) if is_wanted else None for is_wanted in ctx.wanted], None, None


def _called_outline(module: int, tensors: list[Tensor], parts: list[int], wanted: list[bool]) -> list[Tensor]:
    answers = _listed(_modules[module].outline(*_values(tensors, parts)))
    return [*answers, torch.empty(3, dtype=torch.int64)]


def _pulled_outline(
    gradients: list[Tensor],
    told: Tensor,
    module: int,
    tensors: list[Tensor],
    parts: list[int],
    wanted: list[bool],
) -> list[Tensor]:
    pairs = zip(tensors, wanted, strict=True)
    return [tensor.new_empty(tensor.shape) for tensor, is_wanted in pairs if is_wanted]


def _define() -> None:
    call = "int module, Tensor[] tensors, int[] parts, bool[] wanted"
    torch.library.define("perturbmap::solve", f"({call}) -> Tensor[]")
    torch.library.define("perturbmap::pull", f"(Tensor[] gradients, Tensor told, {call}) -> Tensor[]")
    for name, function, outline in (("solve", _called, _called_outline), ("pull", _pulled, _pulled_outline)):
        torch.library.impl(f"perturbmap::{name}", "default", function)
        torch.library.register_fake(f"perturbmap::{name}", outline)
    torch.library.register_autograd("perturbmap::solve", _backward, setup_context=_save)


def _values(tensors: Sequence[Tensor], parts: Sequence[int]) -> list[Any]:
    """The values of a call again, lists where there were lists."""
    rest = iter(tensors)
    return [
        None if part == _NO_VALUE else next(rest) if part == _ONE_VALUE else [next(rest) for _ in range(part)]
        for part in parts
    ]


def _listed(answer: Any) -> list[Tensor]:
    return [answer] if isinstance(answer, Tensor) else list(answer)


def _own(tensor: Tensor) -> Tensor:
    """A copy that nobody else holds."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


@contextmanager
def _tape() -> Iterator[None]:
    """Has operations on tensors recorded inside an operation of our own, where torch has switched that off."""
    from torch._C import (  # torch has no public names for these: asked for only where a graph is compiled
        DispatchKey,
        _dispatch_tls_local_exclude_set,
        _dispatch_tls_local_include_set,
        _ForceDispatchKeyGuard,
    )

    left_out = _dispatch_tls_local_exclude_set()
    for key in (DispatchKey.AutogradFunctionality, DispatchKey.AutogradOther, DispatchKey.ADInplaceOrView):
        left_out = left_out.remove(key)
    with _ForceDispatchKeyGuard(_dispatch_tls_local_include_set(), left_out), torch.enable_grad():
        yield


_define()
