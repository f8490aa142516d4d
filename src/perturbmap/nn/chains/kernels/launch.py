"""Starting a Triton kernel: the compiled one is looked up by what it depends on, and given its arguments.

Triton's own way looks at every argument of every call, which takes longer than a short chain does. Kernels that start
here depend on the types of their pointers and on their constants alone (`fixed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

_compiled: dict[Any, Any] = {}


def fixed(n_pointers: int) -> Any:
    """``triton.jit`` of a kernel with so many pointers, whose code depends on no number and on no alignment."""

    def decorate(function: Any) -> Any:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        numbers = [name for name in names[n_pointers:] if not name.isupper()]
        return triton.jit(do_not_specialize=numbers, do_not_specialize_on_alignment=names[:n_pointers])(function)

    return decorate


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    pointers: Sequence[Tensor | None],
    numbers: Sequence[float],
    constants: dict[str, Any],
    num_warps: int = 4,
) -> None:
    """Runs a kernel on the device of its first pointer, which also stands in for those that are None."""
    x = pointers[0]
    assert x is not None
    tensors = [x if pointer is None else pointer for pointer in pointers]
    device = x.get_device()
    if device >= 0 and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            launch(kernel, grid, pointers, numbers, constants, num_warps)
        return
    key = (kernel, device, num_warps, *constants.values(), *[tensor.dtype for tensor in tensors])
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[grid](*tensors, *numbers, **constants, num_warps=num_warps)
    else:
        compiled[(*grid, 1, 1)[:3]](*tensors, *numbers, *constants.values())
